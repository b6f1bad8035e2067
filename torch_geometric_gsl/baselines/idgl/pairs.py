"""Inner products of dense or sparse rows: the similarities of nodes.

They are symmetric. The strip of some rows therefore begins with their own columns: it
holds no pair whose mirror image stands in a strip before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.utils import cumsum, scatter

from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.ops.candidates import expand_ranges
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.ops.sparse_rows import unit_entries

#: Products of rows of this width take about twice the time of reading them.
WIDE = 64

Strips = Iterable[tuple[slice, Tensor]]


def inner(one: Tensor, two: Tensor) -> Tensor:
    """Return the inner product of two strips, together with their mirror images."""
    own = slice(one.size(0))
    twice = 2 * (one.flatten() @ two.flatten())
    return twice - (one[:, own] * two[:, own]).sum()


def symmetric_sum(h: Tensor, strips: Strips) -> Tensor:
    """Return the product of :math:`[w, n]` and a symmetric matrix."""
    out = torch.zeros_like(h)
    for rows, part in strips:
        out[:, rows.start :].addmm_(h[:, rows], part)
        out[:, rows].addmm_(h[:, rows.stop :], part[:, part.size(0) :].t())
    return out


def whole_columns(strips: Strips) -> Iterator[tuple[slice, Tensor]]:
    """Yield the columns of each strip's rows, from the first row to the last."""
    above: list[tuple[slice, Tensor]] = []
    for rows, part in strips:
        parts = [old[:, rows.start - r.start : rows.stop - r.start] for r, old in above]
        yield rows, torch.cat([*parts, part.t()])
        above.append((rows, part))


class DensePairs:
    """Inner products of dense rows, which receive gradients."""

    def __init__(self, rows: Tensor) -> None:
        self.input = rows
        #: Whether to keep products rather than to compute them anew.
        self.is_costly = rows.size(1) > WIDE

    def at(self, nodes: Tensor) -> DensePairs:
        """Return some of the rows."""
        return DensePairs(self.input[nodes])

    def products(self, sources: DensePairs) -> Tensor:
        """Return the products with other rows, for autograd."""
        return self.input @ sources.input.t()

    def strip(self, rows: slice) -> Tensor:
        """Return the products of some rows with all from them on, without gradient."""
        return self._long[:, rows].t() @ self._long[:, rows.start :]

    def gradient(self, strips: Strips) -> Tensor:
        """Return the gradient of the rows, given strips of that of their products.

        It is the gradient of a product and of its mirror image, which is symmetric.
        """
        return symmetric_sum(self._long, strips).t()

    def squares(self) -> Tensor:
        """Return the squared norms of the rows, for autograd."""
        return self.input.square().sum(dim=1)

    def column_sums(self, h: Tensor) -> Tensor:
        """Return the sums of rows of :math:`h`, weighted by columns, for autograd."""
        return self.input.t() @ h

    @cached_property
    def _long(self) -> Tensor:
        # Thin products take half the time where their long dimension is the last one.
        return self.input.detach().t().contiguous()


class SparsePairs:
    """Sums of the inner products of sparse rows, over heads of entries.

    The entries receive gradients; :obj:`places` lists their columns by row.
    """

    is_costly = True

    def __init__(self, places: Neighbours, values: Tensor) -> None:
        self.input = values
        self._places = places
        self._column, self._row = places.source.long(), places.target.long()
        self._num_rows = places.offsets.numel() - 1

    def at(self, nodes: Tensor) -> SparsePairs:
        offsets = self._places.offsets.long()
        counts = offsets.diff()[nodes]
        _, entry = expand_ranges(offsets[nodes], counts)
        width = self._places.num_sources
        places = Neighbours(self._column[entry], width, cumsum(counts))
        return SparsePairs(places, self.input[:, entry])

    def products(self, sources: SparsePairs) -> Tensor:
        every = slice(0, sources._num_rows)
        heads = zip(self.input, sources.input, strict=True)
        parts = [
            neighbour_sum(sources._dense(other, every), value, self._places)
            for value, other in heads
        ]
        return torch.stack(parts).sum(dim=0)

    def strip(self, rows: slice) -> Tensor:
        offsets = self._places.offsets[rows.start :]
        later = slice(int(offsets[0]), None)
        width = self._places.num_sources
        places = Neighbours(self._places.source[later], width, offsets - offsets[0])
        first, *others = (
            places.sum(self._dense(value, rows), value[later])
            for value in self.input.detach()
        )
        for part in others:
            first += part
        # In the order of memory of dense ones: elementwise functions of both are slow.
        return first.t().contiguous()

    def gradient(self, strips: Strips) -> Tensor:
        values = self.input.detach()
        out = torch.zeros_like(values)
        for rows, columns in whole_columns(strips):
            entries, place = self._entries(rows)
            for own, value in zip(out, values, strict=True):
                of_dense = self._places.sum_targets(columns, value)
                own[entries] = of_dense[place]
        return out

    def squares(self) -> Tensor:
        square = self.input.square().sum(dim=0)
        return scatter(square, self._row, 0, self._num_rows)

    def column_sums(self, h: Tensor) -> Tensor:
        place, rows = self._by_column
        return torch.cat([neighbour_sum(h, value[place], rows) for value in self.input])

    @cached_property
    def _by_column(self) -> tuple[Tensor, Neighbours]:
        """Return the entries of each column: their places, and their rows."""
        place, row, offsets = self._places.by_source
        return place, Neighbours(row, self._num_rows, offsets)

    def _entries(self, rows: slice) -> tuple[slice, tuple[Tensor, Tensor]]:
        """Return the entries of some rows, and their places in the dense form."""
        start, stop = self._places.offsets[[rows.start, rows.stop]].tolist()
        own = slice(start, stop)
        return own, (self._column[own], self._row[own] - rows.start)

    def _dense(self, value: Tensor, rows: slice) -> Tensor:
        """Return some rows with these entries, transposed and dense."""
        entries, place = self._entries(rows)
        size = self._places.num_sources, rows.stop - rows.start
        return value.new_zeros(size).index_put_(place, value[entries])


def unit_heads(x: Tensor, weight: Tensor) -> SparsePairs:
    """Compare sparse CSR features as the metric with these weights of heads does."""
    places = entries_by_row(x)
    weight = full_precision(weight)
    values = x.values().to(weight.dtype) * weight[:, x.col_indices()]
    heads = torch.stack([unit_entries(value, places) for value in values])
    return SparsePairs(places, heads / math.sqrt(weight.size(0)))


Pairs = DensePairs | SparsePairs
