"""Compute with PyTorch's own defaults, in few threads, and fit on a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch.overrides import TorchFunctionMode

# Functions with a `dtype` that is the default one of the process if it is not given.
_FACTORIES = frozenset(
    getattr(torch, name)
    for name in ('empty', 'eye', 'linspace', 'ones', 'rand', 'randn', 'zeros')
)
# Fewer rows are computed in one thread.
_MIN_ROWS_OF_THREADS = 5000


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


def threads_for(num_rows: int, num_threads: int | None = None) -> Any:
    """Limit the threads of a computation: those of few rows mostly wait.

    Only OpenMP's, which each thread sets for itself.
    """
    limit = 1 if num_rows < _MIN_ROWS_OF_THREADS else num_threads
    # A new thread's first computation would overwrite the limit by PyTorch's number.
    torch.get_num_threads()
    return threadpool_limits(limit, 'openmp')


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for products in bfloat16."""
    if device.type != 'cpu':
        return device.type == 'cuda' and torch.cuda.is_bf16_supported()
    able: dict[str, Any] = getattr(torch.cpu, 'get_capabilities', dict)()
    return any(able.get(name) for name in ('amx_bf16', 'avx512_bf16', 'arm_bf16'))


def fast_products(device: torch.device) -> torch.autocast:
    """Compute products in bfloat16 if this is fast."""
    # Within a caller's autocast a cache would keep the parameters of the first step.
    is_fast = has_fast_bfloat16(device)
    return torch.autocast(device.type, torch.bfloat16, is_fast, cache_enabled=False)


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
