"""Read features and labels from raw files of public benchmarks, without the graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_geometric_gsl._damage import damaged
from torch_geometric_gsl.datasets._io.npz_file import open_npz
from torch_geometric_gsl.datasets._io.safe_pickle import (
    StandIn,
    read_pickle,
    refusal,
    to_numbers,
)

_CSR_PARTS = ('data', 'indices', 'indptr', 'shape')


class _SparseRows(StandIn):
    """Stand in for SciPy's matrix, and keep its attributes."""

    def __setstate__(self, state: object) -> None:
        if type(state) is not dict:
            raise refusal('a matrix of unknown form')
        self.value = state


# SciPy has moved the class.
_MATRICES = {
    (module, 'csr_matrix'): _SparseRows
    for module in ('scipy.sparse.csr', 'scipy.sparse._csr')
}


def read_planetoid(paths: list[Path]) -> tuple[Tensor, Tensor]:
    """Read CiteSeer or PubMed."""
    first, second = _read_rows(paths[0]), _read_rows(paths[1])
    labels = [_read_one_hot(path) for path in paths[2:4]]
    nodes = _read_numbers(paths[4])
    for path, got, expected in (
        (paths[1], tuple(second.shape), (len(nodes), first.size(1))),
        (paths[2], labels[0].shape[0], first.size(0)),
        (paths[3], labels[1].shape, (len(nodes), labels[0].shape[1])),
        (paths[4], int(nodes.min()), first.size(0)),
    ):
        if got != expected:
            raise damaged(path, f'it must give {expected}, not {got}')
    # Some nodes of CiteSeer are in neither part: they have no words, and class 0.
    num_nodes = int(nodes.max()) + 1
    row, column = second.indices()
    index = torch.cat([first.indices(), torch.stack([nodes[row], column])], dim=1)
    value = torch.cat([first.values(), second.values()])
    x = _coalesce(index, value, (num_nodes, first.size(1)))
    y = torch.zeros(num_nodes, dtype=torch.long)
    y[: first.size(0)] = torch.from_numpy(labels[0].argmax(axis=1))
    y[nodes] = torch.from_numpy(labels[1].argmax(axis=1))
    return x, y


def _read_rows(path: Path) -> Tensor:
    found = read_pickle(path, _MATRICES)
    if type(found) is not _SparseRows:
        raise damaged(path, 'it holds no sparse matrix')
    state = found.value if type(found.value) is dict else {}
    shape = state.get('_shape')
    parts = {**state, 'shape': list(shape) if type(shape) is tuple else None}
    return _to_sparse(path, [_to_numbers(parts.get(n), n, path) for n in _CSR_PARTS])


def _to_numbers(value: object, name: str, path: Path) -> NDArray[Any]:
    try:
        return to_numbers(value, name, path)
    except ValueError as error:
        raise damaged(path, error) from error


def _to_sparse(path: Path, parts: list[NDArray[Any]]) -> Tensor:
    """Return a CSR matrix without explicit zeros, once its parts are seen to agree."""
    data, indices, indptr, shape = parts
    if (
        any(part.ndim != 1 for part in parts)
        or data.dtype.kind not in 'iuf'
        or any(part.dtype.kind not in 'iu' for part in parts[1:])
        or shape.size != 2
        # Neither sums nor differences of what a file states: they could wrap around.
        or not 0 <= shape[0] == indptr.size - 1
        or indptr[0] != 0
        or (indptr[1:] < indptr[:-1]).any()
        or not indptr[-1] == data.size == indices.size
        or not 0 <= indices.min(initial=0) <= indices.max(initial=0) < shape[1]
        or not np.isfinite(data).all()
    ):
        raise damaged(path, 'its parts make no sparse matrix')
    counts = torch.from_numpy(indptr.astype(np.int64)).diff()
    row = torch.arange(len(counts)).repeat_interleave(counts)
    index = torch.stack([row, torch.from_numpy(indices.astype(np.int64))])
    value = torch.from_numpy(data.astype(np.float32))
    keep = value != 0
    return _coalesce(index[:, keep], value[keep], tuple(shape.tolist()))


def _coalesce(index: Tensor, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    sparse = torch.sparse_coo_tensor(index, value, shape, check_invariants=True)
    return sparse.coalesce()


def _read_one_hot(path: Path) -> NDArray[Any]:
    labels = _to_numbers(read_pickle(path), 'data', path)
    if labels.ndim != 2:
        raise damaged(path, f'its labels have the shape {labels.shape}')
    return labels


def _read_numbers(path: Path) -> Tensor:
    try:
        nodes = np.array(path.read_text(encoding='ascii').split(), dtype=np.int64)
    except (OverflowError, ValueError) as error:
        raise damaged(path, error) from error
    if nodes.size == 0 or np.unique(nodes).size < nodes.size:
        raise damaged(path, 'it must list each test node once')
    return torch.from_numpy(nodes)


def read_wikipedia(paths: list[Path]) -> tuple[Tensor, Tensor]:
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
                rows.append(_read_digits(features))
                labels.append(int(label))
            x, y = np.stack(rows), np.array(labels, dtype=np.int64)
        except (OverflowError, ValueError) as error:
            raise damaged(path, f'line {len(labels) + 2}: {error}') from error
    return torch.from_numpy(x).float().to_sparse(), torch.from_numpy(y)


def _read_digits(text: bytes) -> NDArray[np.uint8]:
    """Return digits that stand between commas."""
    characters = np.frombuffer(text, dtype=np.uint8)
    digits: NDArray[np.uint8] = characters[::2] - ord('0')
    if text.endswith(b',') or (digits > 9).any() or (characters[1::2] != 44).any():
        raise ValueError('features must be digits between commas')
    return digits


def read_coauthor(paths: list[Path]) -> tuple[Tensor, Tensor]:
    """Read CS or Physics: whether a keyword occurs, not how often, as PyG does."""
    (path,) = paths
    with open_npz(path, damaged) as reads:
        parts = [reads[f'attr_{name}']() for name in _CSR_PARTS]
        y = reads['labels']()
    x = _to_sparse(path, parts)
    if y.dtype.kind not in 'iu' or y.shape != x.shape[:1]:
        raise damaged(path, f'its labels have the shape {y.shape}')
    x.values().gt_(0)
    return x, torch.from_numpy(y.astype(np.int64))
