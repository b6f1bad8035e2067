"""Join the processes that torchrun has started, and exchange small values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torch_geometric_gsl._checks import check_option, check_positive


def start(backend: str | None = None, timeout: float = 60.0) -> torch.device:
    r"""Join the processes that :obj:`torchrun` has started; return this one's device.

    Without the environment that :obj:`torchrun` sets, this is one process without a
    group. A program that has joined ends with
    :func:`torch.distributed.destroy_process_group`. Processes that
    :obj:`torchrun --max-restarts` starts again join anew; on several machines it needs
    the environment variable :obj:`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` for that.

    A rank that dies ends the others with an error: at once where its connections are
    closed, and else after the :obj:`timeout`.

    Args:
        backend (str, optional): :obj:`"gloo"` on CPUs, or :obj:`"nccl"` on GPUs, of
            which each process takes one; by default NCCL where this machine has a GPU
            for each of its processes. (default: :obj:`None`)
        timeout (float, optional): The seconds that a rank waits for the others.
            (default: :obj:`60.0`)

    Returns:
        torch.device: The device of the tensors of this process.

    Raises:
        TypeError: If :obj:`timeout` is not a number.
        ValueError: If it is not positive, or :obj:`backend` is unknown.

    Example:
        >>> start('gloo')
        device(type='cpu')
    """
    if backend is not None:
        check_option(backend, ('gloo', 'nccl'), 'backend')
    check_positive(timeout, 'timeout')
    if backend is None:  # One for all processes of a machine.
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
    # What torchrun stores outlives the processes, and so do their addresses. Several
    # machines may count restarts differently.
    joining = dist.rendezvous('env://', timeout=timeout)  # type: ignore[attr-defined]
    store, rank, world_size = next(joining)
    store = dist.PrefixStore(f'restart_{restart}', store)  # type: ignore[attr-defined]
    how = {'store': store, 'rank': rank, 'world_size': world_size}
    dist.init_process_group(backend, timeout=timeout, **how)


def is_joined() -> bool:
    """Return whether this process has joined others."""
    return dist.is_available() and dist.is_initialized()


def first_rank(group: Any) -> int:
    """Return the number that the first rank of a group has among all processes."""
    return 0 if group is None else dist.get_global_rank(group, 0)


def numbers_of_ranks(numbers: Sequence[int], group: Any) -> list[list[int]]:
    """Return the integers of each rank, which are equally many, on every rank."""
    own = torch.tensor(numbers, device=_device_of(group))
    found = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return torch.stack(found).tolist()


def broadcast_first(value: Tensor, group: Any) -> Tensor:
    """Overwrite a tensor by that of the first rank, and return it."""
    sent = value.to(_device_of(group)) if value.device.type == 'cpu' else value
    sent = sent.contiguous()
    dist.broadcast(sent, first_rank(group), group=group)
    return value.copy_(sent)


def _device_of(group: Any) -> torch.device:
    """Return a device whose tensors a group can send."""
    is_cuda = dist.get_backend(group) == 'nccl'
    return torch.device('cuda' if is_cuda else 'cpu')
