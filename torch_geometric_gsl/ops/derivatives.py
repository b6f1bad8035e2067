r"""Gradients written by hand: derived once, or passed to another tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

Function = TypeVar('Function', bound=Callable[..., Any])


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
        hang: Any = partial(_Underivable.apply, name)
        given = *ctx.saved_tensors, *grads
        return tuple(None if x is None else hang(x, *given) for x in found)

    return cast(Function, wrapper)


class _Underivable(torch.autograd.Function):
    """An identity that hangs below all that a gradient depends on."""

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


def straight_through(forward: Tensor, backward: Tensor) -> Tensor:
    r"""Return one tensor with the gradient of another.

    Args:
        forward (torch.Tensor): What is returned; NaN where :obj:`backward` is.
        backward (torch.Tensor): What the gradient goes to, of the same shape.
    """
    value: Tensor = _StraightThrough.apply(  # type: ignore[no-untyped-call]
        forward, backward
    )
    return value


class _StraightThrough(torch.autograd.Function):
    """Not hard + soft - soft.detach(): that leaves rounding errors in the zeros."""

    @staticmethod
    def forward(ctx: object, forward: Tensor, backward: Tensor) -> Tensor:
        return torch.where(backward.isnan(), backward, forward)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad
