r"""Graphs and weighted sums of drawn neighbours, from arrivals and tails."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import coalesce

from torch_geometric_gsl.ops.edges import Edges, list_by_row
from torch_geometric_gsl.ops.neighbours import Neighbours, gather, neighbour_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions, relax
from torch_geometric_gsl.ops.runtime import full_precision, recomputed
from torch_geometric_gsl.ops.sparse_rows import SparseRows
from torch_geometric_gsl.ops.tail import Tail, mask_tail, tail_scores, ungroup
from torch_geometric_gsl.typing import SampledGraph

# Up to this number of blocks of the tail, the inputs of scores are kept.
_KEPT_BLOCKS = 4


def drawn_graph(
    pairs: PairScores, arrivals: Arrivals, tail: Tail | None, options: DrawOptions
) -> SampledGraph:
    """Return the graph of the arrivals and of the tail.

    Only the scores of these pairs are recomputed with gradients.
    """
    source = arrivals.source.flatten(1)
    score = pairs.listed(source).view_as(arrivals.source)
    listed = arrivals.noise.flatten(1) > -torch.inf
    if tail is None:
        weight, _ = relax(score, arrivals, options, null=pairs.null)
        if pairs.null is not None and not options.replace:
            listed &= weight.flatten(1) != 0  # The null neighbour arrived.
        return neighbour_graph(source, weight.flatten(1), listed)
    late_score = tail_scores(pairs, tail, arrivals)
    weights = relax(score, arrivals, options, late_score, tail.log_share, pairs.null)
    late = ungroup(tail.source, tail.group, source.size(0))
    is_late = late_score.flatten(1) != -torch.inf  # NaN stays visible.
    return neighbour_graph(
        torch.cat([source, late], dim=1),
        torch.cat([weight.flatten(1) for weight in weights], dim=1),
        torch.cat([listed, is_late], dim=1),
    )


def drawn_sum(
    h: Tensor,
    pairs: PairScores,
    arrivals: Arrivals,
    tail: Tail | None,
    options: DrawOptions,
) -> Tensor:
    """Sum messages over the graph of :func:`drawn_graph` without listing its edges.

    All sources are candidates; messages are :math:`[N, m]`.
    """
    full = full_precision(h)
    source = arrivals.source.flatten(1)
    listed_tail = tail if tail is not None and tail.group == 1 else None
    if listed_tail is not None:  # Each target also lists its tail.
        source = torch.cat([source, listed_tail.source], dim=1)
    neighbours = Neighbours(source, pairs.src.size(0), memory=pairs.memory)
    value = pairs.compare(slice(None), neighbours)
    if tail is not None and listed_tail is None:
        weight, late = _relax_all(full, value, pairs, arrivals, tail, options)
        return (neighbour_sum(full, weight, neighbours) + late).to(h.dtype)
    score = pairs.respond(slice(None), value)
    late_score = None
    if listed_tail is not None:
        sizes = [arrivals.source[0].numel(), listed_tail.source.size(1)]
        score, late_score = score.split(sizes, dim=1)
        late_score = mask_tail(pairs, listed_tail, arrivals, late_score)
    share = None if listed_tail is None else listed_tail.log_share
    score = score.view_as(arrivals.source)
    weights = relax(score, arrivals, options, late_score, share, pairs.null)
    weight = torch.cat([weight.flatten(1) for weight in weights], dim=1)
    return neighbour_sum(full, weight.to(full), neighbours).to(h.dtype)


def _relax_all(
    h: Tensor,
    value: Tensor,
    pairs: PairScores,
    arrivals: Arrivals,
    tail: Tail,
    options: DrawOptions,
) -> tuple[Tensor, Tensor]:
    """Return the weights of the arrivals, and the sums over the tail, by blocks."""
    # Sources of tails are gathered once for all blocks, unless they are sparse.
    late_h = gather(h, tail.source)
    is_sparse = isinstance(pairs.src, SparseRows)
    late_src = tail.source if is_sparse else gather(pairs.src, tail.source)
    bytes_per_row = 8 * (value.size(1) + late_h.size(1)) * value.element_size()
    # A block has whole groups.
    step = max(1, pairs.memory // (tail.group * bytes_per_row)) * tail.group
    num_rows = value.size(0)
    score_block = _block_scores
    blocks = [(value, pairs, arrivals, tail, late_src, late_h)]
    if step < num_rows:
        sizes = [min(step, num_rows - start) for start in range(0, num_rows, step)]
        groups = [-(-size // tail.group) for size in sizes]
        tails = (tail._replace(source=source) for source in tail.source.split(groups))
        late = late_src.split(groups), late_h.split(groups)
        drawn = value.split(sizes), pairs.split(sizes), arrivals.split(sizes)
        blocks = [*zip(*drawn, tails, *late, strict=True)]
        if torch.is_grad_enabled() and len(blocks) > _KEPT_BLOCKS:
            # The inputs of the scores are recomputed in the backward pass.
            score_block = recomputed(_block_scores)
    weights = []
    sums = []
    for value, pairs, arrivals, tail, late_src, late_h in blocks:
        scores = score_block(value, pairs, arrivals, tail, late_src)
        weight, late_weight = relax(
            scores[0], arrivals, options, scores[1], tail.log_share, pairs.null
        )
        weights.append(weight.flatten(1).to(h))
        sums.append(_group_sum(late_weight.flatten(1), late_h, tail.group))
    return torch.cat(weights), torch.cat(sums)


def _block_scores(
    value: Tensor, pairs: PairScores, arrivals: Arrivals, tail: Tail, late_src: Tensor
) -> tuple[Tensor, Tensor]:
    """Score the arrivals and the tail of a block."""
    score = pairs.respond(slice(None), value).view_as(arrivals.source)
    return score, tail_scores(pairs, tail, arrivals, late_src)


def _group_sum(weight: Tensor, h: Tensor, group: int) -> Tensor:
    """Return weighted sums [n, m] of the sources [B, S, m] of each group of targets."""
    missing = h.size(0) * group - weight.size(0)
    weight = weight.to(h)
    if missing > 0:
        weight = F.pad(weight, (0, 0, 0, missing))
    total: Tensor = (weight.unflatten(0, (-1, group)) @ h).flatten(0, 1)
    return total[: total.size(0) - missing]


def weighted_sum(
    h: Tensor, edge_index: Tensor, edge_weight: Tensor, num_targets: int
) -> Tensor:
    r"""Sum the sources of each target, :math:`\sum_j A_{ij} h_j`; edges are sorted.

    The gathered messages of shape :math:`[|E|, m]` are never formed.
    """
    source, target = edge_index
    neighbours = list_by_row(target, source, (num_targets, h.size(0)))
    return Edges(neighbours, edge_weight).sum(h)


def neighbour_graph(
    source: Tensor, weight: Tensor, listed: Tensor | None = None
) -> SampledGraph:
    """List the sources [n, q] of each target as edges; weights of duplicates add up.

    Excludes sources that are not :obj:`listed`.

    Example:
        >>> neighbour_graph(torch.tensor([[1, 1]]), torch.tensor([[0.5, 0.5]]))
        SampledGraph(edge_index=[2, 1], edge_weight=[1], edges_per_target=1.0)
    """
    target = torch.arange(source.size(0), device=source.device)
    edges = torch.stack([source, target.unsqueeze(1).expand_as(source)])
    if listed is not None:
        edges, weight = edges[:, listed], weight[listed]
    return SampledGraph(
        *coalesce(edges.flatten(1), weight.flatten(), sort_by_row=False)
    )
