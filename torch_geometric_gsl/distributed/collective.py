r"""Process groups of torchrun, and collective operations.

Each process of a group, a *rank*, owns a block of consecutive rows of a table. Blocks
may differ in size and be empty. (:mod:`torch.distributed.nn.functional` requires blocks
of equal size, and is deprecated.)
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from torch_geometric_gsl._checks import check_option, check_positive, check_type
from torch_geometric_gsl.ops.runtime import disable_compile


def start(backend: str | None = None, timeout: float = 60.0) -> torch.device:
    r"""Join the processes that :obj:`torchrun` started; return this one's device.

    Without the environment of :obj:`torchrun`, this is a single process without a
    group. Call :func:`torch.distributed.destroy_process_group` at the end of the
    program. Processes restarted by :obj:`torchrun --max-restarts` join anew; on several
    machines this requires the environment variable
    :obj:`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`.

    If a rank dies, the others fail: at once if its connections are closed, otherwise
    after the :obj:`timeout`.

    Args:
        backend (str, optional): :obj:`"gloo"` on CPUs, or :obj:`"nccl"` with one GPU
            per process; by default NCCL if this machine has a GPU for each of its
            processes. (default: :obj:`None`)
        timeout (float, optional): The seconds to wait for other ranks.
            (default: :obj:`60.0`)

    Returns:
        torch.device: The device of the tensors of this process.

    Example:
        >>> start('gloo')
        device(type='cpu')
    """
    if backend is not None:
        check_option(backend, ('gloo', 'nccl'), 'backend')
    check_positive(timeout, 'timeout')
    if backend is None:  # The same for all processes of a machine.
        num_processes = int(os.environ.get('LOCAL_WORLD_SIZE', 1))
        backend = 'nccl' if num_processes <= torch.cuda.device_count() else 'gloo'
    device = torch.device('cpu')
    if backend == 'nccl':
        device = torch.device('cuda', int(os.environ.get('LOCAL_RANK', 0)))
        torch.cuda.set_device(device)
    if 'RANK' in os.environ:
        _join(backend, timedelta(seconds=timeout))
    return device


def _join(backend: str, timeout: timedelta) -> None:
    restart = os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')
    is_one_machine = os.environ.get('LOCAL_WORLD_SIZE') == os.environ.get('WORLD_SIZE')
    if restart == '0' or not is_one_machine:
        dist.init_process_group(backend, timeout=timeout)
        return
    # torchrun's store outlives the processes, and so do their addresses. Machines may
    # count restarts differently.
    meeting = dist.rendezvous('env://', timeout=timeout)  # type: ignore[attr-defined]
    store, rank, world_size = next(meeting)
    store = dist.PrefixStore(f'restart_{restart}', store)  # type: ignore[attr-defined]
    options = {'store': store, 'rank': rank, 'world_size': world_size}
    dist.init_process_group(backend, timeout=timeout, **options)


def is_joined() -> bool:
    """Return whether this process has joined others."""
    return dist.is_available() and dist.is_initialized()


def gather_numbers(numbers: Sequence[int], group: Any) -> list[list[int]]:
    """Gather equally many integers from each rank, on every rank."""
    local = torch.tensor(numbers, device=_device_of(group))
    gathered = [torch.empty_like(local) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, local, group=group)
    return torch.stack(gathered).tolist()


def broadcast_first(value: Tensor, group: Any) -> Tensor:
    """Broadcast the tensor of the first rank in place, and return it."""
    buffer = value.to(_device_of(group)) if value.device.type == 'cpu' else value
    buffer = buffer.contiguous()
    src = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast(buffer, src, group=group)
    return value.copy_(buffer)


def _device_of(group: Any) -> torch.device:
    """Return the device whose tensors a group can send."""
    is_cuda = dist.get_backend(group) == 'nccl'
    return torch.device('cuda' if is_cuda else 'cpu')


@disable_compile
def all_gather_rows(x: Tensor, sizes: Sequence[int], group: Any = None) -> Tensor:
    r"""Concatenate the blocks of all ranks, on every rank.

    The gradient of a block is the sum of its gradients on all ranks, so every rank
    must run the backward pass.
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
        max_rows = max(sizes)
        if max_rows * math.prod(x.shape[1:]) == 0:
            return x.new_empty(sum(sizes), *x.shape[1:])
        padded = x.new_zeros(max_rows, *x.shape[1:])
        padded[: x.size(0)] = x
        table = x.new_empty(len(sizes), *padded.shape)
        dist.all_gather(list(table), padded, group=group)
        if min(sizes) == max_rows:
            return table.flatten(0, 1)
        return torch.cat([block[:n] for block, n in zip(table, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _ScatterSum.apply(grad, *ctx.call), None, None  # type: ignore[no-untyped-call]


class _ScatterSum(Function):
    """Sum tables over the ranks and scatter the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: Sequence[int], group: Any) -> Tensor:
        ctx.call = sizes, group
        num_rows = sizes[dist.get_rank(group)]
        received = x.new_empty(len(sizes) * num_rows, *x.shape[1:])
        splits = [num_rows] * len(sizes), list(sizes)
        dist.all_to_all_single(received, x.contiguous(), *splits, group=group)
        return received.view(len(sizes), num_rows, *x.shape[1:]).sum(dim=0)

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
    """Raise on all ranks if any block is invalid, so that no rank waits."""
    num_rows = x.size(0) if x.dim() else 0
    code = zlib.crc32(str(x.dtype).encode())
    blocks = gather_numbers([num_rows, math.prod(x.shape[1:]), code], group)
    rows, widths, codes = (list(column) for column in zip(*blocks, strict=True))
    if rows != list(sizes):
        raise ValueError(f"'x' must have {list(sizes)} rows on the ranks (got {rows})")
    if len(set(widths)) > 1:
        raise ValueError(f"'x' must have one width on all ranks (got {widths})")
    if len(set(codes)) > 1:
        ranks = [rank for rank in range(len(codes)) if codes[rank] == code]
        raise ValueError(
            f"'x' must have one dtype on all ranks (got {x.dtype} on {ranks} only)"
        )


def _check_dense(x: Any) -> None:
    check_type(x, Tensor, 'x', 'a torch.Tensor')
    if x.layout != torch.strided:
        raise ValueError(
            f"'x' must be dense to be sent to other ranks (got {x.layout})"
        )
