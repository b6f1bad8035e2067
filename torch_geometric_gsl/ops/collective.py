r"""Collective operations of several processes, with gradient, and what they send.

Each process of a group, a *rank*, owns a block of consecutive rows of a table. Blocks
may differ in size and be empty: they are padded to the largest one on their way.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function
from torch.nn.utils.rnn import pad_sequence

from torch_geometric_gsl._checks import check_type
from torch_geometric_gsl.ops.runtime import disable_compile


@dataclass
class Traffic:
    r"""Count the bytes that this rank sends to the others.

    The count is that of the algorithms that send least: in a gather and in a scatter
    a rank sends one block to each other rank, in a sum it sends its part of the tensor
    twice.

    Args:
        gather (int, optional): Bytes of gathered rows. (default: :obj:`0`)
        scatter (int, optional): Bytes of their gradients. (default: :obj:`0`)
        sum (int, optional): Bytes of sums over the ranks. (default: :obj:`0`)
    """

    gather: int = 0
    scatter: int = 0
    sum: int = 0

    @property
    def total(self) -> int:
        r"""Return the number of all bytes."""
        return self.gather + self.scatter + self.sum

    def add(self, kind: str, num_bytes: int) -> None:
        """Count bytes of one kind."""
        setattr(self, kind, getattr(self, kind) + num_bytes)

    def reset(self) -> None:
        r"""Begin again at zero."""
        self.gather = self.scatter = self.sum = 0


def rows_traffic(sizes: Sequence[int], channels: int, itemsize: int) -> int:
    r"""Return the bytes that a rank sends to gather rows, or to scatter gradients.

    With :math:`P` equal blocks of :math:`n` rows in all, these are
    :math:`n m (P - 1) / P` numbers.

    Args:
        sizes (Sequence[int]): The number of rows of each rank.
        channels (int): The width :math:`m` of the rows.
        itemsize (int): The bytes of a number.

    Example:
        >>> rows_traffic([500, 500], channels=32, itemsize=4)
        64000
    """
    return (len(sizes) - 1) * max(sizes) * channels * itemsize


def sum_traffic(numel: int, world_size: int, itemsize: int) -> int:
    r"""Return the bytes that a rank sends to sum tensors over the ranks.

    Args:
        numel (int): The number of entries of the tensor.
        world_size (int): The number of ranks.
        itemsize (int): The bytes of a number.

    Example:
        >>> sum_traffic(1000, world_size=2, itemsize=4)
        4000
    """
    return 2 * (world_size - 1) * -(-numel // world_size) * itemsize


@disable_compile
def all_gather_rows(
    x: Tensor,
    sizes: Sequence[int],
    group: Any = None,
    traffic: Traffic | None = None,
) -> Tensor:
    r"""Put the blocks of all ranks below each other, on every rank.

    The gradient of a block is the sum of what its rows get on all ranks: a
    reduce-scatter. Every rank has to run its backward pass.

    Args:
        x (torch.Tensor): The rows of this rank.
        sizes (Sequence[int]): The number of rows of each rank.
        group (torch.distributed.ProcessGroup, optional): The ranks; all of them if
            :obj:`None`. (default: :obj:`None`)
        traffic (Traffic, optional): Counts what is sent. (default: :obj:`None`)

    Raises:
        TypeError: If :obj:`x` is not a tensor.
        ValueError: If it is sparse or, on some rank, has another number of rows, or
            another width or type than on the first one.
    """
    _check_dense(x)
    _check_blocks(x, sizes, group)
    gathered: Tensor = _GatherRows.apply(x, sizes, group, traffic or Traffic())  # type: ignore[no-untyped-call]
    return gathered


def numbers_of_ranks(numbers: Sequence[int], group: Any = None) -> list[list[int]]:
    """Return as many integers of each rank, on every rank."""
    own = torch.tensor(numbers, device=device_of(group))
    found = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return torch.stack(found).tolist()


@disable_compile
def all_reduce_sum(
    x: Tensor, group: Any = None, traffic: Traffic | None = None
) -> Tensor:
    r"""Sum tensors of one shape over the ranks; each of them gets the sum.

    The gradient of a summand is the sum of the gradients on all ranks.

    Args:
        x (torch.Tensor): The summand of this rank.
        group (torch.distributed.ProcessGroup, optional): The ranks; all of them if
            :obj:`None`. (default: :obj:`None`)
        traffic (Traffic, optional): Counts what is sent. (default: :obj:`None`)

    Raises:
        TypeError: If :obj:`x` is not a tensor.
        ValueError: If it is sparse.
    """
    _check_dense(x)
    total: Tensor = _Sum.apply(x, group, traffic or Traffic())  # type: ignore[no-untyped-call]
    return total


@disable_compile
def attach(out: Tensor, *inputs: Tensor) -> Tensor:
    r"""Return a tensor whose backward pass runs through that of others, with zeros.

    A rank whose result does not depend on gathered rows would not take part in the
    reduce-scatter of their gradients, and the others would wait for it.

    Args:
        out (torch.Tensor): The tensor.
        *inputs (torch.Tensor): The others.
    """
    attached: Tensor = _Attach.apply(out, *inputs)  # type: ignore[no-untyped-call]
    return attached


def is_joined() -> bool:
    """Return whether this process has joined others."""
    return dist.is_available() and dist.is_initialized()


def first_rank(group: Any = None) -> int:
    """Return the number that the first rank of a group has among all processes."""
    return 0 if group is None else dist.get_global_rank(group, 0)


def device_of(group: Any = None) -> torch.device:
    """Return a device whose tensors a group can send."""
    is_cuda = dist.get_backend(group) == 'nccl'
    return torch.device('cuda' if is_cuda else 'cpu')


def broadcast_first(value: Tensor, group: Any = None) -> Tensor:
    """Overwrite a tensor by that of the first rank, and return it."""
    sent = value.to(device_of(group)) if value.device.type == 'cpu' else value
    sent = sent.contiguous()
    dist.broadcast(sent, first_rank(group), group=group)
    return value.copy_(sent)


class _GatherRows(Function):
    """Gather blocks of rows; the gradient is summed and scattered."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: Sequence[int], group: Any, traffic: Traffic
    ) -> Tensor:
        ctx.call = sizes, group, traffic
        traffic.add('gather', _bytes_of_rows(x, sizes))
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
        return _ScatterSum.apply(grad, *ctx.call), None, None, None  # type: ignore[no-untyped-call]


class _ScatterSum(Function):
    """Sum tables over the ranks, each of which gets its rows."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: Sequence[int], group: Any, traffic: Traffic
    ) -> Tensor:
        ctx.call = sizes, group, traffic
        traffic.add('scatter', _bytes_of_rows(x, sizes))
        blocks = pad_sequence(list(x.split(list(sizes))), batch_first=True)
        out = (_reduce_scatter if x.is_cuda else _exchange)(blocks, group)
        return out[: sizes[dist.get_rank(group)]]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _GatherRows.apply(grad, *ctx.call), None, None, None  # type: ignore[no-untyped-call]


class _Sum(Function):
    """Sum tensors over the ranks, and their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, traffic: Traffic) -> Tensor:
        ctx.call = group, traffic
        out = x.clone(memory_format=torch.contiguous_format)
        world_size = dist.get_world_size(group)
        traffic.add('sum', sum_traffic(x.numel(), world_size, x.element_size()))
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sum.apply(grad, *ctx.call), None, None  # type: ignore[no-untyped-call]


class _Attach(Function):
    """Return the first of some tensors; the others get zeros as their gradients."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *inputs: Tensor) -> Tensor:
        ctx.others = [(x.new_zeros(()), x.shape) for x in inputs]
        return out.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, *(zero.expand(shape) for zero, shape in ctx.others)


def _reduce_scatter(blocks: Tensor, group: Any) -> Tensor:
    out = torch.empty_like(blocks[0])
    dist.reduce_scatter(out, list(blocks), group=group)
    return out


def _exchange(blocks: Tensor, group: Any) -> Tensor:
    """Reduce and scatter on a CPU, where older releases of PyTorch cannot."""
    received = torch.empty_like(blocks)
    dist.all_to_all_single(received, blocks, group=group)
    return received.sum(dim=0)


def _bytes_of_rows(x: Tensor, sizes: Sequence[int]) -> int:
    return rows_traffic(sizes, math.prod(x.shape[1:]), x.element_size())


def _check_blocks(x: Tensor, sizes: Sequence[int], group: Any) -> None:
    """Raise what is wrong with the block of any rank on all of them, so none waits."""
    num_rows = x.size(0) if x.dim() else -1
    code = zlib.crc32(str(x.dtype).encode())
    blocks = numbers_of_ranks([num_rows, math.prod(x.shape[1:]), code], group)
    rows, widths, codes = (list(column) for column in zip(*blocks, strict=True))
    own = dist.get_rank(group)
    if num_rows != sizes[own]:
        raise ValueError(
            f"'x' must have the {sizes[own]} rows of this rank (got {list(x.shape)})"
        )
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
