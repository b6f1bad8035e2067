r"""Lists of pairs: candidates of targets, and weighted graphs, summed and described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, cumsum, lexsort, softmax

from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.typing import SampledGraph, plain_edges


class Candidates(NamedTuple):
    """The candidates of each target: a range of sources, or of a list of them.

    Candidate :math:`p` of the :obj:`size[i]` of target :math:`i` is the source
    :obj:`start[i] + p` (a graph of a batch), or with a list :obj:`source[start[i] + p]`
    (a CSR row).
    """

    start: Tensor
    size: Tensor
    source: Tensor | None = None

    @property
    def max_size(self) -> int:
        """Return the number of candidates of the target with the most."""
        return int(self.size.max()) if self.size.numel() else 0

    def at(self, rows: slice, position: Tensor) -> Tensor:
        r"""Return the sources at positions :math:`[|\mathrm{rows}|, q]` of targets."""
        index = self.start[rows].unsqueeze(1) + position
        return index if self.source is None else self.source[index]


def sort_candidates(edge_index: Tensor, *, loop: bool = True) -> Tensor:
    """Sort candidate edges by target and source, without duplicates.

    Sorted edges are returned unchanged; :obj:`loop` keeps self-loops.
    """
    edge_index = plain_edges(edge_index)
    if not loop:
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    source, target = edge_index.diff()
    if bool(((target > 0) | ((target == 0) & (source > 0))).all()):
        return edge_index  # Sorting takes much longer than this check.
    return coalesce(edge_index, sort_by_row=False)


def weighted_candidates(
    edge_index: Tensor, weight: Tensor, *, loop: bool = True
) -> tuple[Tensor, Tensor]:
    """Sort weighted candidate edges as :func:`sort_candidates` does.

    Non-negative weights of duplicate edges add up, and edges of weight zero are
    removed. Returns the logarithms of the weights.

    Example:
        >>> edge_index = torch.tensor([[2, 1, 2, 0], [0, 0, 0, 1]])
        >>> weighted_candidates(edge_index, torch.tensor([1.0, 1.0, 2.0, 0.0]))
        (tensor([[1, 2],
                [0, 0]]), tensor([0.0000, 1.0986]))
    """
    edge_index = plain_edges(edge_index)
    keep = weight > 0
    if not loop:
        keep &= edge_index[0] != edge_index[1]
    edge_index, weight = merge_edges(edge_index[:, keep], weight[keep])
    return edge_index, weight.log()


def merge_edges(edge_index: Tensor, weight: Tensor) -> SampledGraph:
    """Sort edges by target and then by source, and add up the weights of duplicates."""
    edge_index = plain_edges(edge_index)
    return SampledGraph(*coalesce(edge_index, weight, sort_by_row=False))


def expand_ranges(start: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate ranges: return the range and the value of each entry.

    Example:
        >>> expand_ranges(torch.tensor([5, 0]), torch.tensor([2, 1]))
        (tensor([0, 0, 1]), tensor([5, 6, 0]))
    """
    index = torch.arange(size.numel(), device=size.device).repeat_interleave(size)
    position = torch.arange(index.numel(), device=size.device)
    return index, position.add_((start - size.cumsum(0) + size)[index])


def rank_in_group(value: Tensor, group: Tensor) -> Tensor:
    """Rank values within their group, 0 for the largest; groups are sorted."""
    if value.numel() == 0:
        return group
    order = lexsort([-value, group])
    start = cumsum(torch.bincount(group))[group]
    rank = torch.empty_like(group)
    rank[order] = torch.arange(group.numel(), device=group.device)
    return rank - start


def list_candidates(candidates: Candidates, max_pairs: int) -> Iterator[Tensor]:
    """List the candidates of each target as edges, in blocks of targets.

    A block has at most :obj:`max_pairs` edges, unless it is a single target.
    """
    start, size, listed = candidates
    total = size.cumsum(0)
    num_edges = int(total[-1]) if total.numel() else 0
    num_done = 0
    while num_done < num_edges:
        limits = torch.tensor([num_done, num_done + max_pairs], device=total.device)
        # Start at the first target with candidates left.
        begin, stop = torch.searchsorted(total, limits, right=True).tolist()
        stop = min(max(stop, begin + 1), total.numel())
        target, position = expand_ranges(start[begin:stop], size[begin:stop])
        source = position if listed is None else listed[position]
        yield torch.stack([source, target + begin])
        num_done = int(total[stop - 1])


class Edges(NamedTuple):
    """A weighted graph, sorted for sums over its edges."""

    neighbours: Neighbours
    weight: Tensor

    def sum(self, h: Tensor) -> Tensor:
        """Sum the weighted messages of the sources of each target."""
        full = full_precision(h)
        weight = self.weight.to(full.dtype)
        return neighbour_sum(full, weight, self.neighbours).to(h.dtype)


def list_by_row(row: Tensor, column: Tensor, size: tuple[int, int]) -> Neighbours:
    """List the columns of each row, given pairs that are sorted by row."""
    counts = torch.bincount(row, minlength=size[0])
    return Neighbours(column, size[1], cumsum(counts))


def empty_graph(like: Tensor) -> SampledGraph:
    """Return a graph without edges."""
    edge_index = torch.empty(2, 0, dtype=torch.long, device=like.device)
    return SampledGraph(edge_index, like.new_empty(0))


class Spread(NamedTuple):
    """The spread of the weights of each target, in double precision: the entropies
    :math:`H` in nats, and the effective numbers of neighbours :math:`e^H`.
    """

    entropy: Tensor
    effective: Tensor


def weight_spread(target: Tensor, weight: Tensor, num_targets: int) -> Spread:
    r"""Compute the spread of listed non-negative weights.

    .. math::
        H_i = - \sum_j p_{ij} \log p_{ij}, \qquad
        p_{ij} = \frac{w_{ij}}{\sum_l w_{il}}

    where :math:`e^{H_i}` is :math:`k` for :math:`k` equal weights and tends to 1 if
    one weight dominates. Targets without positive weights have the entropy 0 and 0
    neighbours.

    Example:
        >>> target, weight = torch.tensor([0, 0, 1]), torch.tensor([0.5, 0.5, 2.0])
        >>> weight_spread(target, weight, num_targets=3).effective.tolist()
        [2.0, 1.0, 0.0]
    """
    weight = weight.double()
    total = weight.new_zeros(num_targets).index_add(0, target, weight)
    share = weight / total.masked_fill(total == 0, 1)[target]
    surprise = torch.special.entr(share)
    entropy = torch.zeros_like(total).index_add(0, target, surprise)
    return Spread(entropy, entropy.exp().masked_fill(total == 0, 0))


def candidate_null_share(
    score: Tensor, target: Tensor, null: Tensor, num_targets: int
) -> Tensor:
    """Compute the probability of the null neighbour among listed candidates."""
    targets = torch.arange(num_targets, device=target.device)
    score = torch.cat([score.double(), null.double().expand(num_targets)])
    share = softmax(score, torch.cat([target, targets]), num_nodes=num_targets)
    return share[-num_targets:] if num_targets else share


def same_label_share(
    edge_index: Tensor, weight: Tensor, y_src: Tensor, y_dst: Tensor
) -> float:
    r"""Compute the share of the weight between nodes with equal labels.

    .. math::
        \frac{\sum_{(j, i) \in E} w_{ij} \, [y_j = y_i]}{\sum_{(j, i) \in E} w_{ij}}

    It is :obj:`nan` without positive weights.

    Example:
        >>> y = torch.tensor([0, 0, 1])
        >>> edge_index = torch.tensor([[1, 2], [0, 0]])
        >>> same_label_share(edge_index, torch.tensor([3.0, 1.0]), y, y)
        0.75
    """
    same = y_src[edge_index[0]] == y_dst[edge_index[1]]
    weight = weight.double()
    return float(weight[same].sum() / weight.sum())


def chance_share(y_src: Tensor, y_dst: Tensor | None = None) -> float:
    """Compute the share of pairs of sources and targets with equal labels.

    Without :obj:`y_dst` the targets are the sources, without self-pairs. The share is
    :obj:`nan` without pairs.
    """
    num_loops = y_src.numel() if y_dst is None else 0
    y_dst = y_src if y_dst is None else y_dst
    label = torch.cat([y_src, y_dst]).unique(return_inverse=True)[1]
    src_label, dst_label = label.split([y_src.numel(), y_dst.numel()])
    src_count = torch.bincount(src_label, minlength=label.numel()).double()
    dst_count = torch.bincount(dst_label, minlength=label.numel()).double()
    num_pairs = y_src.numel() * y_dst.numel() - num_loops
    num_same = float(src_count @ dst_count) - num_loops
    return num_same / num_pairs if num_pairs else float('nan')
