r"""Collective operations of several processes, with gradient.

Each process of a group, a *rank*, owns a block of consecutive rows of a table. Blocks
may differ in size and be empty. (:mod:`torch.distributed.nn.functional` needs blocks
of equal size, and is deprecated.)
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from torch_geometric_gsl._checks import check_type
from torch_geometric_gsl.distributed.process_group import numbers_of_ranks
from torch_geometric_gsl.ops.runtime import disable_compile


@disable_compile
def all_gather_rows(x: Tensor, sizes: Sequence[int], group: Any = None) -> Tensor:
    r"""Concatenate the blocks of all ranks, on every rank.

    The gradient of a block is the sum of the gradients of its rows on all ranks, so
    every rank has to run its backward pass.
    """
    _check_dense(x)
    _check_blocks(x, sizes, group)
    gathered: Tensor = _GatherRows.apply(x, sizes, group)  # type: ignore[no-untyped-call]
    return gathered


@disable_compile
def all_reduce_sum(x: Tensor, group: Any = None) -> Tensor:
    r"""Sum tensors of one shape over the ranks; the gradient is summed, too."""
    _check_dense(x)
    total: Tensor = _Sum.apply(x, group)  # type: ignore[no-untyped-call]
    return total


class _GatherRows(Function):
    """Gather blocks of rows, padded to the largest; sum and scatter the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: Sequence[int], group: Any) -> Tensor:
        ctx.call = sizes, group
        most = max(sizes)
        padded = x.new_zeros(most, *x.shape[1:])
        padded[: x.size(0)] = x
        table = x.new_empty(len(sizes), *padded.shape)
        dist.all_gather(list(table), padded, group=group)
        if min(sizes) == most:
            return table.flatten(0, 1)
        return torch.cat([block[:n] for block, n in zip(table, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _ScatterSum.apply(grad, *ctx.call), None, None  # type: ignore[no-untyped-call]


class _ScatterSum(Function):
    """Sum tables over the ranks, each of which gets its rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: Sequence[int], group: Any) -> Tensor:
        ctx.call = sizes, group
        own = sizes[dist.get_rank(group)]
        received = x.new_empty(len(sizes) * own, *x.shape[1:])
        splits = [own] * len(sizes), list(sizes)
        dist.all_to_all_single(received, x.contiguous(), *splits, group=group)
        return received.view(len(sizes), own, *x.shape[1:]).sum(dim=0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _GatherRows.apply(grad, *ctx.call), None, None  # type: ignore[no-untyped-call]


class _Sum(Function):
    """Sum tensors over the ranks, and their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        out = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sum.apply(grad, ctx.group), None  # type: ignore[no-untyped-call]


def _check_blocks(x: Tensor, sizes: Sequence[int], group: Any) -> None:
    """Raise for the block of any rank on all of them, so that none waits."""
    num_rows = x.size(0) if x.dim() else 0
    code = zlib.crc32(str(x.dtype).encode())
    blocks = numbers_of_ranks([num_rows, math.prod(x.shape[1:]), code], group)
    rows, widths, codes = (list(column) for column in zip(*blocks, strict=True))
    if rows != list(sizes):
        raise ValueError(f"'x' must have {list(sizes)} rows on the ranks (got {rows})")
    if len(set(widths)) > 1:
        raise ValueError(f"'x' must be equally wide on all ranks (got {widths})")
    if len(set(codes)) > 1:
        alike = [rank for rank, other in enumerate(codes) if other == code]
        raise ValueError(
            f"'x' must have one dtype on all ranks (got {x.dtype} on {alike} alone)"
        )


def _check_dense(x: Any) -> None:
    check_type(x, Tensor, 'x', 'a torch.Tensor')
    if x.layout != torch.strided:
        raise ValueError(
            f"'x' must be dense to be sent to other ranks (got {x.layout})"
        )
