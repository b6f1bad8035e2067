"""Read arrays out of an ``.npz`` archive without believing what it claims.

NumPy allocates the shape that a header states before it reads a value. Here the shape
must agree with the size that the archive lists, and no more than that is unpacked.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from torch_geometric_gsl._damage import ERRORS
from torch_geometric_gsl.datasets._io.labels import (
    check_labels,
    find_missing,
    read_targets,
)

_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# Python's parser raises these, the first two where the header is nested too deeply.
_UNPARSED = (MemoryError, RecursionError, SyntaxError, TokenError)


def read_npz(
    path: Path,
    label: str | None,
    task: str | None = None,
    missing: Sequence[str] | None = None,
) -> Data:
    """Read a matrix of features and a vector of labels."""
    label = 'y' if label is None else label
    with open_npz(path, _no_arrays) as reads:
        others = [name for name in reads if name != label]
        feature = others[0] if len(others) == 1 else 'x'
        arrays = {name: reads[name]() for name in (feature, label) if name in reads}
    for name, what in ((label, 'labels'), (feature, 'features')):
        if name not in arrays:
            raise ValueError(
                f"'{path}' must have an array '{name}' of {what} (got {list(reads)})"
            )
    x, y = arrays[feature], arrays[label]
    if x.dtype.kind not in 'biuf' or x.ndim != 2 or 0 in x.shape:
        raise ValueError(
            f"'{feature}' in '{path}' must be a matrix of numbers, one row a node "
            f'(got {x.dtype} of shape {x.shape})'
        )
    where = f"'{label}' in '{path}'"
    check_labels(y, where, len(x), 'biuU', task)
    labels = y.tolist()
    if (found := find_missing(labels, missing)) is not None:
        place, name = found
        raise ValueError(f'{where} must not be missing (got {name!r} for row {place})')
    targets = read_targets(labels, where, task)
    # Values that are too large become infinite, and are refused as such.
    with np.errstate(over='ignore'):
        kind = np.float32 if x.dtype == np.float32 else np.float64
        features = torch.from_numpy(x.astype(kind))
    return Data(x=features, **targets)


def _no_arrays(path: Path, reason: str) -> ValueError:
    return ValueError(f"'{path}' must hold arrays of numbers ({reason})")


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
                if any(member.compress_size > size for member in members):
                    raise ValueError(f'a member claims more than {size:,} bytes')
                reads = [partial(_read, archive, member) for member in members]
                yield dict(zip(names, reads, strict=True))
        except (*ERRORS, OSError) as error:
            # NumPy's next sentence may advise to load the file all the same.
            reason = re.split(r'\.\s', str(error))[0] or type(error).__name__
            raise damaged(path, reason) from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _READ_HEADER:
            raise ValueError(f'its arrays have the unknown format {version}')
        try:
            shape, fortran, dtype = _READ_HEADER[version](stream)
        except _UNPARSED as error:
            raise ValueError('the header of an array cannot be parsed') from error
        if dtype.hasobject:
            raise ValueError('Object arrays cannot be loaded without running code')
        size = math.prod(shape) * dtype.itemsize
        held = member.file_size - stream.tell()
        if held != size:
            raise ValueError(
                f"'{member.filename}' states the shape {shape} of {size:,} bytes, "
                f'but holds {held:,}'
            )
        content = stream.read(size)
    array: NDArray[Any] = np.ndarray(
        shape, dtype, content, order='F' if fortran else 'C'
    )
    return array
