"""Tables of every kind of file: they are read and refused alike."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets import load_dataset
from torch_geometric_gsl.datasets.table_file import standardize_columns

KINDS = pytest.mark.parametrize('kind', ['csv', 'npz', 'pt'])
LARGE = 'finite features .got {} that are not, or are too large for float32, the first'


def save(folder, kind, x, y):
    """Write a table, and return its path and the name of its labels."""
    path, x, y = folder / f'my.{kind}', np.array(x, dtype=float), np.array(y)
    if kind == 'csv':
        names = [f'x{i}' for i in range(x.shape[1])]
        rows = [[*names, 'y'], *([*a, b] for a, b in zip(x, y, strict=True))]
        path.write_text('\n'.join(','.join(map(str, row)) for row in rows))
        return path, 'y'
    if kind == 'npz':
        np.savez_compressed(path, x=x, y=y)
    else:
        torch.save(Data(x=torch.from_numpy(x), y=torch.from_numpy(y)), path)
    return path, None


@KINDS
@pytest.mark.parametrize(
    ('labels', 'y'),
    [
        ([0, 1, 100_000, 1], [0, 1, 2, 1]),
        ([10, 2, 10, 2], [1, 0, 1, 0]),
        ([2, 0, 1, 1], [2, 0, 1, 1]),
        ([2**62, 0, 3, 3], [2, 0, 1, 1]),
    ],
)
def test_classes_are_counted(tmp_path, kind, labels, y):
    path, label = save(tmp_path, kind, np.ones((4, 1)), labels)
    data = load_dataset(path, label=label)
    assert data.y.tolist() == y
    assert data.y.dtype == torch.int64
    assert data.class_names == [str(label) for label in sorted(set(labels))]


@KINDS
def test_files_that_cannot_be_opened(tmp_path, kind):
    path, label = tmp_path / f'my.{kind}', 'y' if kind == 'csv' else None
    with pytest.raises(FileNotFoundError, match=path.name):
        load_dataset(path, label=label)
    path.mkdir()
    with pytest.raises(OSError, match=path.name):
        load_dataset(path, label=label)


@pytest.mark.parametrize('kind', ['npz', 'pt'])
def test_truncated_files(tmp_path, kind):
    path, _ = save(tmp_path, kind, np.ones((3, 2)), [0, 1, 0])
    content = path.read_bytes()
    for kept in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:kept])
        with pytest.raises(ValueError, match=rf"^'{path}' must hold "):
            load_dataset(path)


def test_nothing_is_executed(tmp_path, harm):
    path = tmp_path / 'my.pt'
    for content in (harm, Data(x=torch.ones(2, 1), harm=harm)):
        torch.save(content, path)
        text = rf"'{path}' must .* \(it asks for posix.mkdir\)"
        with pytest.raises(ValueError, match=text):
            load_dataset(path)
    np.savez(tmp_path / 'my.npz', x=np.array([[harm]]), y=np.array([0]))
    np.save(tmp_path / 'whole.npy', np.array([[harm]]))
    (tmp_path / 'whole.npy').rename(tmp_path / 'whole.npz')
    for name in ('my.npz', 'whole.npz'):
        text = f"{name}' must hold arrays of numbers"
        with pytest.raises(ValueError, match=text) as found:
            load_dataset(tmp_path / name)
        assert 'trust' not in str(found.value)
    assert not harm.marker.exists()


@KINDS
@pytest.mark.parametrize(
    'values',
    [
        [1e300, 1.0, 2.0],  # Its squares overflow.
        [1.7e308, 1.7e308, -5.0],  # Its sum does, too.
        [1e300, -1e300, 1e200],
        [1e-200, 3e-200, 2e-200],
    ],
)
def test_columns_of_any_unit_are_standardized(tmp_path, kind, values):
    x = np.stack([[1.0, 2.0, 4.0], values], axis=1)
    path, label = save(tmp_path, kind, x, [0, 1, 0])
    found = load_dataset(path, label=label, standardize=True).x[:, 1]
    unit = np.array(values) / max(values)
    np.testing.assert_allclose(found, (unit - unit.mean()) / unit.std(), 1e-6, 1e-30)


@KINDS
def test_values_too_large_for_single_precision(tmp_path, kind):
    path, label = save(tmp_path, kind, [[1, 1e39], [2, 1], [3, 2]], [0, 1, 0])
    column = "'x1'" if kind == 'csv' else '1'
    text = rf"^'{path}' must have {LARGE.format(1)} in column {column}\)$"
    with pytest.raises(ValueError, match=text):
        load_dataset(path, label=label, standardize=False)


def test_the_column_of_sparse_features(tmp_path):
    path = tmp_path / 'my.pt'
    x = torch.tensor([[0.0, 0, 1], [0, 0, 1e39], [2, 0, 0]], dtype=torch.float64)
    torch.save(Data(x=x.to_sparse_csr(), y=torch.tensor([0, 1, 0])), path)
    with pytest.raises(ValueError, match=LARGE.format(1) + r' in column 2\)$'):
        load_dataset(path)


def test_values_beyond_float64(tmp_path):
    path, x = tmp_path / 'my.npz', np.ones((3, 2), dtype=np.longdouble)
    x[1, 1] = np.longdouble('1e400')
    np.savez(path, x=x, y=np.array([0, 1, 0]))
    for standardize in (False, True):
        with pytest.raises(ValueError, match=LARGE.format(1) + r' in column 1\)$'):
            load_dataset(path, standardize=standardize)


def test_a_column_that_is_infinite_throughout(tmp_path):
    path, _ = save(tmp_path, 'npz', [[np.inf, i] for i in range(3)], [0, 1, 0])
    with pytest.raises(ValueError, match=LARGE.format(3) + r' in column 0\)$'):
        load_dataset(path, standardize=True)


def test_large_small_and_constant_columns_are_scaled():
    x = np.array([[1e100, 1e-100, 1e-200], [3e100, 3e-100, 3e-200]])
    out = standardize_columns(x)
    np.testing.assert_allclose(out, [[-1, -1, -1], [1, 1, 1]])
    # The mean of 0.1 over 1,000 rows is off by a rounding error.
    constant = np.full((1000, 1), 0.1)
    assert constant.std() > 0
    assert (standardize_columns(constant) == 0).all()


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_a_column_that_is_constant_but_for_rounding(tmp_path, dtype):
    values = np.where(np.arange(60) % 2, dtype(0.1), np.nextafter(dtype(0.1), dtype(1)))
    np.savez(tmp_path / 'my.npz', x=values[:, None], y=np.arange(60) % 3)
    assert (load_dataset(tmp_path / 'my.npz', standardize=True).x == 0).all()


def test_means_of_many_rows_in_single_precision():
    random = np.random.default_rng(0)
    x = (101325 + 5 * random.normal(size=(60_000, 2))).astype(np.float32)
    out = standardize_columns(x)
    assert abs(out.mean(axis=0)).max() < 1e-6
    assert abs(out.std(axis=0) - 1).max() < 1e-6


PRICES = [100.5 + i for i in range(30)]


@KINDS
def test_numbers_to_predict(tmp_path, kind):
    path, label = save(tmp_path, kind, np.ones((30, 1)), PRICES)
    for task in (None, 'regression'):
        data = load_dataset(path, label=label, task=task)
        assert data.y.dtype == torch.float32
        assert data.y.tolist() == PRICES
        assert 'class_names' not in data
    with pytest.raises(ValueError, match='classes'):
        load_dataset(path, label=label, task='classification')
    # Whole numbers may be either.
    for values, kinds in ((range(30), 'float'), ([i % 3 for i in range(30)], 'int')):
        path, label = save(tmp_path, kind, np.ones((30, 1)), list(values))
        assert kinds in str(load_dataset(path, label=label).y.dtype)
    number = load_dataset(path, label=label, task='regression').y
    assert number.tolist() == [i % 3 for i in range(30)]


@KINDS
def test_numbers_far_from_zero_keep_their_digits(tmp_path, kind):
    seconds = [1.7e9 + 0.5 * i for i in range(30)]
    path, label = save(tmp_path, kind, np.ones((30, 1)), seconds)
    data = load_dataset(path, label=label)
    assert data.y.dtype == torch.float64
    assert data.y.tolist() == seconds


@pytest.mark.parametrize('kind', ['csv', 'npz'])
@pytest.mark.parametrize('name', ['NA', 'None', 'null', 'n/a'])
def test_names_of_classes_that_also_say_missing(tmp_path, kind, name):
    path, label = save(tmp_path, kind, np.ones((4, 1)), [name, 'b', name, 'b'])
    assert load_dataset(path, label=label).class_names == sorted([name, 'b'])
    text = 'must not be missing'
    with pytest.raises(ValueError, match=text):
        load_dataset(path, label=label, missing=['na', 'none', 'null', 'n/a'])
    path, label = save(tmp_path, kind, np.ones((4, 1)), [name, '1', '0', '1'])
    with pytest.raises(ValueError, match=text):
        load_dataset(path, label=label)
    assert load_dataset(path, label=label, missing=[]).class_names == sorted(
        [name, '0', '1']
    )


def test_arguments_are_checked(tmp_path):
    path, _ = save(tmp_path, 'pt', np.ones((3, 2)), [0, 1, 2])
    with pytest.raises(ValueError, match=r"'label' has no meaning for a '.pt' file"):
        load_dataset(path, label='y')
    with pytest.raises(TypeError, match=r"'standardize' must be a bool \(got 'no'\)"):
        load_dataset(path, standardize='no')
    with pytest.raises(ValueError, match=r"'task' must be one of .*\(got 'ranking'\)"):
        load_dataset(path, task='ranking')
    with pytest.raises(ValueError, match=r"'missing' has no meaning for a '.pt'"):
        load_dataset(path, missing=['x'])
    with pytest.raises(TypeError, match="'missing' must be a sequence of texts"):
        load_dataset(path, missing='NA')
    with pytest.raises(ValueError, match="'task' has no meaning for 'wine'"):
        load_dataset('wine', task='regression')


@pytest.mark.parametrize('kind', ['csv', 'npz'])
def test_texts_are_no_numbers_to_predict(tmp_path, kind):
    path, label = save(tmp_path, kind, np.ones((3, 1)), ['1', 'b', '2'])
    with pytest.raises(ValueError, match=r"finite numbers .*\(got 'b' for row 1\)$"):
        load_dataset(path, label=label, task='regression')
