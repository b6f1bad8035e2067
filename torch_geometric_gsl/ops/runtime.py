"""Run work in blocks of rows, in full precision, with hand-written gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_gradtrackingtensor,
    peek_interpreter_stack,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd.function import FunctionCtx
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

Function = TypeVar('Function', bound=Callable[..., Any])

#: Bytes of temporary memory that a chunked operation may use (32 MiB).
MEMORY_BUDGET = 32 * 2**20
# Fits into a processor's cache (2 MiB), instead of being fetched for each block.
_CACHE = 2 * 2**20

_HALF = (torch.float16, torch.bfloat16)


def row_blocks(
    num_rows: int, bytes_per_row: int, memory: int = MEMORY_BUDGET
) -> list[slice]:
    """Partition rows into consecutive slices, each within a memory budget.

    A row needs :obj:`bytes_per_row`, and a block has at least one row.
    """
    step = max(1, memory // max(1, bytes_per_row))
    starts = range(0, num_rows, step)
    return [*map(slice, starts, (*starts[1:], num_rows))]


def cache_budget(memory: int, device: torch.device) -> int:
    """Return the memory budget of blocks that should stay in a processor's cache."""
    return min(memory, _CACHE) if device.type == 'cpu' else memory


def disable_compile(function: Function) -> Function:
    """Exclude a function from :func:`torch.compile`.

    A compiled model then samples the same graph as an eager one with the same seed, and
    sparse products and cached tables are not traced.
    """
    return cast(Function, torch.compiler.disable(function))


def is_exporting() -> bool:
    """Return whether :func:`torch.export.export` is tracing, since PyTorch 2.7."""
    return hasattr(torch.compiler, 'is_exporting') and torch.compiler.is_exporting()


def is_transforming() -> bool:
    """Return whether a transform runs, such as :func:`torch.func.grad`."""
    return not torch.compiler.is_compiling() and peek_interpreter_stack() is not None


def recomputed(function: Function) -> Function:
    """Wrap a function whose intermediate results are recomputed in the backward pass.

    The function must not draw from the global generator.
    """
    if is_transforming():  # Hooks of saved tensors are not supported there.
        return function
    run = partial(checkpoint, function, use_reentrant=False, preserve_rng_state=False)
    return cast(Function, run)


def full_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type to compute with: :obj:`torch.float32` for half precision."""
    return torch.float32 if dtype in _HALF else dtype


def full_precision(x: Tensor) -> Tensor:
    """Promote half precision to :obj:`torch.float32`; keep other dtypes."""
    return x.float() if x.dtype in _HALF else x


def is_batched(x: Tensor) -> bool:
    """Return whether :func:`torch.vmap` maps over a tensor."""
    while is_functorch_wrapped_tensor(x):
        if is_batchedtensor(x):
            return True
        x = get_unwrapped(x)
    return False


def check_not_batched(
    module: object, values: Any, parameters: Iterable[Tensor] = ()
) -> None:
    """Raise if :func:`torch.vmap` maps over any of the tensors of a call."""
    if torch.compiler.is_compiling() or peek_interpreter_stack() is None:
        return
    tensors = [*tree_leaves(values), *parameters]
    if any(isinstance(x, Tensor) and is_batched(x) for x in tensors):
        raise RuntimeError(
            f'torch.vmap is not supported by {type(module).__name__}, whose '
            f'computation depends on values: '
            f'loop over the inputs, or over the copies of the parameters'
        )


def plain_tensor(x: Tensor) -> Tensor:
    """Detach a tensor, also from the derivatives of :func:`torch.func.grad`."""
    x = x.detach()
    # The compiler cannot trace the question, and compiles no transforms here.
    while not torch.compiler.is_compiling() and is_gradtrackingtensor(x):
        x = get_unwrapped(x)
    return x


def outside_transforms(function: Function) -> Function:
    """Run a function without derivatives on plain tensors, as kernels need them.

    Within :func:`torch.func.grad` each operation returns a wrapped tensor.
    """

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if peek_interpreter_stack() is None:
            return function(*args, **kwargs)
        args, kwargs = tree_map(_plain, (args, kwargs), is_leaf=_has_derivative)
        with temporarily_clear_interpreter_stack():
            return function(*args, **kwargs)

    return cast(Function, wrapper)


def _has_derivative(value: Any) -> bool:
    return hasattr(value, 'detach')


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return plain_tensor(value)
    return value.detach() if _has_derivative(value) else value


def once_differentiable(backward: Function) -> Function:
    """Run a hand-written gradient in full precision; raise on a second derivative.

    The decorator of the same name in PyTorch raises in :meth:`torch.Tensor.backward`
    only: :func:`torch.autograd.grad` skips its error and would return a derivative
    without this function's part. The inputs that :obj:`backward` differentiates must be
    among its saved tensors, or these must depend on them.
    """

    @wraps(backward)
    def wrapper(ctx: Any, *grads: Tensor | None) -> Any:
        if any(grad is not None and is_batched(grad) for grad in grads):
            raise RuntimeError(
                'torch.vmap over a gradient is not supported by random draws: pass '
                "'chunk_size=1' to torch.func.jacrev, or loop over torch.func.vjp"
            )
        device = next(grad.device.type for grad in grads if grad is not None)
        # Autocast would run the gradient's matrix products in half precision.
        with torch.no_grad(), torch.autocast(device, enabled=False):
            gradients = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return gradients
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        name = type(ctx).__name__.removeprefix('_').removesuffix('Backward')
        name = name.removesuffix('Generated')  # By torch.func.
        guard: Any = partial(_Underivable.apply, name)
        tensors = *ctx.saved_tensors, *grads
        return tuple(None if x is None else guard(x, *tensors) for x in gradients)

    return cast(Function, wrapper)


class HandWritten(torch.autograd.Function):
    """Base class of functions with a gradient of their own in reverse mode only."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> None:
        raise RuntimeError(
            'torch.vmap is not supported by graphs of nearest or sampled neighbours: '
            'loop over the inputs, or over the copies of the parameters'
        )

    @staticmethod
    def jvp(ctx: FunctionCtx, *tangents: Any) -> None:
        raise RuntimeError(
            'forward-mode derivatives are not implemented (torch.func.jvp): use '
            'reverse mode, such as torch.func.grad, vjp or jacrev'
        )


class _Underivable(HandWritten):
    """Identity that raises if a gradient is differentiated again."""

    @staticmethod
    def forward(name: str, x: Tensor, *tensors: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> None:
        raise RuntimeError(
            f'second derivatives are not implemented: the gradient of '
            f'{ctx.name} cannot be differentiated again '  # type: ignore[attr-defined]
            f'(create_graph=True)'
        )
