import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from torch_geometric_gsl.datasets import load_dataset

X, Y = np.ones((3, 2)), np.array([0, 1, 0])


def test_npz(tmp_path):
    path = tmp_path / 'my.npz'
    x = np.array([[1.0, 2], [3, 4], [3, 4]])
    np.savez(path, x=x, y=np.array([7, 5, 7]), z=np.array([{}]))
    data = load_dataset(path)
    assert data.x.tolist() == x.tolist()
    np.savez(path, x=np.asfortranarray(x).astype('>f4'), y=np.array([7, 5, 7]))
    assert load_dataset(path).x.tolist() == x.tolist()
    assert (data.y.tolist(), data.class_names) == ([1, 0, 1], ['5', '7'])
    assert data.x.dtype == torch.float32
    assert load_dataset(path, standardize=True).x.mean(dim=0).tolist() == [0, 0]

    np.savez_compressed(path, features=x.astype(int), kind=np.array(['u', 'v', 'u']))
    data = load_dataset(path, label='kind')
    assert data.x.tolist() == x.tolist()
    assert (data.y.tolist(), data.class_names) == ([0, 1, 0], ['u', 'v'])


@pytest.mark.parametrize(
    ('arrays', 'text'),
    [
        ({'a': X, 'b': X, 'y': Y}, r"array 'x' of features \(got \['a', 'b', 'y'\]\)"),
        ({'x': X}, r"must have an array 'y' of labels \(got \['x'\]\)"),
        ({'x': X, 'y': Y[:2]}, r"'y' in .* vector of 3 classes.* \(got int64 of shape"),
        ({'x': X, 'y': Y[:, None]}, r"'y' in .* vector of 3 classes"),
        ({'x': X, 'y': Y / 1.0}, r"'y' in .* vector of 3 classes.* \(got float64"),
        ({'x': X, 'y': Y * 0}, r"'y' in .* at least two classes \(got \{0\}\)"),
        ({'x': X[0], 'y': Y}, r"'x' in .* must be a matrix .* \(got float64 of shape"),
        ({'x': X[:, :0], 'y': Y}, r"'x' in .* must be a matrix of numbers"),
        ({'x': X * 1j, 'y': Y}, r"'x' in .* must be a matrix .* \(got complex128"),
        ({'x': np.array([{}]), 'y': Y}, r'arrays of numbers \(Object arrays cannot be'),
        ({'x': X, 'y': np.array(['a', 'b', ''])}, r"missing \(got '' for row 2\)"),
        ({'x': X, 'y': np.array(['a', ' NaN', 'b'])}, r"\(got ' NaN' for row 1\)"),
        ({'x': X * np.nan, 'y': Y}, r'finite features \(got 6 that are not'),
    ],
)
def test_damaged_npz(tmp_path, arrays, text):
    path = tmp_path / 'my.npz'
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


STATE = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4, 2)}\n"
SIZE = len(STATE).to_bytes(2, 'little')


@pytest.mark.parametrize(
    'member',
    [
        b'',
        b'no array',
        b'\x93NUMPY\x07\x00',
        b'\x93NUMPY\x01\x00' + SIZE + STATE + X.tobytes(),  # A row too few.
        b'\x93NUMPY\x01\x00' + SIZE + b'(' * len(STATE) + X.tobytes(),
    ],
)
def test_a_damaged_array_is_told(tmp_path, member):
    path = tmp_path / 'my.npz'
    np.savez(path, y=Y)
    with zipfile.ZipFile(path, 'a') as archive:
        archive.writestr('x.npy', member)
    with pytest.raises(ValueError, match=rf"'{path}' must (hold|be a matrix)"):
        load_dataset(path)


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    np.savez(tmp_path / 'my.npz', x=X, y=Y)
    monkeypatch.setattr(np, 'load', Mock(side_effect=MemoryError('too little')))
    with pytest.raises(MemoryError, match='too little'):
        load_dataset(tmp_path / 'my.npz')
