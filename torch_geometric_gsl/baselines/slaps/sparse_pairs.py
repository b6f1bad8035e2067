from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from torch_geometric_gsl.ops.candidates import expand_ranges
from torch_geometric_gsl.ops.derivatives import once_differentiable
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, disable_compile, row_blocks


@disable_compile
def sparse_pair_dots(
    value: Tensor,
    places: Neighbours,
    neighbours: Neighbours,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Return the inner products of sparse rows with those that they list.

    Equal to :func:`~torch_geometric_gsl.ops.neighbours.pair_dots` of a dense matrix
    :math:`[n, d]` with itself, of which one block of rows is dense at a time. The
    gradient reaches the entries of the rows.

    Args:
        value (torch.Tensor): The entries of all rows, one row after the other.
        places (Neighbours): The columns of the entries, listed by row.
        neighbours (Neighbours): The rows that each row lists.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        torch.Tensor: One product for each listed row, in their order.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [4.0, 3.0]]).to_sparse_csr()
        >>> places = Neighbours(x.col_indices(), 2, x.crow_indices())
        >>> every = Neighbours(torch.tensor([[0, 1], [0, 1]]), num_sources=2)
        >>> sparse_pair_dots(x.values(), places, every)
        tensor([ 1.,  4.,  4., 25.])
    """
    product: Tensor = _SparsePairDots.apply(  # type: ignore[no-untyped-call]
        value, places, neighbours, memory_budget
    )
    return product


class _Block(NamedTuple):
    """Rows that are dense for a while, and the products that need them.

    A product is an entry of a listed row times the entry of the same column in the row
    that lists it: a cell of the dense block.
    """

    cells: int
    own: slice
    own_cell: Tensor
    pair: Tensor
    entry: Tensor
    cell: Tensor


class _SparsePairDots(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        value: Tensor,
        places: Neighbours,
        neighbours: Neighbours,
        memory_budget: int,
    ) -> Tensor:
        ctx.save_for_backward(value)
        ctx.lists = (places, neighbours, memory_budget)  # type: ignore[attr-defined]
        out = value.new_zeros(neighbours.source.numel())
        for block in _blocks(places, neighbours, value.itemsize, memory_budget):
            dense = _dense(block, value)
            out.index_add_(0, block.pair, value[block.entry] * dense[block.cell])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (value,) = ctx.saved_tensors  # type: ignore[attr-defined]
        places, neighbours, memory_budget = ctx.lists  # type: ignore[attr-defined]
        out = torch.zeros_like(value)
        for block in _blocks(places, neighbours, value.itemsize, memory_budget):
            own = grad[block.pair]
            out.index_add_(0, block.entry, own * _dense(block, value)[block.cell])
            dense = value.new_zeros(block.cells)
            dense.index_add_(0, block.cell, own * value[block.entry])
            out[block.own] += dense[block.own_cell]
        return out, None, None, None


def _dense(block: _Block, value: Tensor) -> Tensor:
    dense = value.new_zeros(block.cells)
    return dense.index_add_(0, block.own_cell, value[block.own])


def _blocks(
    places: Neighbours, neighbours: Neighbours, itemsize: int, memory_budget: int
) -> Iterator[_Block]:
    column, offsets = places.source.long(), places.offsets.long()
    width, sizes = places.num_sources, offsets.diff()
    source, ends = neighbours.source.flatten().long(), neighbours.offsets.tolist()
    num_rows = sizes.numel()
    products = int(sizes[source].sum()) // max(1, num_rows)
    bytes_per_row = 2 * itemsize * width + 5 * column.itemsize * products
    starts = offsets.tolist()
    for rows in row_blocks(num_rows, bytes_per_row, memory_budget):
        own = slice(starts[rows.start], starts[rows.stop])
        pairs = slice(ends[rows.start], ends[rows.stop])
        listed = source[pairs]
        count = sizes[listed]
        pair, entry = expand_ranges(offsets[listed], count)
        target = neighbours.target[pairs].long() - rows.start
        yield _Block(
            cells=(rows.stop - rows.start) * width,
            own=own,
            own_cell=(places.target[own].long() - rows.start) * width + column[own],
            pair=pair.add_(pairs.start),
            entry=entry,
            cell=(target * width).repeat_interleave(count) + column[entry],
        )
