"""Check that compared implementations compute the same, before any timing.

- A graph model and the plain one, with equal parameters: equal outputs in evaluation
  mode; in training mode, without dropout, equal means over 20 seeds of the loss and of
  its slope along a fixed direction, within 4 standard errors (each of the two tests
  rejects an equal pair about 3 times in 10,000).
- A NodeFormer and the same sums written over all pairs, in float64 with the same
  random features and without dropout: equal outputs in both modes, equal gradients.

The checks use few nodes and therefore lower thresholds and block sizes: the compiled
and blocked code of large inputs is compared as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from laws import compare
from models import (
    TAU,
    K,
    Model,
    PlainConv,
    PlainNet,
    PlainNodeFormer,
    gsl_net,
    node_former,
    plain_name,
)
from torch import Tensor
from workloads import Workload

from torch_geometric_gsl import GSLNet, GumbelKNNSampler, Similarity
from torch_geometric_gsl.ops import noise_free

# 1,999 is a prime: no block size divides it, so the last block is smaller.
SMALL, EVALUATION_NODES, ATTENTION_NODES = 4_000, 1_999, 300
RTOL, SEEDS, STANDARD_ERRORS = 1e-4, 20, 4.0
ATTENTION_RTOL = 1e-9
# Bytes of a block: some hundred targets of sums by tiles.
BLOCK_BYTES = 2**21
# Of `check_race`.
SOURCES, TARGETS, DRAWS = 500, 16, 50
# Of a mean of float32 similarities in [-1, 1].
ROUNDING = 1e-5


class Agreement(NamedTuple):
    """A verdict on two results, and the size of their difference."""

    agrees: bool
    detail: str


def check(
    implementation: str,
    variant: str,
    workload: Workload,
    seed: int,
    training_nodes: int,
) -> Agreement:
    """Compare an implementation with the function that it should compute."""
    if implementation == 'dense':
        return Agreement(True, 'the definition')
    with mock.patch.multiple(noise_free, _MIN_PAIRS=1_000, _TILE=200):
        if implementation.startswith('nodeformer-'):
            return check_nodeformer(implementation, workload, seed)
        return check_graph_model(
            implementation, variant, workload, seed, training_nodes
        )


def check_graph_model(
    method: str, variant: str, workload: Workload, seed: int, training_nodes: int
) -> Agreement:
    """Compare a GSLNet with the plain model on a subset of the nodes."""
    is_small = workload.x.size(0) <= SMALL
    subset = workload if is_small else workload.subset(EVALUATION_NODES, seed)
    torch.manual_seed(seed)
    difference = evaluation_difference(*model_pair(method, variant, subset), subset)
    subset = workload.subset(training_nodes, seed)
    models = model_pair(method, variant, subset)
    subset = unit_projections(models[1], subset)
    # The two models have different seeds.
    ours = loss_and_slope(models[0], subset, seed)
    plain = loss_and_slope(models[1], subset, seed + SEEDS)
    error = ((ours.var(dim=0) + plain.var(dim=0)) / SEEDS).sqrt()
    z = (ours.mean(dim=0) - plain.mean(dim=0)) / error
    detail = f'eval {difference:.0e}, z {z[0]:+.1f}, slope z {z[1]:+.1f}'
    is_same_law = bool((z.abs() <= STANDARD_ERRORS).all())
    return Agreement(difference <= RTOL and is_same_law, detail)


def model_pair(method: str, variant: str, subset: Workload) -> tuple[GSLNet, PlainNet]:
    """Return a GSLNet and the plain model with its parameters, without dropout."""
    model = gsl_net(method, variant, subset, dropout=0.0)
    for module in model.modules():
        if isinstance(module, GumbelKNNSampler):
            module.budget = module.budget._replace(memory=BLOCK_BYTES)
    return model, PlainNet(model, subset.x.size(0))


@torch.no_grad()
def unit_projections(model: PlainNet, subset: Workload) -> Workload:
    """Scale features to unit projections: bags of words give outputs near zero."""
    first_conv = next(
        module for module in model.modules() if isinstance(module, PlainConv)
    )
    return subset._replace(x=subset.x * (1 / float(first_conv.lin(subset.x).std())))


@torch.no_grad()
def evaluation_difference(ours: Model, plain: Model, subset: Workload) -> float:
    """Return the largest difference, relative to max(|output|, mean |output|)."""
    expected = plain.eval()(subset.x)
    size = expected.abs().clamp_min(expected.abs().mean())
    return float(((ours.eval()(subset.x) - expected).abs() / size).max())


def loss_and_slope(model: Model, subset: Workload, seed: int) -> Tensor:
    """Compute the loss and its slope along one direction for each seed [R, 2]."""
    model.train()
    names = {plain_name(name): param for name, param in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    direction = {
        name: torch.randn(names[name].shape, generator=generator)
        for name in sorted(names)
    }
    rows = []
    for draw in range(SEEDS):
        torch.manual_seed(1_000 * seed + draw)
        loss = F.cross_entropy(model(subset.x), subset.y)
        gradients = torch.autograd.grad(loss, list(names.values()))
        slope = sum(
            float((direction[name] * gradient).sum())
            for name, gradient in zip(names, gradients, strict=True)
        )
        rows.append((loss.item(), slope))
    return torch.tensor(rows, dtype=torch.float64)


def check_nodeformer(implementation: str, workload: Workload, seed: int) -> Agreement:
    """Compare a NodeFormer with the plain model on a subset of the nodes."""
    subset = workload.subset(ATTENTION_NODES, seed)
    subset = subset._replace(x=subset.x.double())
    torch.manual_seed(seed)
    model = node_former(implementation, subset, dropout=0.0).double()
    models: tuple[Model, Model] = model, PlainNodeFormer(model)
    ours, plain = (results(each, subset, seed) for each in models)
    differences = [
        (output - expected).abs().max() / expected.abs().max()
        for output, expected in zip(ours, plain, strict=True)
    ]
    difference = float(torch.stack(differences).max())
    return Agreement(difference <= ATTENTION_RTOL, f'quadratic sums {difference:.0e}')


def results(model: Model, subset: Workload, seed: int) -> list[Tensor]:
    """Return the outputs in both modes, and the gradients of the loss."""
    with torch.no_grad():
        evaluated = model.eval()(subset.x)
    out = model.train()(subset.x, generator=torch.Generator().manual_seed(seed))
    loss = F.cross_entropy(out, subset.y)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return [evaluated, out.detach(), *gradients]


@torch.no_grad()
def check_race(
    x: Tensor, similarity: Similarity, scale: float, seed: int
) -> dict[str, Any]:
    """Compare sums of a race with those of the definition on a subset, by a z-score.

    The sums are of similarities to the target, whose mean shows a wrong sharpness. A
    correct method exceeds the bound in about one of ten thousand rows.
    """
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(x.size(0), generator=generator)[:SOURCES]
    pair = x[nodes], x[nodes[:TARGETS]]
    h = similarity(pair).t().contiguous()
    means = []
    for method in ('dense', 'race'):
        sampler = GumbelKNNSampler.paper(similarity, K, TAU, scale, method=method)
        sums = [sampler.propagate(pair, h, generator=generator) for _ in range(DRAWS)]
        # For each target, only the sum of similarities to this target.
        of_targets = torch.stack(sums).double().diagonal(dim1=1, dim2=2)
        means.append(of_targets.mean(dim=1, keepdim=True))
    dense, race = means
    # If every node draws only itself, nothing varies but the rounding.
    is_equal = float((dense.mean() - race.mean()).abs()) < ROUNDING
    z = 0.0 if is_equal else compare(dense, race).largest
    # NaN never agrees.
    return {'z': z, 'agrees': z <= STANDARD_ERRORS}
