"""Read arrays out of an ``.npz`` archive without believing what it claims.

NumPy allocates the shape that a header states before it reads a value. Here an array
larger than the file is first counted: a small file cannot ask for much memory.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# NumPy and zipfile raise these on a damaged file: RuntimeError where it seems to be
# encrypted, or compressed by an unknown method.
_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, KeyError, OSError, RuntimeError),
    *(TypeError, ValueError, zipfile.BadZipFile, zlib.error),
)
# Python's parser raises these, the first two where the header is nested too deeply.
_UNPARSED = (MemoryError, RecursionError, SyntaxError, TokenError)
_CHUNK_BYTES = 2**20


class DamagedArchiveError(ValueError):
    """An archive does not hold what it claims; the text tells the reason alone."""


def list_npz(path: Path) -> list[str]:
    r"""List the names of the arrays of an archive.

    Args:
        path (pathlib.Path): The file that :func:`numpy.savez` has written.

    Returns:
        list[str]: The names, in the order in which they are stored.

    Raises:
        OSError: If the file cannot be opened.
        DamagedArchiveError: If it is no archive, or two arrays share a name.
    """
    with _open(path) as archive:
        return list(_members(archive))


def load_npz(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    r"""Load arrays from an archive; nothing in it is unpickled.

    Args:
        path (pathlib.Path): The file that :func:`numpy.savez` has written.
        names (list[str]): The arrays to load; others are not read.

    Returns:
        dict[str, numpy.ndarray]: The array of each name.

    Raises:
        OSError: If the file cannot be opened.
        DamagedArchiveError: If it is no archive, two arrays share a name, a name is
            missing, or an array is damaged or claims more than the file holds.
    """
    size = path.stat().st_size
    with _open(path) as archive:
        members = _members(archive)
        if missing := [name for name in names if name not in members]:
            raise ValueError(f'it has no {missing}')
        return {name: _read(archive, members[name], size) for name in names}


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    with path.open('rb') as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                yield archive
        except _ERRORS as error:
            # NumPy's next sentence may advise to load the file all the same.
            reason = re.split(r'\.\s', str(error))[0] or type(error).__name__
            raise DamagedArchiveError(reason) from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by the names of their arrays, each of which is unique."""
    members = archive.infolist()
    names = [member.filename.removesuffix('.npy') for member in members]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f'it holds more than one array named {twice}')
    return dict(zip(names, members, strict=True))


def _read(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, file_size: int
) -> NDArray[Any]:
    """Return one array, once its values are seen to be there."""
    with archive.open(member) as stream:
        shape, dtype = _read_header(stream)
        size = math.prod(shape) * max(dtype.itemsize, 1)
        # Objects are pickled, and refused below.
        if size > file_size and not dtype.hasobject and not _has_bytes(stream, size):
            raise ValueError(
                f"'{member.filename}' states the shape {shape}, "
                f'but does not hold {size:,} bytes'
            )
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        raise ValueError(f'its arrays have the unknown format {version}')
    try:
        shape, _, dtype = _READ_HEADER[version](stream)
    except _UNPARSED as error:
        raise ValueError('the header of an array cannot be parsed') from error
    return shape, dtype


def _has_bytes(stream: IO[bytes], count: int) -> bool:
    while count > 0 and (chunk := stream.read(_CHUNK_BYTES)):
        count -= len(chunk)
    return count <= 0
