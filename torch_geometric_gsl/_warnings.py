"""Warnings that point at the caller's own line, and one that is not for users."""

from __future__ import annotations

import inspect
import os
import warnings
from types import FrameType

# A module calls its `forward` through PyTorch, and layers of models call each other.
_INSIDE = frozenset({'torch', 'torch_geometric', __name__.partition('.')[0]})


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn in the name of the first frame outside the package, PyTorch and PyG."""
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
