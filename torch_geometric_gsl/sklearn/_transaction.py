"""Fit on a copy, in a thread with PyTorch's own defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Functions with a `dtype` that is the default one of the process if it is not given.
_FACTORIES = frozenset(
    getattr(torch, name)
    for name in ('empty', 'eye', 'linspace', 'ones', 'rand', 'randn', 'zeros')
)


class SinglePrecision(TorchFunctionMode):
    """Make this thread create tensors in single precision where no dtype is given."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES and kwargs.get('dtype') is None:
            kwargs = kwargs | {'dtype': torch.float32}
        if func is torch.tensor and args and isinstance(args[0], float):
            kwargs = {'dtype': torch.float32} | kwargs
        return func(*args, **kwargs)


@contextmanager
def default_modes() -> Iterator[None]:
    """Shield the calls of this thread from modes and defaults of PyTorch.

    Gradients are enabled, and autocast, inference mode, and another default dtype or
    device are not in effect.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.is_autocast_enabled('cpu'):
            stack.enter_context(torch.autocast('cpu', enabled=False))
        if torch.is_autocast_enabled('cuda'):
            stack.enter_context(torch.autocast('cuda', enabled=False))
        if torch.get_default_dtype() != torch.float32:
            stack.enter_context(SinglePrecision())
        if torch.get_default_device().type != 'cpu':
            stack.enter_context(torch.device('cpu'))
        yield


def atomic(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Make `fit` change an estimator in one step, at its end, or not at all."""

    @wraps(fit)
    def fit_aside(self: Any, *args: Any, **kwargs: Any) -> Any:
        draft: Any = object.__new__(type(self))
        draft.__dict__.update(vars(self))
        with default_modes():
            fit(draft, *args, **kwargs)
        # One assignment, which no error or interrupt can split.
        self.__dict__ = draft.__dict__
        return self

    return fit_aside
