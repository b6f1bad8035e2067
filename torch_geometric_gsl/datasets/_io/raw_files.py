"""Read features and labels from raw files of public benchmarks, without the graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_gsl.datasets._io.safe_npz import open_npz
from torch_geometric_gsl.datasets._io.safe_pickle import (
    SafeUnpickler,
    StandIn,
    read_pickle,
    refusal,
    to_numbers,
)

# SciPy has moved the class.
_CSR_MATRIX = (('scipy.sparse.csr', 'csr_matrix'), ('scipy.sparse._csr', 'csr_matrix'))
_CSR_PARTS = ('data', 'indices', 'indptr', 'shape')


class Entries(NamedTuple):
    """A feature matrix as its non-zero entries."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float32]
    shape: tuple[int, int]

    def to_sparse(self) -> Tensor:
        """Return the coalesced COO tensor without explicit zeros."""
        keep = self.value != 0
        index = np.stack([self.row[keep], self.column[keep]])
        value = torch.from_numpy(self.value[keep])
        sparse = torch.sparse_coo_tensor(
            torch.from_numpy(index), value, self.shape, check_invariants=True
        )
        return sparse.coalesce()


def damaged(path: Path, reason: object) -> OSError:
    """Return the error of a damaged raw file."""
    return OSError(f"'{path}' is damaged ({reason}): delete it to download it again")


def read_planetoid(paths: list[Path]) -> tuple[Entries, NDArray[np.int64]]:
    """Read CiteSeer or PubMed."""
    first, second = _rows(paths[0]), _rows(paths[1])
    labels = [_one_hot(path) for path in paths[2:4]]
    nodes = _node_numbers(paths[4])
    for path, got, expected in (
        (paths[1], second.shape, (nodes.size, first.shape[1])),
        (paths[2], labels[0].shape[0], first.shape[0]),
        (paths[3], labels[1].shape, (nodes.size, labels[0].shape[1])),
        (paths[4], int(nodes.min()), first.shape[0]),
    ):
        if got != expected:
            raise damaged(path, f'it must give {expected}, not {got}')
    # Some nodes of CiteSeer are in neither part: they have no words, and class 0.
    num_nodes = int(nodes.max()) + 1
    entries = Entries(
        np.concatenate([first.row, nodes[second.row]]),
        np.concatenate([first.column, second.column]),
        np.concatenate([first.value, second.value]),
        (num_nodes, first.shape[1]),
    )
    y = np.zeros(num_nodes, dtype=np.int64)
    y[: first.shape[0]] = labels[0].argmax(axis=1)
    y[nodes] = labels[1].argmax(axis=1)
    return entries, y


def _rows(path: Path) -> Entries:
    matrix = load_matrix(str(path))
    if 'indptr' not in matrix:
        raise damaged(path, 'it holds no sparse matrix')
    return _entries(path, **matrix)


def _entries(
    path: Path,
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[Any],
) -> Entries:
    """Return the entries of a CSR matrix, once its parts are seen to agree."""
    if (
        any(part.ndim != 1 for part in (data, indices, indptr, shape))
        or data.dtype.kind not in 'iuf'
        or any(part.dtype.kind not in 'iu' for part in (indices, indptr, shape))
        or shape.size != 2
        or indptr.size != shape[0] + 1
        or indptr[0] != 0
        or (np.diff(indptr) < 0).any()
        or not indptr[-1] == data.size == indices.size
        or not 0 <= indices.min(initial=0) <= indices.max(initial=0) < shape[1]
        or not np.isfinite(data).all()
    ):
        raise damaged(path, 'its parts make no sparse matrix')
    row = np.repeat(np.arange(shape[0]), np.diff(indptr))
    size = (int(shape[0]), int(shape[1]))
    return Entries(row, indices.astype(np.int64), data.astype(np.float32), size)


def load_matrix(path: str) -> dict[str, NDArray[Any]]:
    """Read one pickled matrix; nothing in the file is executed."""
    found = read_pickle(path, _MatrixUnpickler)
    if type(found) is not _SparseRows:
        return {'data': to_numbers(found, 'data', path)}
    state = getattr(found, 'state', {})
    shape = state.get('_shape')
    parts = {**state, 'shape': list(shape) if type(shape) is tuple else None}
    return {name: to_numbers(parts.get(name), name, path) for name in _CSR_PARTS}


class _SparseRows(StandIn):
    """Stand in for SciPy's matrix, and keeps its attributes."""

    __slots__ = ('state',)

    def __setstate__(self, state: object) -> None:
        if type(state) is not dict:
            raise refusal('a matrix of unknown form')
        self.state = state


class _MatrixUnpickler(SafeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CSR_MATRIX:
            return _SparseRows
        return super().find_class(module, name)


def _one_hot(path: Path) -> NDArray[Any]:
    labels = load_matrix(str(path))['data']
    if labels.ndim != 2:
        raise damaged(path, f'its labels have the shape {labels.shape}')
    return labels


def _node_numbers(path: Path) -> NDArray[np.int64]:
    try:
        nodes = np.array(path.read_text(encoding='ascii').split(), dtype=np.int64)
    except (OverflowError, ValueError) as error:
        raise damaged(path, error) from error
    if nodes.size == 0 or np.unique(nodes).size < nodes.size:
        raise damaged(path, 'it must list each test node once')
    return nodes


def read_wikipedia(paths: list[Path]) -> tuple[Entries, NDArray[np.int64]]:
    """Read Chameleon or Squirrel."""
    (path,) = paths
    rows, labels = [], []
    with path.open('rb') as file:
        try:
            next(file, None)  # The names of the columns.
            for number, line in enumerate(file):
                node, features, label = line.split(b'\t')
                if int(node) != number:
                    raise ValueError(f'node {number} is missing')
                rows.append(_digits(features))
                labels.append(int(label))
            x, y = np.stack(rows), np.array(labels, dtype=np.int64)
        except (OverflowError, ValueError) as error:
            raise damaged(path, f'line {len(labels) + 2}: {error}') from error
    row, column = x.nonzero()
    value = x[row, column].astype(np.float32)
    return Entries(row, column, value, (x.shape[0], x.shape[1])), y


def _digits(text: bytes) -> NDArray[np.uint8]:
    """Return digits that stand between commas."""
    characters = np.frombuffer(text, dtype=np.uint8)
    digits: NDArray[np.uint8] = characters[::2] - ord('0')
    if text.endswith(b',') or (digits > 9).any() or (characters[1::2] != 44).any():
        raise ValueError('features must be digits between commas')
    return digits


def read_coauthor(paths: list[Path]) -> tuple[Entries, NDArray[np.int64]]:
    """Read CS or Physics: whether a keyword occurs, not how often, as PyG does."""
    (path,) = paths
    with open_npz(path, damaged) as reads:
        parts = {name: reads[f'attr_{name}']() for name in _CSR_PARTS}
        y = reads['labels']()
    entries = _entries(path, **parts)
    if y.dtype.kind not in 'iu' or y.shape != (entries.shape[0],):
        raise damaged(path, f'its labels have the shape {y.shape}')
    ones = (entries.value > 0).astype(np.float32)
    return entries._replace(value=ones), y.astype(np.int64)
