r"""Run functions by blocks, compiled, in full precision; derive gradients once."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import cache, wraps
from importlib.util import find_spec
from threading import Lock
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from torch_geometric_gsl._warnings import warn_caller

Result = TypeVar('Result')
Function = TypeVar('Function', bound=Callable[..., Any])

#: The number of entries from which a function is compiled: it takes some seconds.
MIN_NUMEL = 2**18

_LOCK = Lock()

#: Bytes of temporary memory that a chunked operation may use (32 MiB). Blocks
#: that fit into a processor's cache are also the fastest.
MEMORY_BUDGET = 32 * 2**20


def rows_per_block(bytes_per_row: int, budget: int = MEMORY_BUDGET) -> int:
    r"""Turn a memory budget into a number of rows, at least one.

    Args:
        bytes_per_row (int): What one row needs, in bytes.
        budget (int, optional): The budget in bytes. (default: :obj:`2**25`)

    Example:
        >>> rows_per_block(bytes_per_row=1024, budget=10_000)
        9
    """
    return max(1, budget // max(1, bytes_per_row))


def row_blocks(
    num_rows: int, bytes_per_row: int, budget: int = MEMORY_BUDGET
) -> Iterator[slice]:
    r"""Yield slices that cover :obj:`num_rows` rows within a memory budget."""
    step = rows_per_block(bytes_per_row, budget)
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def disable_compile(function: Function) -> Function:
    """Keep :func:`torch.compile` out of a function.

    A compiled model then samples the graph that an eager one samples with one seed, and
    the tracer stays out of sparse products and cached tables.
    """
    return cast(Function, torch.compiler.disable(function))


def maybe_compile(
    function: Callable[..., Result], numel: int, device: torch.device
) -> Callable[..., Result]:
    r"""Compile a pure function when its inputs are large enough.

    Large inputs on a CPU take the compiled form, where a C++ compiler is present. It
    is made at the first call and shared by all later ones. The environment variable
    :obj:`TORCH_COMPILE_DISABLE=1` turns this off.

    Args:
        function (Callable): A pure function of tensors, at the level of its module.
        numel (int): The number of entries of what it computes.
        device (torch.device): The device.

    Returns:
        Callable: :obj:`function` or its compiled form, which computes the same.
    """
    if numel < MIN_NUMEL or device.type != 'cpu' or not has_compiler():
        return function
    if torch._dynamo.config.disable or os.environ.get('TORCH_COMPILE_DISABLE') == '1':
        return function
    with _LOCK:  # Each function once, however many threads ask for it.
        return cast('Callable[..., Result]', _compile(function))


@cache
def has_compiler() -> bool:
    """Return whether :func:`torch.compile` would find a C++ compiler."""
    names = [os.environ.get('CXX', ''), 'g++', 'clang++']
    return any(shutil.which(name) for name in names if name)


@cache
def _compile(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    quick = torch.compile(function)
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

    Example:
        >>> has_triton(torch.device('cpu'))
        False
    """
    if device.type != 'cuda' or not _has_triton_package():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def _has_triton_package() -> bool:
    return find_spec('triton') is not None


def full_dtype(dtype: torch.dtype) -> torch.dtype:
    r"""Return the type to compute with: :obj:`torch.float32` for half precision.

    Example:
        >>> full_dtype(torch.bfloat16), full_dtype(torch.float64)
        (torch.float32, torch.float64)
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def full_precision(x: Tensor) -> Tensor:
    r"""Promote half-precision tensors to :obj:`torch.float32`.

    Example:
        >>> full_precision(torch.ones(2, dtype=torch.float16))
        tensor([1., 1.])
    """
    return x.to(full_dtype(x.dtype))


def once_differentiable(backward: Function) -> Function:
    """Run a hand-written gradient in full precision; raise where it is derived again.

    The decorator of the same name in PyTorch raises in :meth:`torch.Tensor.backward`
    alone: :func:`torch.autograd.grad` never visits its error, and would return a
    derivative without the part of this function.

    Args:
        backward (Callable): The backward method of a
            :class:`torch.autograd.Function`. The inputs that it differentiates must be
            among its saved tensors, or such that these depend on them.

    Raises:
        RuntimeError: In the backward pass of the gradient, if there is one.
    """

    @wraps(backward)
    def wrapper(ctx: Any, *grads: Tensor | None) -> Any:
        device = next(grad.device.type for grad in grads if grad is not None)
        # Autocast would take the matrix products of the gradient in half precision.
        with torch.no_grad(), torch.autocast(device, enabled=False):
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return found
        found = found if isinstance(found, tuple) else (found,)
        name = type(ctx).__name__.removeprefix('_').removesuffix('Backward')
        given = *ctx.saved_tensors, *grads
        derived = [None if x is None else _underivable(name, x, *given) for x in found]
        return tuple(derived)

    return cast(Function, wrapper)


def _underivable(name: str, x: Tensor, *given: Tensor | None) -> Tensor:
    same: Tensor = _Underivable.apply(name, x, *given)  # type: ignore[no-untyped-call]
    return same


class _Underivable(torch.autograd.Function):
    # An identity that hangs below all that a gradient depends on.
    @staticmethod
    def forward(ctx: FunctionCtx, name: str, x: Tensor, *given: Tensor) -> Tensor:
        ctx.name = name  # type: ignore[attr-defined]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> None:
        raise RuntimeError(
            f'second derivatives are not implemented: the gradient of '
            f'{ctx.name} cannot be differentiated again '  # type: ignore[attr-defined]
            f'(create_graph=True)'
        )


def silence_csr_warning() -> None:
    r"""Suppress PyTorch's beta warning for CSR, which it gives once per process.

    Filters of warnings belong to all threads. Those that change them at the same time
    leave them changed, so that only the first call does.
    """
    with _LOCK:
        _make_csr()


@cache
def _make_csr() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)
        offsets, none = torch.zeros(1, dtype=torch.long), torch.empty(0)
        torch.sparse_csr_tensor(
            offsets, none.long(), none, (0, 0), check_invariants=False
        )
