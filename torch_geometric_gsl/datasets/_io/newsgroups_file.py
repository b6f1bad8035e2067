"""Read scikit-learn's cache of the twenty newsgroups, a pickle, without trust."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl.datasets._io.raw_files import damaged
from torch_geometric_gsl.datasets._io.safe_pickle import (
    DType,
    Function,
    SafeUnpickler,
    read_pickle,
    to_numbers,
)

# scikit-learn has moved the class.
_BUNCH = (
    ('sklearn.utils._bunch', 'Bunch'),
    ('sklearn.utils', 'Bunch'),
    ('sklearn.datasets.base', 'Bunch'),
)
# Six times the real posts: a small file cannot ask for more memory.
_MAX_BYTES = 2**28


def read_posts(
    path: Path, groups: Sequence[str]
) -> tuple[list[str], NDArray[np.int64]]:
    """Read the posts of some groups; nothing in the file is executed."""
    found = read_pickle(str(path), _BunchUnpickler, partial(_decompress, path))
    parts = [_part(path, found, name) for name in ('train', 'test')]
    texts = [text for part in parts for text in part[0]]
    number = np.concatenate([_renumber(path, *part[1:], groups) for part in parts])
    kept = np.flatnonzero(number >= 0)
    # The order of the loader, which is that of NumPy's older generator.
    order = np.arange(kept.size)
    np.random.RandomState(42).shuffle(order)
    kept = kept[order]
    return [texts[i] for i in kept], number[kept]


def _decompress(path: Path, content: bytes) -> bytes:
    decoder = zlib.decompressobj()
    try:
        unpacked = decoder.decompress(content, _MAX_BYTES)
    except zlib.error as error:
        raise damaged(path, error) from error
    if decoder.unconsumed_tail:
        raise damaged(path, f'it expands to more than {_MAX_BYTES:,} bytes')
    if not decoder.eof:
        raise damaged(path, 'it ends too early')
    return unpacked


def _part(path: Path, found: object, name: str) -> tuple[list[str], Any, list[str]]:
    """Return the texts, the numbers of their groups, and the names of all groups."""
    part = found.get(name) if type(found) is dict else None
    if type(part) is not _Bunch:
        raise damaged(path, f"it has no part '{name}'")
    texts, names = part.get('data'), part.get('target_names')
    if not _is_texts(texts) or not _is_texts(names):
        raise damaged(path, f"'data' of its part '{name}' must be texts")
    try:
        target = to_numbers(part.get('target'), 'target', str(path))
    except ValueError as error:
        raise damaged(path, error) from error
    if (
        target.dtype.kind not in 'iu'
        or target.shape != (len(texts),)
        or not 0 <= target.min(initial=0) <= target.max(initial=0) < len(names)
    ):
        raise damaged(path, f"'target' of its part '{name}' must be group numbers")
    return texts, target, names


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return type(value) is list and all(type(item) is str for item in value)


def _renumber(
    path: Path, target: NDArray[Any], names: list[str], groups: Sequence[str]
) -> NDArray[np.int64]:
    """Return labels of the posts in :obj:`groups`, and -1 for all others."""
    if missing := [group for group in groups if group not in names]:
        raise damaged(path, f'it has no posts of {missing}')
    label = np.full(len(names), -1, dtype=np.int64)
    label[[names.index(group) for group in groups]] = np.arange(len(groups))
    numbers: NDArray[np.int64] = label[target]
    return numbers


class _Bunch(dict[object, object]):
    """Stand in for scikit-learn's dictionary, which ignores its state as well."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class _TextDType(DType):
    """Stand in also for the type of file names, which are read past."""

    __slots__ = ()

    def __init__(
        self, name: object, align: object = False, copy: object = False
    ) -> None:
        if type(name) is str and re.fullmatch(r'U[1-9]\d{0,5}', name):
            self.dtype = np.dtype(name)
        else:
            super().__init__(name)


class _BunchUnpickler(SafeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _BUNCH:
            return _Bunch
        if (module, name) == ('numpy', 'dtype'):
            return Function(_TextDType)
        return super().find_class(module, name)
