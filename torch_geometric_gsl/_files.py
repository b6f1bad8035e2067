"""Replace files as a whole, and read and write tensors in them."""

from __future__ import annotations

import os
import pickle
import re
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

# Readers of pickles and archives raise these on a damaged file: RuntimeError where it
# seems to be encrypted (the documentation of pickle leaves the list open).
ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError),
    *(LookupError, RuntimeError, TypeError, ValueError, struct.error, zlib.error),
    *(pickle.UnpicklingError, zipfile.BadZipFile),
)


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
    """Return a value with the texts and numbers of NumPy in it as those of Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        plain = {plain_value(k): plain_value(v) for k, v in value.items()}
        # What is plain stays as it is: a `state_dict` has attributes.
        pairs = zip(value.items(), plain.items(), strict=True)
        is_same = all(a is c and b is d for (a, b), (c, d) in pairs)
        return value if is_same else plain
    if type(value) in (list, tuple):
        items = [plain_value(item) for item in value]
        is_same = all(a is b for a, b in zip(value, items, strict=True))
        return value if is_same else type(value)(items)
    return value


def write_tensors(content: dict[str, Any], path: str | Path) -> None:
    """Replace a file by plain values and tensors, if they can be read again."""
    with replacing(path) as draft:
        torch.save(plain_value(content), draft)
        try:
            torch.load(draft, weights_only=True, map_location='meta')
        except pickle.UnpicklingError as error:
            name = refused_global(error)
            reason = str(error) if name is None else f'it refers to {name}'
            raise ValueError(
                f"'{path}' is left as it is: what it would hold could not be read "
                f'again ({reason}, which is not loaded)'
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
        except (*ERRORS, OSError) as error:
            check_memory(error, stream.seek(0, os.SEEK_END))
            reason = str(error).partition('\n')[0]
            if (name := refused_global(error)) is not None:
                reason = f'it refers to {name}, which is not loaded'
            elif 'weights_only' in reason:  # Advice of PyTorch to trust the file.
                reason = 'it is no file of plain values and tensors'
            raise OSError(f"'{path}' holds no {what}: {reason}") from error
    if not isinstance(content, kind):
        raise OSError(f"'{path}' holds no {what} (got a {type(content).__name__})")
    return content


def check_memory(error: Exception, size: int) -> None:
    """Raise :class:`MemoryError` if an error says that torch has no memory for a file.

    A file that asks for more than it can hold is damaged.
    """
    found = re.search(r'tried to allocate (\d+) bytes', str(error))
    if isinstance(error, RuntimeError) and found and int(found[1]) <= size:
        raise MemoryError(str(error).splitlines()[0]) from error


def refused_global(error: Exception) -> str | None:
    """Return what torch refused to load, without its advice to trust the file."""
    found = re.search(r'GLOBAL (\S{1,100})', str(error))
    return found[1] if found else None


def damaged(path: Path, reason: object) -> OSError:
    """Return the error of a damaged raw file."""
    return OSError(f"'{path}' is damaged ({reason}): delete it to download it again")


def _damaged_part(stream: IO[bytes]) -> str | None:
    """Return a part whose check sum is wrong, which PyTorch would not notice."""
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive.testzip()
    except zipfile.BadZipFile:
        return None  # PyTorch says what is wrong.
    finally:
        stream.seek(0)
