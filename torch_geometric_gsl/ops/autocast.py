from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Backward = TypeVar('Backward', bound=Callable[..., Any])


def without_autocast(backward: Backward) -> Backward:
    """Keeps autocast out of a hand-written gradient.

    A backward pass that runs inside of :class:`torch.autocast` would take the matrix
    products of the gradient in half precision, and add them to what is in full one.
    Gradients without matrix products need no such care.

    Args:
        backward (Callable): The backward method of a
            :class:`torch.autograd.Function`.
    """

    @wraps(backward)
    def wrapper(ctx: Any, *grads: Tensor | None) -> Any:
        for grad in grads:
            if grad is not None and torch.is_autocast_enabled(grad.device.type):
                with torch.autocast(grad.device.type, enabled=False):
                    return backward(ctx, *grads)
        return backward(ctx, *grads)

    return cast(Backward, wrapper)
