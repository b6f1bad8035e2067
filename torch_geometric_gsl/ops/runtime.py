r"""Run large work: by blocks of rows, compiled or by Triton, and in full precision."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller

Result = TypeVar('Result')
Function = TypeVar('Function', bound=Callable[..., Any])

#: The number of entries from which a function is compiled: it takes some seconds.
MIN_NUMEL = 2**17

#: Bytes of temporary memory that a chunked operation may use (32 MiB). Blocks
#: that fit into a processor's cache are also the fastest.
MEMORY_BUDGET = 32 * 2**20

_LOCK = Lock()


def rows_per_block(bytes_per_row: int, budget: int = MEMORY_BUDGET) -> int:
    r"""Turn a memory budget into a number of rows, at least one.

    Args:
        bytes_per_row (int): What one row needs, in bytes.
        budget (int, optional): The budget in bytes. (default: :obj:`2**25`)
    """
    return max(1, budget // max(1, bytes_per_row))


def row_blocks(
    num_rows: int, bytes_per_row: int, budget: int = MEMORY_BUDGET
) -> Iterator[slice]:
    r"""Yield slices that cover all rows, each within a memory budget.

    Args:
        num_rows (int): The number of rows.
        bytes_per_row (int): What one row needs, in bytes.
        budget (int, optional): The budget in bytes. (default: :obj:`2**25`)

    Returns:
        Iterator[slice]: Blocks of consecutive rows, of at least one row each.
    """
    step = rows_per_block(bytes_per_row, budget)
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def disable_compile(function: Function) -> Function:
    """Keep :func:`torch.compile` out of a function.

    A compiled model then samples the graph that an eager one samples with one seed, and
    the tracer stays out of sparse products and cached tables.

    Args:
        function (Callable): The function, which the result calls.
    """
    return cast(Function, torch.compiler.disable(function))


def is_exporting() -> bool:
    """Return whether :func:`torch.export.export` looks on, since PyTorch 2.7."""
    return hasattr(torch.compiler, 'is_exporting') and torch.compiler.is_exporting()


def maybe_compile(
    function: Callable[..., Result],
    numel: int,
    device: torch.device,
    *,
    dynamic: bool | None = None,
) -> Callable[..., Result]:
    r"""Compile a pure function when its inputs are large enough.

    Large inputs on a CPU take the compiled form, where a C++ compiler is present. It
    is made at the first call and shared by all later ones. The environment variable
    :obj:`TORCH_COMPILE_DISABLE=1` turns this off.

    Args:
        function (Callable): A pure function of tensors, at the level of its module.
        numel (int): The number of entries of what it computes.
        device (torch.device): The device.
        dynamic (bool, optional): Whether its inputs have other sizes in each call, for
            which it is compiled once. (default: :obj:`None`)

    Returns:
        Callable: :obj:`function` or its compiled form, which computes the same.
    """
    if numel < MIN_NUMEL or device.type != 'cpu' or not has_compiler():
        return function
    if torch._dynamo.config.disable or os.environ.get('TORCH_COMPILE_DISABLE') == '1':
        return function
    with _LOCK:  # Each function once, however many threads ask for it.
        return cast('Callable[..., Result]', _compile(function, dynamic))


@cache
def has_compiler() -> bool:
    """Return whether :func:`torch.compile` would find a C++ compiler."""
    names = [os.environ.get('CXX', ''), 'g++', 'clang++']
    return any(shutil.which(name) for name in names if name)


@cache
def _compile(
    function: Callable[..., Tensor], dynamic: bool | None
) -> Callable[..., Tensor]:
    quick = torch.compile(function, dynamic=dynamic)
    broken = False

    def call(*args: object) -> Tensor:
        nonlocal broken
        if not broken:
            try:
                return quick(*args)
            except torch._dynamo.exc.TorchDynamoException as error:
                with _LOCK:
                    is_first, broken = not broken, True
                if is_first:
                    warn_caller(
                        f'{function.__name__} could not be compiled and runs eagerly: '
                        f'{str(error).strip().splitlines()[0]}',
                        RuntimeWarning,
                    )
        return function(*args)

    return call


def has_triton(device: torch.device) -> bool:
    r"""Return whether Triton kernels can run on a device.

    It takes an installed Triton and a GPU of compute capability 8.0 or later.

    Args:
        device (torch.device): The device.
    """
    if device.type != 'cuda' or find_spec('triton') is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def full_dtype(dtype: torch.dtype) -> torch.dtype:
    r"""Return the type to compute with: :obj:`torch.float32` for half precision.

    Args:
        dtype (torch.dtype): The type of what is given.
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def full_precision(x: Tensor) -> Tensor:
    r"""Promote half precision to :obj:`torch.float32`; leave all else as it is.

    Args:
        x (torch.Tensor): The tensor.
    """
    return x.to(full_dtype(x.dtype))
