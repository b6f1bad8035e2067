"""Replace files atomically, and read and write tensors."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces the file once it is written."""
    path = Path(path)
    if not path.parent.is_dir() or path.is_dir():
        raise FileNotFoundError(
            f"'path' must be a file in a folder that exists (got '{path}')"
        )
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        # `mkstemp` makes it readable by its owner only.
        umask = os.umask(0)
        os.umask(umask)
        draft.chmod(0o666 & ~umask)
        os.replace(draft, path)
    finally:  # It no longer exists once it has been moved.
        draft.unlink(missing_ok=True)


def plain_value(value: Any) -> Any:
    """Convert NumPy strings and numbers inside a value to Python ones."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict) and not hasattr(value, '_metadata'):  # A `state_dict`.
        return {plain_value(k): plain_value(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_value, value))
    return value


def write_tensors(content: dict[str, Any], path: str | Path) -> None:
    """Write plain values and tensors to a file, if they can be read back."""
    with replacing(path) as draft:
        torch.save(plain_value(content), draft)
        try:
            torch.load(draft, weights_only=True, map_location='meta')
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"'{path}' is unchanged: the new content could not be read back "
                f'({_reason(error)})'
            ) from error


def read_tensors(
    path: str | Path, what: str, kinds: Collection[str], device: Any = 'cpu'
) -> dict[str, Any]:
    """Read a file that an object of one of the named classes wrote, as data only."""
    with Path(path).open('rb') as stream:
        content = load_tensors(stream, path, what, device)
    kind = content.get('class', content.get('estimator'))
    if not isinstance(kind, str):
        raise OSError(f"'{path}' is not a valid {what} (got {[*content]})")
    if kind not in kinds:
        raise ValueError(
            f"'{path}' must hold a {' or a '.join(kinds)} (got a {kind}): use "
            f"'{kind}.load'"
        )
    return content


def load_tensors(
    stream: IO[bytes], path: str | Path, what: str, device: Any = 'cpu'
) -> dict[str, Any]:
    """Load a file of tensors without executing code."""
    if (part := _damaged_part(stream)) is not None:
        raise OSError(f"'{path}' is not a valid {what}: {part}")
    content: dict[str, Any] = load_safely(stream, path, what, dict, device)
    return content


def load_safely(
    stream: IO[bytes], path: str | Path, what: str, kind: type, device: Any = 'cpu'
) -> Any:
    """Load an object whose types PyTorch allows."""
    with warnings.catch_warnings():
        # Pickle protocols that are rejected anyway.
        warnings.filterwarnings('ignore', 'Detected pickle protocol')
        try:
            content = torch.load(stream, weights_only=True, map_location=device)
        except MemoryError:
            raise
        except Exception as error:  # A damaged archive or pickle may raise any.
            _check_memory(error, stream.seek(0, os.SEEK_END))
            raise OSError(
                f"'{path}' is not a valid {what}: {_reason(error)}"
            ) from error
    if not isinstance(content, kind):
        raise OSError(
            f"'{path}' is not a valid {what} (got a {type(content).__name__})"
        )
    return content


def _check_memory(error: Exception, size: int) -> None:
    """Raise :class:`MemoryError` if PyTorch ran out of memory for a file of this size.

    A file that requests more memory than its size is damaged.
    """
    found = re.search(r'tried to allocate (\d+) bytes', str(error))
    if isinstance(error, RuntimeError) and found and int(found[1]) <= size:
        raise MemoryError(str(error).splitlines()[0]) from error


def _reason(error: Exception) -> str:
    """Return why PyTorch rejected a file, without its advice to trust the file."""
    if found := re.search(r'GLOBAL (\S{1,100})', str(error)):
        return f'it refers to {found[1]}, which is not loaded'
    reason = str(error).partition('\n')[0]
    if 'weights_only' in reason:  # Advice of PyTorch to trust the file.
        reason = 'it does not hold plain values and tensors only'
    return reason


def _damaged_part(stream: IO[bytes]) -> str | None:
    """Describe a part with a wrong checksum, which PyTorch does not verify."""
    try:
        with zipfile.ZipFile(stream) as archive:
            part = archive.testzip()
        return None if part is None else f"its part '{part}' is damaged"
    except zipfile.BadZipFile:
        return 'it is truncated, or of another program'
    finally:
        stream.seek(0)
