"""Columns too large to be scaled: an error, without a warning before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets import load_dataset
from torch_geometric_gsl.datasets._standardize import standardize_columns

LARGE = 'finite features .got {} that are not, or are too large for float32, the first'


@pytest.mark.parametrize(
    ('values', 'count'),
    [
        ([1e300, 1.0, 2.0], 1),  # The variance overflows.
        ([1.7e308, 1.7e308, -5.0], 2),  # The sum does, too.
        ([1e300, -1e300, 1e200], 3),
    ],
)
@pytest.mark.parametrize('kind', ['csv', 'npz', 'pt'])
def test_values_too_large_to_standardize(
    tmp_path: Path, kind: str, values: list[float], count: int
) -> None:
    path = tmp_path / f'my.{kind}'
    x, y = np.stack([[1.0, 2.0, 4.0], values], axis=1), np.array([0, 1, 0])
    if kind == 'csv':
        rows = [f'{x[i, 0]},{y[i]},{x[i, 1]}' for i in range(3)]
        path.write_text('\n'.join(['small,y,large', *rows]))
    elif kind == 'npz':
        np.savez(path, x=x, y=y)
    else:
        torch.save(Data(x=torch.from_numpy(x), y=torch.from_numpy(y)), path)
    column = "'large'" if kind == 'csv' else '1'
    text = rf"^'{path}' must have {LARGE.format(count)} in column {column}\)$"
    with pytest.raises(ValueError, match=text):
        load_dataset(path, label='y' if kind == 'csv' else None, standardize=True)


def test_the_column_of_sparse_features(tmp_path: Path) -> None:
    path = tmp_path / 'my.pt'
    x = torch.tensor([[0.0, 0, 1], [0, 0, 1e39], [2, 0, 0]], dtype=torch.float64)
    torch.save(Data(x=x.to_sparse_csr(), y=torch.tensor([0, 1, 0])), path)
    with pytest.raises(ValueError, match=LARGE.format(1) + r' in column 2\)$'):
        load_dataset(path)


def test_values_beyond_float64(tmp_path: Path) -> None:
    path, x = tmp_path / 'my.npz', np.ones((3, 2), dtype=np.longdouble)
    x[1, 1] = np.longdouble('1e400')
    np.savez(path, x=x, y=np.array([0, 1, 0]))
    for standardize in (False, True):
        with pytest.raises(ValueError, match=LARGE.format(1) + r' in column 1\)$'):
            load_dataset(path, standardize=standardize)


def test_a_column_that_is_infinite_throughout(tmp_path: Path) -> None:
    x, path = np.stack([np.full(3, np.inf), np.arange(3)], axis=1), tmp_path / 'my.npz'
    np.savez(path, x=x, y=np.array([0, 1, 0]))
    with pytest.raises(ValueError, match=LARGE.format(3) + r' in column 0\)$'):
        load_dataset(path, standardize=True)


def test_large_and_small_values_that_can_be_scaled() -> None:
    x = np.array([[1e100, 1e-100, 1e-200], [3e100, 3e-100, 3e-200]])
    out = standardize_columns(x)
    np.testing.assert_allclose(out[:, :2], [[-1, -1], [1, 1]])
    # Squares of the last column underflow; in float32 it is zero.
    assert np.abs(out[:, 2]).max() < 1e-199
