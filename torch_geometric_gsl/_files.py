"""Replace files as a whole, and read and write tensors in them."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a draft, which takes a file's place once it is written."""
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        # `mkstemp` lets nobody else read it.
        umask = os.umask(0)
        os.umask(umask)
        draft.chmod(0o666 & ~umask)
        os.replace(draft, path)
    finally:  # There is none left where it took its place.
        draft.unlink(missing_ok=True)


def plain_value(value: Any) -> Any:
    """Convert the texts and numbers of NumPy inside a value to those of Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict) and not hasattr(value, '_metadata'):  # A `state_dict`.
        return {plain_value(k): plain_value(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_value, value))
    return value


def write_tensors(content: dict[str, Any], path: str | Path) -> None:
    """Replace a file by plain values and tensors, if they can be read again."""
    with replacing(path) as draft:
        torch.save(plain_value(content), draft)
        try:
            torch.load(draft, weights_only=True, map_location='meta')
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"'{path}' is left as it is: what it would hold could not be read "
                f'again ({_reason(error)})'
            ) from error


def read_tensors(path: str | Path, what: str, device: Any = 'cpu') -> dict[str, Any]:
    """Read a file of :func:`write_tensors`; nothing in it is executed."""
    with Path(path).open('rb') as stream:
        return load_tensors(stream, path, what, device)


def load_tensors(
    stream: IO[bytes], path: str | Path, what: str, device: Any = 'cpu'
) -> dict[str, Any]:
    """Load the content of a file of that name; nothing in it is executed."""
    if (part := _damaged_part(stream)) is not None:
        raise OSError(f"'{path}' holds no {what}: its part '{part}' is damaged")
    content: dict[str, Any] = load_safely(stream, path, what, dict, device)
    return content


def load_safely(
    stream: IO[bytes], path: str | Path, what: str, kind: type, device: Any = 'cpu'
) -> Any:
    """Load an object of a kind whose parts PyTorch allows."""
    with warnings.catch_warnings():
        # Of the protocol of a pickle, which is refused anyway.
        warnings.filterwarnings('ignore', 'Detected pickle protocol')
        try:
            content = torch.load(stream, weights_only=True, map_location=device)
        except MemoryError:
            raise
        except Exception as error:  # A damaged archive or pickle may raise any.
            _check_memory(error, stream.seek(0, os.SEEK_END))
            raise OSError(f"'{path}' holds no {what}: {_reason(error)}") from error
    if not isinstance(content, kind):
        raise OSError(f"'{path}' holds no {what} (got a {type(content).__name__})")
    return content


def _check_memory(error: Exception, size: int) -> None:
    """Raise :class:`MemoryError` if torch had no memory for a file of that size.

    A file that asks for more than it can hold is damaged.
    """
    found = re.search(r'tried to allocate (\d+) bytes', str(error))
    if isinstance(error, RuntimeError) and found and int(found[1]) <= size:
        raise MemoryError(str(error).splitlines()[0]) from error


def _reason(error: Exception) -> str:
    """Return why torch refused a file, without its advice to trust the file."""
    if found := re.search(r'GLOBAL (\S{1,100})', str(error)):
        return f'it refers to {found[1]}, which is not loaded'
    reason = str(error).partition('\n')[0]
    if 'weights_only' in reason:  # Advice of PyTorch to trust the file.
        reason = 'it is no file of plain values and tensors'
    return reason


def _damaged_part(stream: IO[bytes]) -> str | None:
    """Return a part whose check sum is wrong, which PyTorch would not notice."""
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive.testzip()
    except zipfile.BadZipFile:
        return None  # PyTorch says what is wrong.
    finally:
        stream.seek(0)
