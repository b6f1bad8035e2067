r"""Sampling among listed candidates: ragged rows, a flat list of edges."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, cumsum, lexsort, softmax

from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.gumbel import arrival_times, straight_through
from torch_geometric_gsl.ops.relaxed import relaxed_weights
from torch_geometric_gsl.ops.scorer import Candidates, Law
from torch_geometric_gsl.typing import SampledGraph, plain_edges


def sort_candidates(edge_index: Tensor, *, loop: bool = True) -> Tensor:
    r"""Orders candidate edges by target, without duplicates.

    Args:
        edge_index (torch.Tensor): Candidate edges :math:`[2, |E|]`.
        loop (bool, optional): If :obj:`False`, self-loops are removed.
            (default: :obj:`True`)

    Example:
        >>> sort_candidates(torch.tensor([[2, 0, 0], [1, 1, 0]]), loop=False)
        tensor([[0, 2],
                [1, 1]])
    """
    edge_index = plain_edges(edge_index)
    if not loop:
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    sorted_edges: Tensor = coalesce(edge_index, sort_by_row=False)
    return sorted_edges


def list_candidates(sets: Candidates, max_pairs: int) -> Iterator[Tensor]:
    r"""Lists the candidates of each target as edges, by blocks of targets.

    Args:
        sets (Candidates): The candidates.
        max_pairs (int): The number of edges that a block may have, unless it is a
            single target.

    Example:
        >>> sets = Candidates(torch.tensor([0, 0, 2]), torch.tensor([2, 2, 1]))
        >>> next(list_candidates(sets, max_pairs=100))
        tensor([[0, 1, 0, 1, 2],
                [0, 0, 1, 1, 2]])
    """
    total = sets.size.cumsum(0)
    listed, num_edges = 0, int(total[-1]) if total.numel() else 0
    while listed < num_edges:
        limits = torch.tensor([listed, listed + max_pairs], device=total.device)
        # From the first target that has candidates left.
        first, stop = torch.searchsorted(total, limits, right=True).tolist()
        stop = min(max(stop, first + 1), total.numel())
        target = torch.arange(first, stop, device=total.device)
        degree = sets.size[first:stop]
        target = target.repeat_interleave(degree)
        place = torch.arange(target.numel(), device=total.device)
        shift = sets.start[first:stop] - total[first:stop] + degree + listed
        place += shift.repeat_interleave(degree)
        yield torch.stack(
            [place if sets.listed is None else sets.listed[place], target]
        )
        listed = int(total[stop - 1])


@eager
def candidate_graph(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    law: Law,
    *,
    generator: torch.Generator | None = None,
) -> SampledGraph:
    r"""Samples a graph among listed candidates.

    All of them are drawn. The noise has the order (target, draw, candidate) of
    :func:`~torch_geometric_gsl.ops.relaxed.relaxed_weights`, so that one seed gives the
    weights of the definition.

    Args:
        score (torch.Tensor): One score per candidate edge :math:`[|E|]`;
            :math:`-\infty` excludes.
        edge_index (torch.Tensor): Candidate edges, sorted by target.
        num_targets (int): The number of targets.
        law (Law): How neighbours are drawn.
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)
    """
    if law.replace and _is_matrix(score, edge_index[1], num_targets):
        weight = relaxed_weights(
            score.view(num_targets, -1),
            law.k,
            law.tau,
            hard=law.hard,
            generator=generator,
        )
        return SampledGraph(*coalesce(edge_index, weight.flatten(), sort_by_row=False))
    draws = law.draws
    edge, draw = expand_draws(edge_index[1], num_targets, draws)
    time = arrival_times(
        edge.shape, dtype=score.dtype, device=score.device, generator=generator
    )
    value = score.index_select(0, edge) - time.log_()
    keep = value != -torch.inf
    if not law.replace:
        keep &= rank_in_group(value.detach(), draw) < law.k
    if not keep.all():
        edge, draw, value = edge[keep], draw[keep], value[keep]
    weight = softmax(value / law.tau, draw, num_nodes=num_targets * draws)
    if law.hard:
        weight = straight_through(_sure(value.detach(), draw, law), weight)
    # Summed by the place of the edge: sorting all draws would take most of the time.
    total = torch.zeros_like(score).index_add(0, edge, weight / draws)
    drawn = torch.zeros_like(score, dtype=torch.bool).index_fill_(0, edge, True)
    if not drawn.all():
        edge_index, total = edge_index[:, drawn], total[drawn]
    return SampledGraph(*coalesce(edge_index, total, sort_by_row=False))


def _is_matrix(score: Tensor, target: Tensor, num_targets: int) -> bool:
    """Whether all targets have the same number of candidates, and none is excluded."""
    if num_targets == 0 or target.numel() == 0 or target.numel() % num_targets:
        return False
    rows = target.view(num_targets, -1)
    number = torch.arange(num_targets, device=target.device).unsqueeze(1)
    return bool((rows == number).all() & torch.isfinite(score).all())


def _sure(value: Tensor, draw: Tensor, law: Law) -> Tensor:
    """The weights of a choice without relaxation."""
    if not law.replace:
        return torch.full_like(value, 1 / law.k)
    return (rank_in_group(value, draw) == 0).to(value)


def nearest_candidates(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    k: int | None,
    tau: float,
) -> SampledGraph:
    r"""The largest scores among listed candidates, with noise-free weights.

    Args:
        score (torch.Tensor): One score per candidate edge :math:`[|E|]`;
            :math:`-\infty` excludes.
        edge_index (torch.Tensor): Candidate edges, sorted by target.
        num_targets (int): The number of targets.
        k (int or None): The number of neighbours, or :obj:`None` for all.
        tau (float): The temperature: weights are
            :math:`\mathrm{softmax}_j(s_{ij} / \tau)` among the neighbours.
    """
    keep = score != -torch.inf
    if k is not None:
        keep &= rank_in_group(score.detach(), edge_index[1]) < k
    score, edge_index = score[keep], edge_index[:, keep]
    weight = softmax(score / tau, edge_index[1], num_nodes=num_targets)
    return SampledGraph(edge_index, weight)


def expand_draws(target: Tensor, num_targets: int, k: int) -> tuple[Tensor, Tensor]:
    r"""Repeats each target's run of candidates :obj:`k` times.

    Returns:
        tuple[torch.Tensor, torch.Tensor]: For each (target, draw, candidate) the
        index of the candidate edge and that of the draw, :math:`i K + k`.
    """
    degree = torch.bincount(target, minlength=num_targets)
    degree_of_draw = degree.repeat_interleave(k)
    num_draws = torch.arange(num_targets * k, device=target.device)
    draw = num_draws.repeat_interleave(degree_of_draw)
    edge = torch.arange(draw.numel(), device=target.device)
    # From the first place of a draw to the first candidate of its target.
    shift = cumsum(degree)[:-1].repeat_interleave(k) - cumsum(degree_of_draw)[:-1]
    return edge.add_(shift[draw]), draw


def rank_in_group(value: Tensor, group: Tensor) -> Tensor:
    r"""Ranks values inside their (sorted) group, 0 for the largest.

    Example:
        >>> rank_in_group(torch.tensor([1.0, 3.0, 2.0, 5.0]),
        ...               torch.tensor([0, 0, 0, 1]))
        tensor([2, 0, 1, 0])
    """
    if value.numel() == 0:
        return group
    order = lexsort([-value, group])
    start = cumsum(torch.bincount(group))[group]
    rank = torch.empty_like(group)
    rank[order] = torch.arange(group.numel(), device=group.device)
    return rank - start
