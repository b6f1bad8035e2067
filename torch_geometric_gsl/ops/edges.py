r"""Lists of pairs: candidates of targets, and graphs that layers sum over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, cumsum

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
    def most(self) -> int:
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
        first, stop = torch.searchsorted(total, limits, right=True).tolist()
        stop = min(max(stop, first + 1), total.numel())
        target, position = expand_ranges(start[first:stop], size[first:stop])
        source = position if listed is None else listed[position]
        yield torch.stack([source, target + first])
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
