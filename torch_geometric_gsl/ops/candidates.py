r"""Sampling among listed candidates: ragged rows, a flat list of edges."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, cumsum, lexsort, softmax

from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.gumbel import arrival_times, straight_through
from torch_geometric_gsl.ops.scorer import Law
from torch_geometric_gsl.typing import SampledGraph


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
    if not loop:
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    sorted_edges: Tensor = coalesce(edge_index, sort_by_row=False)
    return sorted_edges


def batch_candidates(batch_src: Tensor, batch_dst: Tensor, num_graphs: int) -> Tensor:
    r"""All pairs of a source and a target that lie in the same graph.

    Args:
        batch_src (torch.Tensor): Sorted graph ids of the sources.
        batch_dst (torch.Tensor): Sorted graph ids of the targets.
        num_graphs (int): The number of graphs.

    Example:
        >>> batch = torch.tensor([0, 0, 1])
        >>> batch_candidates(batch, batch, num_graphs=2)
        tensor([[0, 1, 0, 1, 2],
                [0, 0, 1, 1, 2]])
    """
    sizes = torch.bincount(batch_src, minlength=num_graphs)
    starts = cumsum(sizes)[:-1]
    degree = sizes[batch_dst]
    target = torch.arange(batch_dst.numel(), device=batch_dst.device)
    target = target.repeat_interleave(degree)
    position = torch.arange(target.numel(), device=target.device)
    position = position - cumsum(degree)[target]
    return torch.stack([starts[batch_dst[target]] + position, target])


@eager
def candidate_graph(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    law: Law,
    *,
    everything: bool = False,
    generator: torch.Generator | None = None,
) -> SampledGraph:
    r"""Samples a graph among listed candidates.

    The noise has the order (target, draw, candidate) of
    :func:`~torch_geometric_gsl.ops.stream.first_arrivals`, so that a batch of graphs
    gives the graphs that sampling them one by one gives.

    Args:
        score (torch.Tensor): One score per candidate edge :math:`[|E|]`;
            :math:`-\infty` excludes.
        edge_index (torch.Tensor): Candidate edges, sorted by target.
        num_targets (int): The number of targets.
        law (Law): How neighbours are drawn.
        everything (bool, optional): If :obj:`True`, all candidates carry weight, not
            only the first arrivals of each draw. (default: :obj:`False`)
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)
    """
    draws = law.k if law.replace else 1
    edge, draw = expand_draws(edge_index[1], num_targets, draws)
    time = arrival_times(
        edge.shape, dtype=score.dtype, device=score.device, generator=generator
    )
    value = score[edge] - time.log_()
    rank = rank_in_group(value.detach(), draw)
    keep = value != -torch.inf
    if not law.replace or not everything:
        keep &= rank < (law.num_arrivals if law.replace else law.k)
    edge, draw, value, rank = edge[keep], draw[keep], value[keep], rank[keep]
    weight = softmax(value / law.tau, draw, num_nodes=num_targets * draws)
    if law.hard:
        sure = (
            (rank == 0).to(weight)
            if law.replace
            else torch.full_like(weight, 1 / law.k)
        )
        weight = straight_through(sure, weight)
    return SampledGraph(
        *coalesce(edge_index[:, edge], weight / draws, sort_by_row=False)
    )


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
    position = torch.arange(draw.numel(), device=target.device)
    position = position - cumsum(degree_of_draw)[draw]
    return cumsum(degree)[draw // k] + position, draw


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
