r"""Sparse rows as embeddings: constants, compared without a projection."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor
from torch_geometric.utils import cumsum

from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.ops.edges import expand_ranges
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, full_precision, row_blocks

# Bytes per entry of a listed source during multiplication.
_BYTES_PER_ENTRY = 48


class SparseRows:
    """Sparse rows that replace a dense tensor of embeddings.

    Rows are indexed as in a tensor, and get no gradient. They hold the entries
    :obj:`value` and their columns by row.

    Example:
        >>> x = torch.tensor([[3.0, 4.0], [0.0, 2.0]]).to_sparse_csr()
        >>> rows = SparseRows.unit(x)
        >>> rows.dots(rows)
        tensor([[1.0000, 0.8000],
                [0.8000, 1.0000]])
    """

    def __init__(self, value: Tensor, words: Neighbours) -> None:
        self.value = value
        self.words = words
        self.dtype = value.dtype
        self.device = value.device
        self.element_size = value.element_size
        self.new_empty = value.new_empty
        self.new_zeros = value.new_zeros
        self.new_full = value.new_full

    @classmethod
    def unit(cls, x: Tensor) -> SparseRows:
        """Scale sparse CSR features to unit rows; rows without entries stay zero."""
        words = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
        return cls(unit_entries(x.values(), words), words)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return self.words.offsets.numel() - 1, self.words.num_sources

    def size(self, dim: int) -> int:
        """Return the number of rows or columns."""
        return self.shape[dim]

    def detach(self) -> SparseRows:
        """Return the rows, which have no gradient."""
        return self

    def float(self) -> SparseRows:
        """Return the rows in single precision."""
        return SparseRows(self.value.float(), self.words)

    def clone(self) -> SparseRows:
        """Return an independent copy."""
        offsets = self.words.offsets.clone()
        words = Neighbours(self.words.source.clone(), self.size(1), offsets)
        return SparseRows(self.value.clone(), words)

    def __getitem__(self, index: slice | Tensor) -> SparseRows:
        """Return some rows."""
        offsets = self.words.offsets
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.size(0))
            offsets = offsets[start : max(start, stop) + 1]
            entries: slice | Tensor = slice(int(offsets[0]), int(offsets[-1]))
            offsets = offsets - offsets[0]
        else:
            count = offsets.diff()[index].long()
            _, entries = expand_ranges(offsets[index].long(), count)
            offsets = cumsum(count)
        words = Neighbours(self.words.source[entries], self.size(1), offsets)
        return SparseRows(self.value[entries], words)

    def split(self, sizes: list[int]) -> list[SparseRows]:
        """Return blocks of rows."""
        offsets = cumsum(torch.tensor(sizes)).tolist()
        return [self[start:stop] for start, stop in pairwise(offsets)]

    def __matmul__(self, weight: Tensor) -> Tensor:
        r"""Multiply by a vector or a matrix, with gradients to it."""
        columns = weight.unsqueeze(1) if weight.dim() == 1 else weight
        out = neighbour_sum(columns.contiguous(), self.value, self.words)
        return out.squeeze(1) if weight.dim() == 1 else out

    def norm(self) -> Tensor:
        """Compute the 2-norms of the rows."""
        square = self.value.new_zeros(self.size(0))
        return square.index_add(0, self.words.target.long(), self.value.square()).sqrt()

    def equals(self, rows: SparseRows) -> bool:
        """Return whether the rows and their order of entries are the same."""
        return self is rows or (
            self.shape == rows.shape
            and torch.equal(self.words.offsets, rows.words.offsets)
            and torch.equal(self.words.source, rows.words.source)
            and torch.equal(self.value, rows.value)
        )

    def dots(self, src: SparseRows) -> Tensor:
        """Compute the inner products with all rows of others, :math:`[n, N]`."""
        out = self.new_empty(self.size(0), src.size(0))
        bytes_per_row = sum(src.shape) * self.element_size()
        for rows in row_blocks(self.size(0), bytes_per_row, MEMORY_BUDGET):
            # Rows are read faster than columns.
            dense = self[rows]._dense().t().contiguous()
            out[rows] = src.words.sum(dense, src.value).t()
        return out

    def pair_dots(self, src: SparseRows, neighbours: Neighbours) -> Tensor:
        """Compute the inner products with listed rows of others.

        Blocks of rows become dense; the others are read entry by entry.
        """
        source = neighbours.source.flatten().long()
        target = neighbours.target
        offsets = src.words.offsets.long()
        width = self.size(1)
        count = offsets.diff()
        out = self.new_zeros(source.numel())
        memory = neighbours.memory
        bytes_per_row = 2 * width * self.element_size()
        for rows in row_blocks(self.size(0), bytes_per_row, memory):
            dense = self[rows]._dense().view(-1, 1)
            start, stop = neighbours.offsets[[rows.start, rows.stop]].tolist()
            for block in _entry_blocks(count[source[start:stop]], memory):
                pairs = slice(start + block.start, start + block.stop)
                size = count[source[pairs]]
                pair, entries = expand_ranges(offsets[source[pairs]], size)
                begin = (target[pairs].long() - rows.start) * width
                listed = Neighbours(
                    begin[pair] + src.words.source[entries], dense.size(0), cumsum(size)
                )
                out[pairs] = listed.sum(dense, src.value[entries]).squeeze(1)
        return out.view(neighbours.source.shape)

    def _dense(self) -> Tensor:
        dense = self.new_zeros(self.shape)
        dense[self.words.target.long(), self.words.source.long()] = self.value
        return dense


def _entry_blocks(count: Tensor, memory: int) -> Iterator[slice]:
    """Yield blocks of pairs whose entries fit into the memory budget."""
    size = max(1, memory // _BYTES_PER_ENTRY)
    # One more entry per pair: pairs without entries take memory as well.
    ends = (count + 1).cumsum(0)
    total = int(ends[-1]) if ends.numel() else 0
    marks = torch.arange(size, total + size, size, device=count.device)
    start = 0
    for stop in torch.searchsorted(ends, marks, right=True).tolist():
        stop = min(max(stop, start + 1), count.numel())
        if stop > start:
            yield slice(start, stop)
        start = stop


def unit_entries(value: Tensor, words: Neighbours) -> Tensor:
    """Scale the entries of each row to unit 2-norm, without under- or overflow."""
    row = words.target.long()
    value = full_precision(value)
    size = value.new_zeros(words.offsets.numel() - 1)
    largest = size.scatter_reduce(0, row, value.abs(), 'amax')
    value = value / largest.masked_fill(largest == 0, 1)[row]
    square = size.index_add(0, row, value.square())
    # The root of zero has no finite gradient.
    norm = square.masked_fill(square == 0, 1).sqrt()
    return value / norm[row]


def row_norms(x: Tensor | SparseRows) -> Tensor:
    """Compute the 2-norms of dense or sparse rows."""
    if isinstance(x, SparseRows):
        return x.norm()
    norm: Tensor = torch.linalg.vector_norm(x, dim=1)
    return norm


def dense_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return a dense copy of some rows of a matrix, dense or sparse CSR."""
    if x.layout == torch.strided:
        return x[index]
    words = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
    return SparseRows(x.values(), words)[index]._dense()


def rows_between(x: Tensor, start: int, stop: int) -> Tensor:
    """Return consecutive rows of a tensor, dense or sparse CSR."""
    if x.layout == torch.strided:
        return x[start:stop]
    offsets = x.crow_indices()[start : stop + 1]
    entries = slice(int(offsets[0]), int(offsets[-1]))
    silence_csr_warning()
    return torch.sparse_csr_tensor(
        offsets - offsets[0],
        x.col_indices()[entries],
        x.values()[entries],
        (offsets.numel() - 1, x.size(1)),
        check_invariants=False,
    )
