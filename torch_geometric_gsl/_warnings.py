"""Warnings that point at the caller's own line, and one that is not for users."""

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

# A module calls its `forward` through PyTorch, layers of models call each other, and a
# pipeline calls its steps.
_INSIDE = frozenset({'sklearn', 'torch', 'torch_geometric', __name__.partition('.')[0]})
_LOCK = Lock()
# The categories of warnings that the present call has given.
_GIVEN: ContextVar[set[type[Warning]] | None] = ContextVar('given', default=None)


@contextmanager
def one_of_each() -> Iterator[None]:
    """Give one warning of each category: the graphs of a batch all ask for the same."""
    token = _GIVEN.set(set())
    try:
        yield
    finally:
        _GIVEN.reset(token)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn in the name of the first frame outside the package and its libraries."""
    given = _GIVEN.get()
    if given is not None:
        if category in given:
            return
        given.add(category)
    # Python shows a warning once for each line that it points at: one that points
    # into the package would be shown for the first caller alone.
    frame, level = inspect.currentframe(), 1
    while frame is not None and not _is_outside(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_outside(frame: FrameType) -> bool:
    """Return whether a person wrote what a frame runs, in a file or at a prompt."""
    name, file = frame.f_globals.get('__name__'), frame.f_code.co_filename
    if name is None:  # Belongs to no module: `torch.fx` makes such code.
        return not file.startswith('<')
    # PyG fills templates into temporary files, each named after its module.
    is_template = os.path.basename(file).startswith(f'{name}_')
    return name.partition('.')[0] not in _INSIDE and not is_template


@cache
def silence_csr_warning() -> None:
    """Suppress PyTorch's beta warning for CSR, which it gives once per process."""
    # Filters of warnings belong to all threads, which must not change them at once.
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
