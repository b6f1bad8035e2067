"""Inner products of dense or sparse rows, by tiles: the similarities of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import cumsum, scatter

from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    full_precision,
    row_blocks,
    rows_per_block,
)

#: Bytes of a tile on a CPU, for each thread: it stays in the cache of the processor.
TILE = 2**20
#: Products of rows of this width take about twice the time of reading them.
WIDE = 64


class Tile(NamedTuple):
    """A part of the matrix of all nodes (rows) and their sources (columns).

    Args:
        rows (slice): The rows.
        columns (slice): The columns.
        is_diagonal (bool): Whether it is its own mirror image.
        times (int): How often it stands in the matrix: twice, if with a mirror image.
    """

    rows: slice
    columns: slice
    is_diagonal: bool
    times: int


Parts = Iterable[tuple[Tile, Tensor]]


def make_tiles(num_nodes: int, num_anchors: int | None, like: Tensor) -> list[Tile]:
    """Cut a matrix of nodes and anchors, or half of a symmetric one, into tiles.

    Args:
        num_nodes (int): The number of nodes.
        num_anchors (int or None): The number of anchors; all nodes if :obj:`None`.
        like (torch.Tensor): Tells device and dtype.
    """
    is_cpu = like.device.type == 'cpu'
    budget = TILE * torch.get_num_threads() if is_cpu else MEMORY_BUDGET
    count = rows_per_block(like.element_size(), budget)
    if num_anchors is not None:
        every = slice(0, num_anchors)
        blocks = some_blocks(num_nodes, num_anchors, count)
        return [Tile(rows, every, is_diagonal=False, times=1) for rows in blocks]
    own = some_blocks(num_nodes, 1, math.isqrt(count))
    return [
        Tile(rows, columns, rows is columns, 1 if rows is columns else 2)
        for place, columns in enumerate(own)
        for rows in own[place:]
    ]


def some_blocks(
    num_rows: int, bytes_per_row: int, budget: int = MEMORY_BUDGET
) -> list[slice]:
    """Return the blocks of :func:`row_blocks`; of no rows, one that is empty."""
    return list(row_blocks(num_rows, bytes_per_row, budget)) or [slice(0, 0)]


def symmetric_sum(h: Tensor, parts: Parts) -> Tensor:
    """Multiply :math:`[w, n]` by a symmetric matrix, given by its lower half."""
    out = torch.zeros_like(h)
    for tile, part in parts:
        out[:, tile.columns].addmm_(h[:, tile.rows], part)
        if not tile.is_diagonal:
            out[:, tile.rows].addmm_(h[:, tile.columns], part.t())
    return out


class DensePairs:
    """Inner products of dense rows.

    Args:
        rows (torch.Tensor): The rows.
        anchors (torch.Tensor or None): The rows that are sources; all if :obj:`None`.
    """

    def __init__(self, rows: Tensor, anchors: Tensor | None) -> None:
        #: What receives gradients.
        self.inputs = (rows,) if anchors is None else (rows, rows[anchors])
        #: Whether to keep products rather than to compute them anew.
        self.is_costly = rows.size(1) > WIDE
        # Thin products take half the time where their long dimension is the last one.
        self._long = [value.detach().t().contiguous() for value in self.inputs]

    def products(self, tile: Tile) -> Tensor:
        """Return the products of a tile, without gradient."""
        own, sources = self._long[0], self._long[-1]
        return own[:, tile.rows].t() @ sources[:, tile.columns]

    def gradient(self, parts: Parts) -> tuple[Tensor, ...]:
        """Return the gradients of the inputs, from those of the tiles.

        In a symmetric matrix the latter are those of an entry and of its mirror image.
        """
        if len(self._long) == 1:
            return (symmetric_sum(self._long[0], parts).t(),)
        own, sources = self._long
        of_own, of_sources = torch.zeros_like(own), torch.zeros_like(sources)
        for tile, part in parts:
            of_own[:, tile.rows] = sources @ part.t()
            of_sources.addmm_(own[:, tile.rows], part)
        return of_own.t(), of_sources.t()

    def rows(self, blocks: list[slice]) -> Iterator[Tensor]:
        """Return the products of blocks of rows with all sources, for autograd."""
        sources = self.inputs[-1].t()
        return (self.inputs[0][rows] @ sources for rows in blocks)

    def among_sources(self) -> Tensor:
        """Return the products of the sources with each other, for autograd."""
        return self.inputs[-1] @ self.inputs[-1].t()

    def squares(self) -> Tensor:
        """Return the squared norms of the sources, for autograd."""
        return self.inputs[-1].square().sum(dim=1)

    def column_sums(self, h: Tensor) -> Tensor:
        """Return the sums of rows of :math:`h`, weighted by columns, for autograd."""
        return self.inputs[0].t() @ h


class SparsePairs:
    """Sums of the inner products of sparse rows, over heads of entries.

    Args:
        x (torch.Tensor): Sparse CSR features, which tell where the entries stand.
        values (torch.Tensor): The entries, one row for each head.
        anchors (torch.Tensor or None): The rows that are sources; all if :obj:`None`.
    """

    is_costly = True

    def __init__(self, x: Tensor, values: Tensor, anchors: Tensor | None) -> None:
        self.inputs = (values,)
        self._values = values.detach()
        self._anchors = anchors
        self._places = entries_by_row(x)
        self._column = self._places.source.long()
        self._row = self._places.target.long()
        self._num_nodes = x.size(0)
        self._num_sources = x.size(0) if anchors is None else anchors.numel()
        self._found: tuple[slice, Tensor] | None = None

    def products(self, tile: Tile) -> Tensor:
        # The tiles of some columns follow each other.
        first = 0 if self._anchors is not None else tile.columns.start
        if self._found is None or self._found[0] != tile.columns:
            self._found = tile.columns, self._below(first, tile.columns)
        return self._found[1][tile.rows.start - first : tile.rows.stop - first]

    def gradient(self, parts: Parts) -> tuple[Tensor, ...]:
        out = torch.zeros_like(self._values)
        for columns, part in self._columns(parts):
            entry, place = self._entries(columns)
            for own, value in zip(out, self._values, strict=True):
                if self._anchors is not None:
                    own += self._places.dots(part, self._dense(value, columns))
                of_dense = self._places.sum_targets(part, value)
                own[entry] += of_dense[self._column[entry], place]
        return (out,)

    def rows(self, blocks: list[slice]) -> Iterator[Tensor]:
        every = slice(0, self._num_sources)
        heads = [
            neighbour_sum(self._dense(value, every), value, self._places)
            for value in self.inputs[0]
        ]
        total = sum(heads[1:], heads[0])
        return (total[rows] for rows in blocks)

    def among_sources(self) -> Tensor:
        every = slice(0, self._num_sources)
        entry, place = self._entries(every)
        ordered, order = place.sort()
        entry = entry[order]
        offsets = cumsum(torch.bincount(ordered, minlength=self._num_sources))
        places = Neighbours(self._column[entry], self._places.num_sources, offsets)
        heads = [
            neighbour_sum(self._dense(value, every), value[entry], places)
            for value in self.inputs[0]
        ]
        return sum(heads[1:], heads[0])

    def squares(self) -> Tensor:
        square = self.inputs[0].square().sum(dim=0)
        total = scatter(square, self._row, 0, self._num_nodes)
        return total if self._anchors is None else total[self._anchors]

    def column_sums(self, h: Tensor) -> Tensor:
        place, rows = self._by_column
        heads = [neighbour_sum(h, value[place], rows) for value in self.inputs[0]]
        return torch.cat(heads)

    @cached_property
    def _by_column(self) -> tuple[Tensor, Neighbours]:
        """The entries of each column: their places, and their rows."""
        place, row, offsets = self._places.by_source
        return place, Neighbours(row, self._num_nodes, offsets)

    def _below(self, first: int, columns: slice) -> Tensor:
        """Return the products of all rows from the first one on."""
        offsets = self._places.offsets[first:]
        start = int(offsets[0])
        source, width = self._places.source[start:], self._places.num_sources
        places = Neighbours(source, width, offsets - start)
        heads = [
            places.sum(self._dense(value, columns), value[start:])
            for value in self._values
        ]
        return sum(heads[1:], heads[0])

    def _columns(self, parts: Parts) -> Iterator[tuple[slice, Tensor]]:
        """Yield all rows of some columns, of tiles and of their mirror images."""
        found: dict[int, list[Tensor]] = {}
        columns = {}
        for tile, part in parts:
            columns[tile.columns.start] = tile.columns
            found.setdefault(tile.columns.start, []).append(part)
            if self._anchors is None and not tile.is_diagonal:
                found.setdefault(tile.rows.start, []).append(part.t())
        for start, own in found.items():
            yield columns[start], torch.cat(own)

    def _entries(self, columns: slice) -> tuple[Tensor, Tensor]:
        """Return the entries of sources, and the columns of their tile."""
        if self._anchors is None:
            first, last = self._places.offsets[[columns.start, columns.stop]].tolist()
            entry = torch.arange(first, last, device=self._row.device)
            return entry, self._row[entry] - columns.start
        place = self._row.new_full((self._num_nodes,), -1)
        every = torch.arange(self._num_sources, device=place.device)
        place = place.index_put((self._anchors,), every)[self._row]
        (entry,) = (place >= 0).nonzero(as_tuple=True)
        return entry, place[entry]

    def _dense(self, value: Tensor, columns: slice) -> Tensor:
        """Return the rows of sources with these entries, transposed and dense."""
        entry, place = self._entries(columns)
        size = self._places.num_sources, columns.stop - columns.start
        index = self._column[entry], place
        return value.new_zeros(size).index_put_(index, value[entry])


def unit_heads(x: Tensor, weight: Tensor) -> Tensor:
    """Return the entries of the weighted rows of each head, as the metric embeds them.

    Args:
        x (torch.Tensor): Sparse CSR features.
        weight (torch.Tensor): The weights of the heads.
    """
    weight = full_precision(weight)
    row, num_nodes = entries_by_row(x).target.long(), x.size(0)
    values = x.values().to(weight.dtype) * weight[:, x.col_indices()]
    # As in `scores.unit_rows`: neither tiny nor huge rows underflow or overflow.
    largest = scatter(values.detach().abs(), row, 1, num_nodes, reduce='max')
    values = values / largest.masked_fill(largest == 0, 1)[:, row]
    square = scatter(values.square(), row, 1, num_nodes)
    norm = square.masked_fill(square == 0, 1).sqrt() * math.sqrt(weight.size(0))
    return values / norm[:, row]


Pairs = DensePairs | SparsePairs
