"""Files of features and classes: read alike, or refused."""

import re

import numpy as np
import pytest
import torch

from reproduction.datasets import load_dataset
from reproduction.datasets.user_file import MASKS

X, Y = np.array([[1.0, 2], [3, 4], [3, 4]]), np.array(['b', 'a', 'b'])
CSV = 'width,species,length\n1, b,2\n\n3,a,4\n3,b,4\n'


def write_csv(folder, text=CSV):
    (folder / 'my.csv').write_text(text, encoding='utf-8')
    return folder / 'my.csv'


def write_npz(folder, **changes):
    arrays = {'x': X, 'y': Y} | changes
    np.savez(folder / 'my.npz', **{k: v for k, v in arrays.items() if v is not None})
    return folder / 'my.npz'


def test_a_table_and_arrays(tmp_path, monkeypatch):
    arrays = load_dataset(write_npz(tmp_path))
    assert arrays.x.tolist() == X.tolist()
    assert (arrays.y.tolist(), arrays.class_names) == ([1, 0, 1], ['a', 'b'])
    monkeypatch.setenv('HOME', str(tmp_path))  # The home folder is known by its sign.
    write_csv(tmp_path)
    table = load_dataset('~/my.csv', label='species')
    assert torch.equal(table.y, arrays.y)
    assert table.class_names == arrays.class_names
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(table.x, scaled, rtol=1e-6)
    assert {table.x.dtype, arrays.x.dtype} == {torch.float32}


def test_masks(tmp_path):
    masks = dict(zip(MASKS, np.eye(3, dtype=bool), strict=True))
    data = load_dataset(write_npz(tmp_path, **masks))
    assert [data[name].tolist() for name in MASKS] == np.eye(3).tolist()


@pytest.mark.parametrize(
    ('text', 'reason'),
    [
        ('', 'not enough values'),
        (
            'width,kind\n1,a\n2,b',
            r"one of the columns \['width', 'kind'\], got 'species",
        ),
        ('width,species\n1,a\n2', 'inhomogeneous'),
        ('width,species\nwide,a\n2,b', "could not convert string to float: .*'wide'"),
        ('width,species\nnan,a\n2,b', 'features that are not finite'),
        ('width,species\n1,a\n2,a', r"classes \['a'\], less than two"),
        ('species\na\nb', r'features of shape \(2, 0\)'),
    ],
)
def test_refused_tables(tmp_path, text, reason):
    path = write_csv(tmp_path, text)
    with pytest.raises(ValueError, match=rf"'{path}' must hold .*\(.*{reason}"):
        load_dataset(path, label='species')


@pytest.mark.parametrize(
    ('changes', 'reason'),
    [
        ({'x': None}, "'x'"),
        ({'x': X[0]}, r'features of shape \(2,\) for labels of \(3,\)'),
        ({'y': Y[:2]}, r'for labels of \(2,\)'),
        ({'x': np.array([{}])}, 'Object arrays cannot be loaded'),
    ],
)
def test_refused_arrays(tmp_path, changes, reason):
    path = write_npz(tmp_path, **changes)
    with pytest.raises(ValueError, match=rf"'{path}' must hold .*\(.*{reason}"):
        load_dataset(path)


def test_nothing_is_executed(tmp_path, harm):
    path = write_npz(tmp_path, x=np.array([[harm]]))
    with pytest.raises(ValueError, match=re.escape(f"'{path}' must hold")):
        load_dataset(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match=re.escape(f"'{path}' must hold")):
        load_dataset(path)
    assert not harm.marker.exists()


def test_files_that_cannot_be_opened(tmp_path):
    for name in ('my.csv', 'my.npz'):
        with pytest.raises(FileNotFoundError, match=name):
            load_dataset(tmp_path / name, label='species')
