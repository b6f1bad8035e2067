r"""Distances of listed pairs of rows, also wide and sparse ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.candidates import expand_ranges
from torch_geometric_gsl.ops.derivatives import once_differentiable
from torch_geometric_gsl.ops.neighbours import Neighbours, compare_listed
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    disable_compile,
    full_dtype,
    full_precision,
    maybe_compile,
    row_blocks,
)


@disable_compile
def pair_distances(dst: Tensor, src: Tensor, neighbours: Neighbours) -> Tensor:
    r"""Return the squared distances of targets from their listed sources.

    Differences are squared, not rows: of near rows far from the origin nothing else
    would be left.

    Args:
        dst (torch.Tensor): Embeddings of the targets :math:`[n, m]`.
        src (torch.Tensor): Embeddings of the sources :math:`[N, m]`.
        neighbours (Neighbours): The sources of each target.

    Returns:
        torch.Tensor: :obj:`(dst.unsqueeze(1) - src[source]).square().sum(-1)`.
    """
    distance: Tensor = _PairDistances.apply(dst, src, neighbours)  # type: ignore[no-untyped-call]
    return distance


def edge_distances(
    x: Tensor, edge_index: Tensor, *, memory_budget: int = MEMORY_BUDGET
) -> Tensor:
    r"""Return :math:`\lVert x_i - x_j \rVert^2` of the ends of each edge.

    Features are gathered by blocks of edges, and once more in the backward pass.
    Half-precision features are compared in :obj:`torch.float32`.

    Args:
        x (torch.Tensor): The node features :math:`[n, d]`, dense or sparse CSR; no
            gradient flows to sparse ones.
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)
    """
    if x.layout != torch.strided:
        return _sparse_distances(x, edge_index, memory_budget)
    x, (source, target) = full_precision(x), edge_index
    return compare_listed(
        pair_distances, x, x, source, target, memory_budget=memory_budget
    )


def _gathered_distances(dst: Tensor, src: Tensor, source: Tensor) -> Tensor:
    """Gather rows and compare them; compiled code does not store what it gathers."""
    return scores.squared_distance(dst.unsqueeze(1), src[source])


class _PairDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dst: Tensor, src: Tensor, neighbours: Neighbours) -> Tensor:
        count = neighbours.source.numel()
        quick = maybe_compile(_gathered_distances, count, src.device)
        distance = neighbours.gathered(quick, dst.detach(), src.detach())
        ctx.save_for_backward(dst, src, distance)
        ctx.neighbours = neighbours
        return distance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dst, src, distance = ctx.saved_tensors
        weight = 2 * grad * (distance < scores.max_square(dst.dtype))
        grad_dst, grad_src = torch.zeros_like(dst), torch.zeros_like(src)
        for rows, target, source in ctx.neighbours.blocks(src):
            step = dst[target].unsqueeze(1) - src[source]
            step *= weight[rows].view(*source.shape, 1)
            if isinstance(target, slice):
                grad_dst[target] = step.sum(dim=1)
            else:
                grad_dst.index_add_(0, target, step.squeeze(1))
            grad_src.index_add_(0, source.flatten(), step.flatten(0, 1), alpha=-1)
        return grad_dst, grad_src, None


@torch.no_grad()
def _sparse_distances(x: Tensor, edge_index: Tensor, memory_budget: int) -> Tensor:
    """Make blocks of targets dense; sources stay sparse."""
    offsets, column = x.crow_indices().long(), x.col_indices()
    # The square of the difference is multiplied out: in float32 near nodes would
    # lose their distance.
    value = x.values().double()
    count = offsets.diff()
    row, _ = expand_ranges(offsets[:-1], count)
    square = value.new_zeros(x.size(0)).index_add(0, row, value.square())
    out = square[edge_index].sum(dim=0)
    longest = int(count.max()) if count.numel() else 0
    bytes_per_edge = 8 * (x.size(1) + 8 * longest)
    for edges in row_blocks(edge_index.size(1), bytes_per_edge, memory_budget):
        source, target = edge_index[:, edges]
        node, place = target.unique(return_inverse=True)
        own, listed = expand_ranges(offsets[node], count[node])
        dense = value.new_zeros(node.numel(), x.size(1))
        dense[own, column[listed]] = value[listed]
        edge, listed = expand_ranges(offsets[source], count[source])
        product = value[listed] * dense[place[edge], column[listed]]
        out[edges].index_add_(0, edge, product, alpha=-2)
    return out.clamp_(min=0).to(full_dtype(x.dtype))
