"""Read arrays out of an ``.npz`` archive without believing what it claims.

NumPy allocates the shape that a header states before it reads a value. Here the shape
must agree with the size that the archive lists, and no more than that is unpacked.
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


@contextmanager
def open_npz(
    path: Path, damaged: Callable[[Path, str], Exception]
) -> Iterator[dict[str, Callable[[], NDArray[Any]]]]:
    """Open an archive that :func:`numpy.savez` has written; nothing is unpickled."""
    size = path.stat().st_size
    with path.open('rb') as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                names = [member.filename.removesuffix('.npy') for member in members]
                if twice := [n for n, count in Counter(names).items() if count > 1]:
                    raise ValueError(f'it holds more than one array named {twice}')
                # To read a member allocates all that it claims to occupy.
                if max((m.compress_size for m in members), default=0) > size:
                    raise ValueError(f'a member claims more than {size:,} bytes')
                reads = [partial(_read, archive, member) for member in members]
                yield dict(zip(names, reads, strict=True))
        except (*ERRORS, OSError) as error:
            # NumPy's next sentence may advise to load the file all the same.
            reason = re.split(r'\.\s', str(error))[0] or type(error).__name__
            raise damaged(path, reason) from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:
        shape, fortran, dtype = _read_header(stream)
        if dtype.hasobject:
            raise ValueError('Object arrays cannot be loaded without running code')
        size, place = math.prod(shape) * dtype.itemsize, stream.tell()
        held = member.file_size - place
        # No more is unpacked than the header states, nor more than the archive lists.
        content = stream.read(size + 1) if held == size else b''
    if len(content) != size:
        held = len(content) if held == size else held
        raise ValueError(
            f"'{member.filename}' states the shape {shape} of {size:,} bytes, "
            f'but holds {held:,}'
        )
    array: NDArray[Any] = np.ndarray(
        shape, dtype, content, order='F' if fortran else 'C'
    )
    return array


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        raise ValueError(f'its arrays have the unknown format {version}')
    try:
        return _READ_HEADER[version](stream)
    except _UNPARSED as error:
        raise ValueError('the header of an array cannot be parsed') from error
