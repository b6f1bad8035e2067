"""Looks at what a model's samplers choose among, during a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.diagnostics.summaries import LayerSummary
from torch_geometric_gsl.nn.sampler._scorer import Request
from torch_geometric_gsl.nn.sampler._task import make_task
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.neural_gaussian_similarity import (
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.ops.graph_stats import (
    Spread,
    candidate_spread,
    scorer_spread,
)
from torch_geometric_gsl.ops.scorer import Law
from torch_geometric_gsl.typing import Batch, Features


def find_samplers(model: object) -> dict[str, GumbelKNNSampler]:
    """The samplers of a model by their names; raises if there are none."""
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
    """Restores the generators of the CPU and of the devices that are in use."""
    tensors = [*model.parameters(), *(x for x in inputs if isinstance(x, Tensor))]
    return torch.random.fork_rng({x.device for x in tensors if x.is_cuda})


@contextmanager
def observed(
    samplers: dict[str, GumbelKNNSampler], layers: list[LayerSummary]
) -> Iterator[None]:
    """Summarises each call of a sampler; layers call `propagate`, where no hook is."""
    hidden: list[tuple[GumbelKNNSampler, str, object]] = []

    def observe(name: str, sampler: GumbelKNNSampler, method: str) -> None:
        original: Callable[..., Any] = getattr(sampler, method)
        # The positional arguments: `propagate` takes messages, too.
        names = ['x', 'edge_index', 'batch']
        if method == 'propagate':
            names.insert(1, 'h')

        def call(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            candidates = given.get('edge_index'), given.get('batch')
            layers.append(_summarise(name, sampler, given['x'], *candidates))
            return original(*args, **kwargs)

        hidden.append((sampler, method, sampler.__dict__.get(method)))
        setattr(sampler, method, call)

    try:
        for name, sampler in samplers.items():
            observe(name, sampler, 'forward')
            observe(name, sampler, 'propagate')
        yield
    finally:
        for sampler, method, own in hidden:
            delattr(sampler, method)
            if own is not None:
                setattr(sampler, method, own)


def _summarise(
    name: str,
    sampler: GumbelKNNSampler,
    x: Features,
    edge_index: Tensor | None,
    batch: Batch | None,
) -> LayerSummary:
    similarity = sampler.similarity
    spread, candidates = _pi_spread(sampler, x, edge_index, batch)
    choice = candidates > 1
    share = (spread.effective[choice] / candidates[choice]).mean()
    b, c = None, None
    if isinstance(similarity, NeuralGaussianSimilarity):
        b, c = similarity.encode_pair(x).params
    norms = {
        key: None if parameter.grad is None else float(parameter.grad.norm())
        for key, parameter in similarity.named_parameters()
    }
    return LayerSummary(
        name, repr(sampler), candidates, *spread, float(share), b, c, norms
    )


def _pi_spread(
    sampler: GumbelKNNSampler,
    x: Features,
    edge_index: Tensor | None,
    batch: Batch | None,
) -> tuple[Spread, Tensor]:
    """The spread of pi and the number of candidates, per target."""
    request = Request(
        sampler.similarity,
        Law(k=1, tau=sampler.tau),
        sampler.scale,
        sampler.loop,
        'dense',
        sampler.memory_budget,
    )
    task = make_task(request, x, edge_index, batch)
    n = task.num_targets
    spread = Spread(*torch.zeros(2, n, dtype=torch.double, device=task.device))
    candidates = torch.zeros(n, dtype=torch.long, device=task.device)
    for edges, score in task.listed:
        choice = score > -torch.inf  # The others are excluded loops.
        target = edges[1][choice]
        own = candidate_spread(score[choice], target, n)
        spread.entropy.add_(own.entropy), spread.effective.add_(own.effective)
        candidates += torch.bincount(target, minlength=n)
    for scorer, _, start, _ in task.blocks:
        rows = slice(start, start + scorer.size[0])
        own = scorer_spread(scorer, memory_budget=sampler.memory_budget)
        spread.entropy[rows], spread.effective[rows] = own
        candidates[rows] = scorer.available
    return spread, candidates
