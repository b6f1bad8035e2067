from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl.ops.candidates import expand_ranges
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
    :math:`[n, d]` with itself, of which one block of rows is dense at a time, also in
    the backward pass. The gradient reaches the entries :obj:`value` of the rows, whose
    columns :obj:`places` lists.
    """
    sizes, source = places.offsets.diff(), neighbours.source.flatten()
    num_rows = sizes.numel()
    products = int(sizes[source].sum()) // max(1, num_rows)
    bytes_per_row = 2 * value.itemsize * places.num_sources + 40 * products
    found = [
        checkpoint(
            _block_dots,
            value,
            places,
            neighbours,
            rows,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for rows in row_blocks(num_rows, bytes_per_row, memory_budget)
    ]
    return torch.cat([value.new_empty(0), *found])


def _block_dots(
    value: Tensor, places: Neighbours, neighbours: Neighbours, rows: slice
) -> Tensor:
    """Return the products of some rows, which are dense for a while."""
    width, offsets = places.num_sources, places.offsets.long()
    ends = [rows.start, rows.stop]
    own, pairs = (slice(*o.offsets[ends].tolist()) for o in (places, neighbours))
    cell = (places.target[own].long() - rows.start) * width + places.source[own]
    dense = value.new_zeros((rows.stop - rows.start) * width)
    dense = dense.index_add(0, cell, value[own])
    listed = neighbours.source.flatten()[pairs].long()
    # An entry of a listed row meets that of its column in the row that lists it.
    pair, entry = expand_ranges(offsets[listed], offsets.diff()[listed])
    target = neighbours.target[pairs].long() - rows.start
    cell = target[pair] * width + places.source[entry]
    product = value.index_select(0, entry) * dense.index_select(0, cell)
    return value.new_zeros(listed.numel()).index_add(0, pair, product)
