r"""Distances of the ends of edges, for wide and for sparse features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks


def edge_distances(
    x: Tensor, edge_index: Tensor, *, memory_budget: int = MEMORY_BUDGET
) -> Tensor:
    r"""The distance :math:`\lVert x_i - x_j \rVert^2` of the ends of each edge.

    Features are gathered by blocks of edges, and once more in the backward pass.
    Half-precision features are compared in :obj:`torch.float32`.

    Args:
        x (torch.Tensor): The node features :math:`[n, d]`, dense or sparse CSR; no
            gradient flows to sparse ones.
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        memory_budget (int, optional): Bytes for one block of edges.
            (default: :obj:`2**25`)

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> edge_distances(x, torch.tensor([[0, 1], [1, 1]]))
        tensor([25.,  0.])
    """
    if x.layout != torch.strided:
        return _sparse_distances(x, edge_index, memory_budget)
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x

    def block(source: Tensor, target: Tensor) -> Tensor:
        return scores.squared_distance(x[target], x[source])

    bytes_per_edge = 4 * x.size(1) * x.element_size()
    blocks = list(row_blocks(edge_index.size(1), bytes_per_edge, memory_budget))
    if len(blocks) <= 1:
        return block(edge_index[0], edge_index[1])
    parts = [
        checkpoint(
            block,
            edge_index[0, edges],
            edge_index[1, edges],
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for edges in blocks
    ]
    return torch.cat(parts)


@torch.no_grad()
def _sparse_distances(x: Tensor, edge_index: Tensor, memory_budget: int) -> Tensor:
    """Blocks of targets become dense; sources stay sparse."""
    offsets, column = x.crow_indices().long(), x.col_indices()
    # The square of the difference is multiplied out: in float32 near nodes would
    # lose their distance.
    value = x.values().double()
    count = offsets.diff()
    row = torch.arange(x.size(0), device=x.device).repeat_interleave(count)
    square = value.new_zeros(x.size(0)).index_add(0, row, value.square())
    out = square[edge_index].sum(dim=0)
    longest = int(count.max()) if count.numel() else 0
    bytes_per_edge = 8 * (x.size(1) + 8 * longest)
    for edges in row_blocks(edge_index.size(1), bytes_per_edge, memory_budget):
        source, target = edge_index[:, edges]
        node, place = target.unique(return_inverse=True)
        own, listed = _entries(offsets, node)
        dense = value.new_zeros(node.numel(), x.size(1))
        dense[own, column[listed]] = value[listed]
        edge, listed = _entries(offsets, source)
        product = value[listed] * dense[place[edge], column[listed]]
        out[edges].index_add_(0, edge, product, alpha=-2)
    is_half = x.dtype in (torch.float16, torch.bfloat16)
    return out.clamp_(min=0).to(torch.float32 if is_half else x.dtype)


def _entries(offsets: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of listed rows: each one's number in the list, and its place."""
    count = offsets.diff()[row]
    number = torch.arange(row.numel(), device=row.device).repeat_interleave(count)
    skipped = offsets[row] - (count.cumsum(0) - count)
    place = torch.arange(number.numel(), device=row.device)
    return number, skipped[number] + place
