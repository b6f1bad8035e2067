"""Warnings that point at the caller's own line."""

from __future__ import annotations

import inspect
import os
import warnings

import torch
import torch_geometric

# A module calls its `forward` through PyTorch, and layers of models call each other.
_INSIDE = tuple(
    os.path.join(os.path.dirname(os.path.abspath(file)), '')
    for file in (__file__, torch.__file__, torch_geometric.__file__)
)


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
