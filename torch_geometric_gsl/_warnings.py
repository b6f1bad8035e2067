"""Warn at the caller's line, and silence a warning of PyTorch."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Lock
from types import FrameType

import torch

# A module calls its `forward` through PyTorch, models call layers, and a pipeline
# calls its steps.
_INSIDE = frozenset({'sklearn', 'torch', 'torch_geometric', __name__.partition('.')[0]})
_LOCK = Lock()
# The categories already warned about in the present call.
_GIVEN: ContextVar[set[type[Warning]] | None] = ContextVar('given', default=None)


@contextmanager
def one_of_each() -> Iterator[None]:
    """Warn once per category, not once per graph of a batch."""
    token = _GIVEN.set(set())
    try:
        yield
    finally:
        _GIVEN.reset(token)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the first frame outside the package and its libraries."""
    categories = _GIVEN.get()
    if categories is not None:
        if category in categories:
            return
        categories.add(category)
    # Python shows a warning once per line: one that points into the package would be
    # shown to the first caller only.
    frame = inspect.currentframe()
    level = 1
    while frame is not None and not _is_outside(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_outside(frame: FrameType) -> bool:
    """Return whether a frame runs user code, from a file or a prompt."""
    name = frame.f_globals.get('__name__')
    file = frame.f_code.co_filename
    if name is None:  # Code without a module, as `torch.fx` generates it.
        return not file.startswith('<')
    # PyG generates code in temporary files, each named after its module.
    is_template = os.path.basename(file).startswith(f'{name}_')
    return name.partition('.')[0] not in _INSIDE and not is_template


@cache
def silence_csr_warning() -> None:
    """Suppress PyTorch's beta warning for CSR, given once per process."""
    # Warning filters are shared by all threads, which must not change them at once.
    with _LOCK:
        _make_csr()


@cache
def _make_csr() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)
        offsets = torch.zeros(1, dtype=torch.long)
        none = torch.empty(0)
        torch.sparse_csr_tensor(
            offsets, none.long(), none, (0, 0), check_invariants=False
        )
