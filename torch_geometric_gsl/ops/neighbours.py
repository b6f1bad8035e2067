r"""Comparisons of listed pairs and weighted sums: attention over few neighbours.

Neither pass stores a gathered tensor :math:`[E, m]`: sums are sparse products, in the
backward pass over pairs sorted by source, and rows are gathered in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    HandWritten,
    cache_budget,
    disable_compile,
    once_differentiable,
    outside_transforms,
    plain_tensor,
    row_blocks,
)

# Sampled matrix products are slow below the vector width.
_VECTOR = 8


class Neighbours:
    r"""The sources that each target lists.

    Args:
        source (torch.Tensor): Indices of sources, :math:`[n, q]`, or :math:`[E]` if
            targets list different numbers of them.
        num_sources (int): The number of sources :math:`N`.
        offsets (torch.Tensor, optional): The offsets :math:`[n + 1]` of the lists of
            the targets, required for sources of one dimension. (default: :obj:`None`)
        memory (int, optional): Bytes of a block. (default: :obj:`2**25`)
    """

    def __init__(
        self,
        source: Tensor,
        num_sources: int,
        offsets: Tensor | None = None,
        *,
        memory: int = MEMORY_BUDGET,
    ) -> None:
        small = max(num_sources, source.numel()) < 2**31
        dtype = torch.int32 if small else torch.int64
        if offsets is None:
            n, q = source.shape
            offsets = torch.arange(n + 1, device=source.device) * q
        # Indices have no derivatives, and sparse products need plain tensors.
        self.source = plain_tensor(source.to(dtype))
        self.offsets = plain_tensor(offsets.to(dtype))
        self.num_sources = num_sources
        self.memory = memory

    @cached_property
    def target(self) -> Tensor:
        """Return the target of each pair, in the order of the sources."""
        every = torch.arange(
            self.offsets.numel() - 1,
            dtype=self.offsets.dtype,
            device=self.offsets.device,
        )
        return every.repeat_interleave(
            self.offsets.diff(), output_size=self.source.numel()
        )

    @cached_property
    def by_source(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sort the pairs by source; return their positions, targets and offsets."""
        ordered, position = torch.sort(self.source.flatten())
        every = torch.arange(
            self.num_sources + 1, dtype=ordered.dtype, device=ordered.device
        )
        small = ordered.dtype == torch.int32
        offsets = torch.searchsorted(ordered, every, out_int32=small)
        if self.source.dim() == 1:
            return position, self.target[position], offsets
        # A division is faster than a look-up.
        width = max(1, self.source.size(1))
        target = torch.div(position.to(ordered.dtype), width, rounding_mode='trunc')
        return position, target, offsets

    def sum(self, h: Tensor, weight: Tensor) -> Tensor:
        """Compute weighted sums of the sources of each target, without gradients."""
        if self.source.numel() == 0:
            return h.new_zeros(self.offsets.numel() - 1, h.size(1))
        return F.embedding_bag(
            self.source.flatten(),
            h,
            offsets=self.offsets,
            per_sample_weights=weight.flatten(),
            mode='sum',
            include_last_offset=True,
        )

    def sum_targets(self, h: Tensor, weight: Tensor) -> Tensor:
        """Compute weighted sums of the targets of each source, without gradients."""
        position, target, offsets = self.by_source
        weight = weight.flatten()[position]
        return Neighbours(target, h.size(0), offsets).sum(h, weight)

    @outside_transforms
    def dots(self, dst: Tensor, src: Tensor) -> Tensor:
        """Compute inner products of each target with its sources, without gradients."""
        # The compiler warns about non-leaf tensors.
        dst, src = dst.detach(), src.detach()
        count = self.source.numel()
        # A sparse matrix must not have more entries than cells.
        is_sparse = 0 < count <= dst.size(0) * src.size(0)
        if src.device.type != 'cpu' or not is_sparse:
            return self.gathered(torch.Tensor.mul_, dst, src)
        missing = _VECTOR - src.size(1)
        if missing > 0:
            dst, src = F.pad(dst, (0, missing)), F.pad(src, (0, missing))
        silence_csr_warning()
        pattern = torch.sparse_csr_tensor(
            self.offsets,
            self.source.flatten(),
            dst.new_zeros(count),
            (dst.size(0), src.size(0)),
            check_invariants=False,
        )
        product = torch.sparse.sampled_addmm(pattern, dst, src.t(), beta=0.0)
        # Not a view: Dynamo cannot trace views of parts of a sparse tensor.
        values: Tensor = product.values().clone()
        return values.view(self.source.shape)

    def gathered(
        self, combine: Callable[[Tensor, Tensor], Tensor], dst: Tensor, src: Tensor
    ) -> Tensor:
        """Sum over the channels of sources and their targets, without gradients.

        The function combines gathered sources in place with targets that broadcast.
        """
        out = dst.new_empty(self.source.shape)
        for rows, target, source in self.blocks(src):
            values = combine(gather(src, source), gather(dst, target).unsqueeze(1))
            out[rows] = values.sum(dim=-1).view_as(out[rows])
        return out

    def blocks(self, src: Tensor) -> Iterator[tuple[slice, slice | Tensor, Tensor]]:
        r"""Yield blocks of rows whose embeddings fit into the memory budget.

        Yields the slice of each block in the lists, its targets, and its sources
        :math:`[r, q]`; each pair is a row if lists differ in length.
        """
        source = self.source if self.source.dim() == 2 else self.source.unsqueeze(1)
        bytes_per_row = 3 * source.size(1) * src.size(1) * src.element_size()
        memory = cache_budget(self.memory, src.device)
        for rows in row_blocks(source.size(0), bytes_per_row, memory):
            target = rows if self.source.dim() == 2 else self.target[rows]
            yield rows, target, source[rows]


def gather(rows: Tensor, index: slice | Tensor) -> Tensor:
    """Gather rows; indices give a copy."""
    if isinstance(index, slice):
        return rows[index]
    # Twice as fast as indexing on a CPU.
    return rows.index_select(0, index.flatten()).view(*index.shape, rows.size(1))


@disable_compile
def pair_dots(dst: Tensor, src: Tensor, neighbours: Neighbours) -> Tensor:
    """Compute the inner products of targets with their listed sources.

    The result is :obj:`(dst.unsqueeze(1) * src[source]).sum(-1)`.
    """
    product: Tensor = _PairDots.apply(dst, src, neighbours)  # type: ignore[no-untyped-call]
    return product


@disable_compile
def pair_distances(dst: Tensor, src: Tensor, neighbours: Neighbours) -> Tensor:
    """Compute the squared distances of targets from their listed sources.

    The result is :obj:`(dst.unsqueeze(1) - src[source]).square().sum(-1)`. Differences
    are squared, not rows, which would cancel far from the origin.
    """
    distance: Tensor = _PairDistances.apply(dst, src, neighbours)  # type: ignore[no-untyped-call]
    return distance


@disable_compile
def neighbour_sum(h: Tensor, weight: Tensor, neighbours: Neighbours) -> Tensor:
    """Compute weighted sums of the listed sources of each target.

    The result is :obj:`(weight.unsqueeze(-1) * h[source]).sum(1)`.
    """
    total: Tensor = _NeighbourSum.apply(h, weight, neighbours)  # type: ignore[no-untyped-call]
    return total


@disable_compile
def compare_listed(
    compare: Callable[[Any, Any, Neighbours], Tensor],
    dst: Tensor,
    src: Tensor,
    source: Tensor,
    target: Tensor,
    *,
    memory: int = MEMORY_BUDGET,
) -> Tensor:
    """Compare pairs of sources and targets, listed in any order and shape.

    The function compares neighbours, such as :func:`pair_dots`.
    """
    ordered, order = target.flatten().sort()
    every = torch.arange(dst.size(0) + 1, device=target.device)
    neighbours = Neighbours(
        source.flatten()[order],
        src.size(0),
        torch.searchsorted(ordered, every),
        memory=memory,
    )
    value = compare(dst, src, neighbours)
    return torch.empty_like(value).scatter(0, order, value).view(target.shape)


class _PairDots(HandWritten):
    @staticmethod
    def forward(dst: Tensor, src: Tensor, neighbours: Neighbours) -> Tensor:
        return neighbours.dots(dst, src)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        dst, src, ctx.neighbours = inputs
        ctx.save_for_backward(dst, src)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dst, src = ctx.saved_tensors
        needs_dst, needs_src, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            ctx.neighbours.sum(src, grad) if needs_dst else None,
            ctx.neighbours.sum_targets(dst, grad) if needs_src else None,
            None,
        )


class _PairDistances(HandWritten):
    @staticmethod
    def forward(dst: Tensor, src: Tensor, neighbours: Neighbours) -> Tensor:
        ends = dst.detach(), src.detach()
        distance = neighbours.gathered(lambda u, v: u.sub_(v).square_(), *ends)
        distance.clamp_(max=scores.max_square(dst.dtype))
        return distance

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        dst, src, ctx.neighbours = inputs
        ctx.save_for_backward(dst, src, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dst, src, distance = ctx.saved_tensors
        weight = 2 * grad * (distance < scores.max_square(dst.dtype))
        grad_dst, grad_src = torch.zeros_like(dst), torch.zeros_like(src)
        for rows, target, source in ctx.neighbours.blocks(src):
            step = gather(src, source).sub_(gather(dst, target).unsqueeze(1))
            step *= weight[rows].view(*source.shape, 1)
            if isinstance(target, slice):
                grad_dst[target] -= step.sum(dim=1)
            else:
                grad_dst.index_add_(0, target, step.squeeze(1), alpha=-1)
            grad_src.index_add_(0, source.flatten(), step.flatten(0, 1))
        return grad_dst, grad_src, None


class _NeighbourSum(HandWritten):
    @staticmethod
    def forward(h: Tensor, weight: Tensor, neighbours: Neighbours) -> Tensor:
        return neighbours.sum(h, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        h, weight, ctx.neighbours = inputs
        ctx.save_for_backward(h, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight = ctx.saved_tensors
        needs_h, needs_weight, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            ctx.neighbours.sum_targets(grad, weight) if needs_h else None,
            ctx.neighbours.dots(grad, h) if needs_weight else None,
            None,
        )
