"""Observe the samplers of a model during a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.diagnostics.summaries import LayerSummary
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.neural_gaussian_similarity import (
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.typing import Batch, Features


def find_samplers(model: object) -> dict[str, GumbelKNNSampler]:
    """Return the samplers of a model by their names; raise if there are none."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"'model' must be a torch.nn.Module (got {type(model).__name__})"
        )
    if any(map(torch.nn.parameter.is_lazy, model.parameters())):
        raise ValueError(
            "'model' must have all its parameters (got uninitialized ones): run a "
            'forward pass first'
        )
    samplers = {
        name or 'sampler': module
        for name, module in model.named_modules()
        if isinstance(module, GumbelKNNSampler)
    }
    if not samplers:
        raise ValueError(
            f"'model' must contain a GumbelKNNSampler (got {type(model).__name__})"
        )
    return samplers


def fork_rng(model: torch.nn.Module, inputs: Iterable[object]) -> Any:
    """Restore the generators of the CPU and of the devices that are in use."""
    tensors = [*model.parameters(), *(x for x in inputs if isinstance(x, Tensor))]
    return torch.random.fork_rng({x.device for x in tensors if x.is_cuda})


@contextmanager
def observed(
    samplers: dict[str, GumbelKNNSampler], layers: list[LayerSummary]
) -> Iterator[None]:
    """Summarise each draw of the samplers."""

    def observe(name: str) -> Callable[..., None]:
        return lambda *inputs: layers.append(_summarise(name, *inputs))

    handles = [
        sampler.register_draw_hook(observe(name)) for name, sampler in samplers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _summarise(
    name: str,
    sampler: GumbelKNNSampler,
    x: Features,
    edge_index: Tensor | None,
    batch: Batch | None,
) -> LayerSummary:
    similarity = sampler.similarity
    candidates, entropy, effective = sampler.distribution(x, edge_index, batch)
    choice = candidates > 1
    share = (effective[choice] / candidates[choice]).mean()
    b, c = None, None
    if isinstance(similarity, NeuralGaussianSimilarity):
        b, c = similarity.pair_scores(x).response.params
    norms = {
        key: None if parameter.grad is None else float(parameter.grad.norm())
        for key, parameter in similarity.named_parameters()
    }
    spread = entropy, effective, float(share)
    return LayerSummary(name, repr(sampler), candidates, *spread, b, c, norms)
