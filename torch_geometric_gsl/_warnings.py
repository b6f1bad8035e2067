"""Warnings that point at the caller's own line, and one that is not for users."""

from __future__ import annotations

import inspect
import os
import warnings
from functools import cache
from threading import Lock

import torch
import torch_geometric

# A module calls its `forward` through PyTorch, and layers of models call each other.
_INSIDE = tuple(
    os.path.join(os.path.dirname(os.path.abspath(file)), '')
    for file in (__file__, torch.__file__, torch_geometric.__file__)
)
_LOCK = Lock()


def warn_caller(message: str, category: type[Warning]) -> None:
    r"""Warns in the name of the first frame outside the package and PyTorch.

    By default Python shows a warning once for each line that it points at: one that
    points into the package would be shown for the first caller alone.

    Args:
        message (str): The text.
        category (type): The class of the warning.
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def hush_csr() -> None:
    r"""Lets PyTorch say unheard, once per process, that CSR tensors are a beta feature.

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
