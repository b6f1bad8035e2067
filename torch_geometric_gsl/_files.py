"""Files that are there as a whole or not at all, and tensors in them."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a draft, which takes a file's place once it is written."""
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    os.close(handle)
    try:
        yield Path(name)
        # `mkstemp` lets nobody else read it.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_tensors(content: dict[str, Any], path: str | Path) -> None:
    """Replace a file by plain values and tensors."""
    with replacing(path) as draft:
        torch.save(content, draft)


def read_tensors(path: str | Path, what: str, device: Any = 'cpu') -> dict[str, Any]:
    """Read what :func:`write_tensors` wrote; nothing in the file is executed."""
    try:
        content = torch.load(path, weights_only=True, map_location=device)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:
        # Without the advice of PyTorch to trust the file.
        refused = re.search(r'GLOBAL (\S{1,100})', str(error))
        reason = str(error).partition('\n')[0]
        if 'weights_only' in reason:
            reason = 'it is no file of plain values and tensors'
        if refused:
            reason = f'it refers to {refused[1]}, which is not loaded'
        raise OSError(f"'{path}' holds no {what}: {reason}") from error
    if not isinstance(content, dict):
        raise OSError(f"'{path}' holds no {what} (got a {type(content).__name__})")
    return content
