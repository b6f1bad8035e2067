"""Read arrays out of an ``.npz`` archive without believing what it claims.

NumPy allocates the shape that a header states before it reads a value. Here an array
larger than the file is first counted: a small file cannot ask for much memory.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl.datasets._io.damage import ERRORS

_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# Python's parser raises these, the first two where the header is nested too deeply.
_UNPARSED = (MemoryError, RecursionError, SyntaxError, TokenError)
_CHUNK_BYTES = 2**20


@contextmanager
def open_npz(
    path: Path, damaged: Callable[[Path, str], Exception]
) -> Iterator[dict[str, Callable[[], NDArray[Any]]]]:
    """Open an archive that :func:`numpy.savez` has written; nothing is unpickled.

    Args:
        path (pathlib.Path): The file.
        damaged (callable): Makes an error of the file and the reason.

    Returns:
        A function that reads the array, for each name in the order of the file.

    Raises:
        OSError: If the file cannot be opened.
        Exception: That of :obj:`damaged`, if it is no archive, two arrays share a name,
            or one of those that are read is damaged or states more than the file holds.
    """
    size = path.stat().st_size
    with path.open('rb') as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                names = [member.filename.removesuffix('.npy') for member in members]
                if twice := [n for n, count in Counter(names).items() if count > 1]:
                    raise ValueError(f'it holds more than one array named {twice}')
                reads = [partial(_read, archive, member, size) for member in members]
                yield dict(zip(names, reads, strict=True))
        except (*ERRORS, OSError) as error:
            # NumPy's next sentence may advise to load the file all the same.
            reason = re.split(r'\.\s', str(error))[0] or type(error).__name__
            raise damaged(path, reason) from error


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
