r"""The definition among listed candidates: ragged rows, a flat list of edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import cumsum, lexsort, softmax

from torch_geometric_gsl.ops.candidates import expand_ranges
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.graph_stats import candidate_null_share
from torch_geometric_gsl.ops.noise import arrival_times
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.typing import SampledGraph


@disable_compile
def candidate_graph(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    options: DrawOptions,
    *,
    generator: torch.Generator | None = None,
    null: Tensor | None = None,
) -> SampledGraph:
    r"""Sample a graph among listed candidates, all of which are drawn.

    The noise has the order (target, draw, candidate) of
    :func:`~torch_geometric_gsl.ops.dense.relaxed_weights`, so that one seed gives the
    weights of the definition.

    Args:
        score (torch.Tensor): One score per candidate edge :math:`[|E|]`;
            :math:`-\infty` excludes.
        edge_index (torch.Tensor): Candidate edges, sorted by target, without
            duplicates.
        num_targets (int): The number of targets.
        options (DrawOptions): How neighbours are drawn.
        generator (torch.Generator, optional): The generator. (default: :obj:`None`)
        null (torch.Tensor, optional): The score of the null neighbour, which takes
            part, and whose edges are left out. (default: :obj:`None`)
    """
    if null is not None:
        number = int(edge_index[0].max()) + 1  # A source that no target has.
        edges = _append_null(score, edge_index, num_targets, null, number)
        graph = candidate_graph(*edges, num_targets, options, generator=generator)
        keep = graph.edge_index[0] != number
        return SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])
    if options.replace and _is_matrix(score, edge_index[1], num_targets):
        weight = relaxed_weights(
            score.view(num_targets, -1),
            options.k,
            options.tau,
            hard=options.hard,
            generator=generator,
        )
        return SampledGraph(edge_index, weight.flatten())
    draws = options.num_races
    degree = torch.bincount(edge_index[1], minlength=num_targets)
    start = (degree.cumsum(0) - degree).repeat_interleave(draws)
    draw, edge = expand_ranges(start, degree.repeat_interleave(draws))
    time = arrival_times(
        edge.shape, dtype=score.dtype, device=score.device, generator=generator
    )
    value = score.index_select(0, edge) - time.log_()
    keep = value != -torch.inf
    if not options.replace:
        keep &= rank_in_group(value.detach(), draw) < options.k
    if not keep.all():
        edge, draw, value = edge[keep], draw[keep], value[keep]
    weight = softmax(value / options.tau, draw, num_nodes=num_targets * draws)
    if options.hard:
        chosen = torch.full_like(value, 1 / options.k)
        if options.replace:
            chosen = (rank_in_group(value.detach(), draw) == 0).to(value)
        weight = _StraightThrough.apply(chosen, weight)  # type: ignore[no-untyped-call]
    # Summed by the place of the edge: sorting all draws would take most of the time.
    total = torch.zeros_like(score).index_add(0, edge, weight / draws)
    drawn = torch.zeros_like(score, dtype=torch.bool).index_fill_(0, edge, True)
    if not drawn.all():
        edge_index, total = edge_index[:, drawn], total[drawn]
    return SampledGraph(edge_index, total)


class _StraightThrough(torch.autograd.Function):
    """One tensor with the gradient of another, and NaN where that has it.

    Not hard + soft - soft.detach(): that leaves rounding errors in the zeros.
    """

    @staticmethod
    def forward(ctx: Any, forward: Tensor, backward: Tensor) -> Tensor:
        return torch.where(backward.isnan(), backward, forward)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def _append_null(
    score: Tensor, edge_index: Tensor, num_targets: int, null: Tensor, number: int
) -> tuple[Tensor, Tensor]:
    """Append an edge from the null neighbour to each target that has candidates."""
    target = torch.bincount(edge_index[1], minlength=num_targets).nonzero().squeeze(1)
    edges = torch.stack([torch.full_like(target, number), target])
    edges = torch.cat([edge_index, edges], dim=1)
    score = torch.cat([score, null.to(score).expand(target.numel())])
    order = edges[1].argsort(stable=True)
    return score[order], edges[:, order]


def _is_matrix(score: Tensor, target: Tensor, num_targets: int) -> bool:
    """Return whether all targets have equally many candidates, none excluded."""
    if num_targets == 0 or target.numel() == 0 or target.numel() % num_targets:
        return False
    rows = target.view(num_targets, -1)
    number = torch.arange(num_targets, device=target.device).unsqueeze(1)
    return bool((rows == number).all() & torch.isfinite(score).all())


def nearest_candidates(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    k: int | None,
    tau: float,
    null: Tensor | None = None,
    rank: Tensor | None = None,
) -> SampledGraph:
    r"""Return the best candidates, :obj:`k` or all, with noise-free weights.

    Candidates are those of :func:`candidate_graph`, and are ordered by :obj:`rank`,
    the largest first, where scores may saturate. The share of a null neighbour is that
    among all candidates, and the neighbours have the rest.
    """
    keep = score != -torch.inf
    rank = (score if rank is None else rank).detach()[keep]
    score, edge_index = score[keep], edge_index[:, keep]
    if null is not None:
        args = score / tau, edge_index[1], null / tau, num_targets
        total = 1 - candidate_null_share(*args)
    if k is not None:
        near = rank_in_group(rank, edge_index[1]) < k
        score, edge_index = score[near], edge_index[:, near]
    weight = softmax(score / tau, edge_index[1], num_nodes=num_targets)
    if null is not None:
        weight = weight * total[edge_index[1]].to(weight.dtype)
    return SampledGraph(edge_index, weight)


def rank_in_group(value: Tensor, group: Tensor) -> Tensor:
    """Rank values inside their group, 0 for the largest; groups are sorted."""
    if value.numel() == 0:
        return group
    order = lexsort([-value, group])
    start = cumsum(torch.bincount(group))[group]
    rank = torch.empty_like(group)
    rank[order] = torch.arange(group.numel(), device=group.device)
    return rank - start
