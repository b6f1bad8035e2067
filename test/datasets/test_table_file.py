"""Tables of every kind of file: they are read and refused alike."""

import zipfile
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.data.storage import GlobalStorage

from torch_geometric_gsl.datasets import load_dataset

KINDS = pytest.mark.parametrize('kind', ['csv', 'npz', 'pt'])


def write(folder, text, name='my.csv'):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def save(folder, kind, x, y):
    """Write a table, and return its path and the name of its labels."""
    path, x, y = folder / f'my.{kind}', np.array(x, dtype=float), np.array(y)
    if kind == 'csv':
        names = [f'x{i}' for i in range(x.shape[1])]
        rows = [[*names, 'y'], *([*a, b] for a, b in zip(x, y, strict=True))]
        return write(folder, '\n'.join(','.join(map(str, row)) for row in rows)), 'y'
    if kind == 'npz':
        np.savez_compressed(path, x=x, y=y)
    else:
        torch.save(Data(x=torch.from_numpy(x), y=torch.from_numpy(y)), path)
    return path, None


def save_pt(folder, **content):
    torch.save(Data(**content), folder / 'my.pt')
    return folder / 'my.pt'


# What is read


def test_csv(tmp_path, monkeypatch):
    text = 'width,species,length\n1,b,0.5\n2, a,-3\n4,b,1e2\n4,b,1e2\n'
    path = write(tmp_path, text)
    data = load_dataset(path, label='species', standardize=False)
    assert data.x.tolist() == [[1, 0.5], [2, -3], [4, 100], [4, 100]]
    assert (data.y.tolist(), data.class_names) == ([1, 0, 1, 1], ['a', 'b'])
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    monkeypatch.setenv('HOME', str(tmp_path))  # It is known by its sign.
    assert load_dataset('~/my.csv', label='species').num_nodes == 4
    # Nothing is written.
    assert [item.name for item in tmp_path.iterdir()] == ['my.csv']
    assert path.read_text() == text


@pytest.mark.parametrize(
    'text',
    [
        '\ufeffy,a\n0,1\n1,2\n',  # As a spreadsheet program writes it.
        'a,y\r\n1,0\r\n2,1\r\n',
        '"a","y"\n"1","0"\n"2","1"\n',
        'a,y\n\n1,0\n\n2,1\n\n',
        ' a , y \n 1 , 0 \n 2 , 1',
    ],
)
def test_dialects_of_csv(tmp_path, text):
    data = load_dataset(write(tmp_path, text, 'my.CSV'), label='y', standardize=False)
    assert (data.x.tolist(), data.y.tolist()) == ([[1], [2]], [0, 1])


def test_npz(tmp_path):
    path, x = tmp_path / 'my.npz', np.array([[1.0, 2], [3, 4], [3, 4]])
    np.savez(path, x=np.asfortranarray(x).astype('>f4'), y=np.array([7, 5, 7]))
    data = load_dataset(path)
    assert (data.x.tolist(), data.x.dtype) == (x.tolist(), torch.float32)
    assert (data.y.tolist(), data.class_names) == ([1, 0, 1], ['5', '7'])
    # The array of features has any name where there is but one.
    np.savez_compressed(path, features=x.astype(int), kind=np.array(['u', 'v', 'u']))
    data = load_dataset(path, label='kind')
    assert data.x.tolist() == x.tolist()
    assert (data.y.tolist(), data.class_names) == ([0, 1, 0], ['u', 'v'])


def test_pt(tmp_path):
    x = torch.tensor([[1.0, 0], [0, 3], [0, 0]], dtype=torch.float64)
    y = torch.tensor([0, 2, 0], dtype=torch.int32)
    edges = torch.tensor([[0, 1], [1, 2]])
    path = save_pt(tmp_path, x=x, y=y, edge_index=edges, class_names=['a', 'b', 'c'])
    out = load_dataset(path)
    assert sorted(out.keys()) == ['class_names', 'x', 'y']
    assert torch.equal(out.x, x.float())
    assert (out.y.tolist(), out.y.dtype) == ([0, 2, 0], torch.int64)
    # Nothing more is allowed than before, and PyG's own part still is.
    allowed = torch.serialization.get_safe_globals()
    assert Data in allowed
    assert GlobalStorage not in allowed
    out = load_dataset(save_pt(tmp_path, x=x.to_sparse_csr(), y=y))
    assert out.x.layout == torch.sparse_csr
    assert torch.equal(out.x.to_dense(), x.float())
    with pytest.raises(ValueError, match=r"'standardize' must be False .* are sparse"):
        load_dataset(path, standardize=True)
    out = load_dataset(save_pt(tmp_path, **BASE, **SPLIT))
    assert all(torch.equal(out[name], mask) for name, mask in SPLIT.items())


def bits(*nodes):
    return torch.isin(torch.arange(4), torch.tensor(nodes))


SPLIT = {'train_mask': bits(0), 'val_mask': bits(1), 'test_mask': bits(3)}
BASE = {'x': torch.ones(4, 2), 'y': torch.arange(4) % 2}


@pytest.mark.parametrize(
    ('labels', 'class_names', 'y'),
    [
        ([0, 1, 2, 1], ['a', 'b', 'c'], [0, 1, 2, 1]),
        ([0, 7, 0, 7], ('a', 'b'), [0, 1, 0, 1]),  # One for each class, in order.
        # One name for each number, of which one has no row.
        ([0, 2, 0, 2], ['a', 'b', 'c'], [0, 2, 0, 2]),
    ],
)
def test_class_names_of_pt(tmp_path, labels, class_names, y):
    content = {'y': torch.tensor(labels), 'class_names': class_names}
    data = load_dataset(save_pt(tmp_path, x=torch.ones(4, 2), **content))
    assert (data.y.tolist(), data.class_names) == (y, list(class_names))


# Labels

MANY = 2**53  # The next number is none in double precision.


@KINDS
@pytest.mark.parametrize(
    ('labels', 'y'),
    [
        ([0, 1, 100_000, 1], [0, 1, 2, 1]),
        ([2**62, 0, 3, 3], [2, 0, 1, 1]),
    ],
)
def test_classes_are_counted(tmp_path, kind, labels, y):
    path, label = save(tmp_path, kind, np.ones((4, 1)), labels)
    data = load_dataset(path, label=label)
    assert (data.y.tolist(), data.y.dtype) == (y, torch.int64)
    assert data.class_names == [str(label) for label in sorted(set(labels))]


@pytest.mark.parametrize(
    ('labels', 'y', 'class_names'),
    [
        (['1.0', '-1', '1'], [1, 0, 1], ['-1', '1']),
        (['é', '1_0', '10'], [2, 1, 0], ['10', '1_0', 'é']),
        ([f'{MANY + 1}.0', str(MANY), '0'], [2, 1, 0], ['0', str(MANY), str(MANY + 1)]),
        (['01', '1', '1.0'], [0, 1, 2], ['01', '1', '1.0']),  # Codes are names.
        (['-01', '0', '-1'], [0, 2, 1], ['-01', '-1', '0']),
        (['0e9', '0.0', '1'], [0, 0, 1], ['0', '1']),
    ],
)
def test_texts_of_classes(tmp_path, labels, y, class_names):
    np.savez(tmp_path / 'my.npz', x=np.ones((3, 1)), y=np.array(labels))
    data = load_dataset(tmp_path / 'my.npz')
    assert (data.y.tolist(), data.class_names) == (y, class_names)


def test_rare_classes(tmp_path):
    labels = [f'group {i}' for i in range(11)] * 2 + [f'single {i}' for i in range(12)]
    for kept in (labels[:-1], list(map(str, 'abcdefghijklmnopqrst'))):
        path, label = save(tmp_path, 'csv', np.ones((len(kept), 1)), kept)
        assert load_dataset(path, label=label).num_nodes == len(kept)
    path, label = save(tmp_path, 'csv', np.ones((34, 1)), labels)
    with pytest.raises(ValueError, match='got 23 of them in 34 rows, 12 in'):
        load_dataset(path, label=label)


@KINDS
def test_numbers_to_predict(tmp_path, kind):
    prices = [100.5 + i for i in range(30)]
    path, label = save(tmp_path, kind, np.ones((30, 1)), prices)
    for task in (None, 'regression'):
        data = load_dataset(path, label=label, task=task)
        assert (data.y.tolist(), data.y.dtype) == (prices, torch.float32)
        assert 'class_names' not in data
    with pytest.raises(ValueError, match='classes'):
        load_dataset(path, label=label, task='classification')
    path, label = save(tmp_path, 'csv', np.ones((3, 1)), ['1', 'b', '2'])
    with pytest.raises(ValueError, match=r"finite numbers .*\(got 'b' for row 1\)$"):
        load_dataset(path, label=label, task='regression')
    # Whole numbers may be either.
    path, label = save(tmp_path, kind, np.ones((30, 1)), list(range(30)))
    assert load_dataset(path, label=label).y.is_floating_point()
    few = [i % 3 for i in range(30)]
    path, label = save(tmp_path, kind, np.ones((30, 1)), few)
    assert load_dataset(path, label=label).y.dtype == torch.int64
    assert load_dataset(path, label=label, task='regression').y.tolist() == few
    # Numbers far from zero keep their digits.
    seconds = [1.7e9 + 0.5 * i for i in range(30)]
    path, label = save(tmp_path, kind, np.ones((30, 1)), seconds)
    data = load_dataset(path, label=label)
    assert (data.y.tolist(), data.y.dtype) == (seconds, torch.float64)


@pytest.mark.parametrize('kind', ['csv', 'npz'])
@pytest.mark.parametrize('name', ['NA', 'None', 'null', 'n/a'])
def test_names_of_classes_that_also_say_missing(tmp_path, kind, name):
    path, label = save(tmp_path, kind, np.ones((4, 1)), [name, 'b', name, 'b'])
    assert load_dataset(path, label=label).class_names == sorted([name, 'b'])
    with pytest.raises(ValueError, match='must not be missing'):
        load_dataset(path, label=label, missing=['na', 'none', 'null', 'n/a'])
    path, label = save(tmp_path, kind, np.ones((4, 1)), [name, '1', '0', '1'])
    with pytest.raises(ValueError, match='must not be missing'):
        load_dataset(path, label=label)
    names = load_dataset(path, label=label, missing=[]).class_names
    assert names == sorted([name, '0', '1'])


# Columns


@KINDS
def test_columns_are_standardized(tmp_path, kind):
    values = np.array([1e300, 1.0, 2.0])  # Their squares overflow.
    path, label = save(tmp_path, kind, np.stack([[5.0] * 3, values], 1), [0, 1, 0])
    found = load_dataset(path, label=label, standardize=True).x
    unit = values / 1e300
    np.testing.assert_allclose(found[:, 1], (unit - unit.mean()) / unit.std(), 1e-6)
    assert (found[:, 0] == 0).all()  # A constant column.
    if kind == 'csv':
        assert torch.equal(load_dataset(path, label=label).x, found)


# What is refused

LARGE = 'finite features .got {} that are not, or overflow float32, the first'
X, Y = np.ones((3, 2)), np.array([0, 1, 0])
TX, TY = torch.ones(3, 2), torch.arange(3)
CSV = [
    ('', r"my.csv' must start with distinct names of two .* \(got \[\]\)"),
    ('a,y\n', r"my.csv' must have rows below its header \(got none\)"),
    ('a,z\n1,0', r"'label' must be .*, one of \['a', 'z'\] \(got 'y'\)"),
    ('y\n1\n0', r'distinct names of two or more columns'),
    (',a,y\n0,1,0', r"must start with .* \(got \['', 'a', 'y'\]\)"),
    ('a,b,a,y', r'must start with distinct names'),
    ('a,y\n1,0\n2', r'line 3 must have 2 fields, .* \(got 1\)'),
    ('a,y\n1,0\n2,1,1', r'line 3 must have 2 fields, .* \(got 3\)'),
    ('a,y\n1,0\n\n,1', r"line 4: 'a' must not be missing \(got ''\)"),
    ('a,y\nNaN,0', r"line 2: 'a' must not be missing \(got 'NaN'\)"),
    ('a,y\n1, ?', r"'y' of '.*' must not be missing \(got '\?' for row 0\)"),
    ('b,a,y\n1,red,0', r"line 2: 'a' must be a finite number \(got 'red'\)"),
    ('a,y\n1_000,0', r"line 2: 'a' must be a finite .* \(got '1_000'\)"),
    ('a,y\ninf,0', r"line 2: 'a' must be a finite number \(got 'inf'\)"),
    ('a,y\n1,0\n2,0', r"column 'y' of .* at least two classes \(got \{0\}\)"),
    ('a,y\n1,0\n2,1.5', r'classes, not real numbers \(got 1.5\)'),
    ('a,y\n1,0\n2,0e9999999999999999999', r'classes, not real numbers'),
    ('b,a,y\n1,1e39,0\n2,1,1', LARGE.format(1) + r" in column 'a'\)$"),
    (b'a,y\n1,\xff', r"my.csv', after line 0, must be text in UTF-8 .*0xff"),
    ('a,y\n1,"5" pipe"\n2,v\n', r"my.csv', after line 1, must be text "),
    ('a,y\n1,u\n2,' + 'v' * 200_000 + '\n', r"my.csv', after line 2, .* field"),
    ('a,y\n1,0\n"2,1', r"my.csv', after line 2, .*unexpected end of data"),
]
NPZ = [
    ({'a': X, 'b': X, 'y': Y}, r"array 'x' of features \(got \['a', 'b', 'y'\]\)"),
    ({'x': X}, r"must have an array 'y' of labels \(got \['x'\]\)"),
    ({'x': X, 'y': Y[:2]}, r"'y' in .* vector of 3 classes.* \(got int64 of shape"),
    ({'x': X, 'y': Y / 1.0}, r"'y' in .* vector of 3 classes.* \(got float64"),
    ({'x': X[0], 'y': Y}, r"'x' in .* must be a matrix .* \(got float64 of shape"),
    ({'x': X * 1j, 'y': Y}, r"'x' in .* must be a matrix .* \(got complex128"),
    ({'x': np.array([{}]), 'y': Y}, r'arrays of numbers \(Object arrays cannot be'),
    ({'x': X, 'y': np.array(['a', 'b', ''])}, r"missing \(got '' for row 2\)"),
    ({'x': X * np.nan, 'y': Y}, LARGE.format(6) + r' in column 0\)$'),
    ({'x': X.astype('g') * np.longdouble('1e400'), 'y': Y}, LARGE.format(6)),
]
PT = [
    ({'y': TY}, r"node features: 'x' must be .* \(got NoneType\)"),
    ({'x': TX}, r"'y' in .* must be a tensor \(got NoneType\)"),
    ({'x': TX, 'y': TY / 1.0}, r"'y' in .* vector of 3 classes.*\(got float64 of"),
    ({'x': TX, 'y': TY[:2]}, r"'y' in .* vector of 3 classes"),
    ({'x': TX, 'y': TY - 1}, r"'y' in .* must not be negative \(got -1\)"),
    ({'x': TX * torch.inf, 'y': TY}, r"'x' contains NaN or .* \(got 6 of 6\)"),
    ({'x': TX.to('meta'), 'y': TY}, r"'x' must have .* \(got \[3, 2\] on meta"),
    ({'x': TX, 'y': TY.to_sparse()}, r"'y' .* must be dense .*\(got torch.sparse_coo"),
    ({'x': TX, 'y': TY.to('meta')}, r'hold values \(got torch.strided on meta\)'),
    ({'x': (TX.double() * 1e39).to_sparse_csr(), 'y': TY}, LARGE.format(6)),
    ({**BASE, 'class_names': ['a']}, r"class of 'y', 2, .* to 1 \(got \['a'\]\)"),
    ({**BASE, 'class_names': 'ab'}, r"^'class_names' in .* \(got 'ab'\)"),
    ({**BASE, 'val_mask': bits(1).float()}, r"'val_mask' .*\(got torch.float32 of"),
    ({**BASE, 'val_mask': [1]}, r"'val_mask' in .* \(got list\)"),
    ({**BASE, 'test_mask': bits(3)[:3]}, r'mask of 4 nodes \(got .* shape \[3\]'),
    ({**BASE, **SPLIT, 'val_mask': bits(1, 3)}, r'must not share nodes \(got 1 in'),
]


@pytest.mark.parametrize(
    ('kind', 'content', 'text'),
    [
        *(('csv', *case) for case in CSV),
        *(('npz', *case) for case in NPZ),
        *(('pt', *case) for case in PT),
    ],
)
def test_refused_files(tmp_path, kind, content, text):
    path, options = tmp_path / f'my.{kind}', {}
    if kind == 'csv':
        write(tmp_path, content)
        options = {'label': 'y', 'standardize': False}
    elif kind == 'npz':
        np.savez(path, **content)
    else:
        save_pt(tmp_path, **content)
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path, **options)
    assert str(path) in str(caught.value)


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
    for kept in (0, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:kept])
        text = rf"^'{path}' (must hold|is not)"
        with pytest.raises((OSError, ValueError), match=text):
            load_dataset(path)


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
def test_damaged_arrays(tmp_path, member):
    path = tmp_path / 'my.npz'
    np.savez(path, y=Y)
    with zipfile.ZipFile(path, 'a') as archive:
        archive.writestr('x.npy', member)
    with pytest.raises(ValueError, match=rf"'{path}' must (hold|be a matrix)"):
        load_dataset(path)


@pytest.mark.parametrize(
    ('crow', 'column', 'text'),
    [
        ([0, 1, 2, 3], [0, 1, 10**6], '0 <= col_indices < ncols'),
        ([0, 1, 2, 60], [0, 1, 1], r'crow_indices\[..., -1\] == nnz'),
        ([0, 2, 2, 3], [1, 1, 0], 'are sorted and distinct'),
    ],
)
def test_damaged_csr(tmp_path, crow, column, text):
    parts = torch.tensor(crow), torch.tensor(column), torch.ones(3)
    x = torch.sparse_csr_tensor(*parts, size=(3, 2), check_invariants=False)
    path = save_pt(tmp_path, x=x, y=TY)
    with pytest.raises(ValueError, match=f"{path}' must hold node features: .*{text}"):
        load_dataset(path)


def test_nothing_is_executed(tmp_path, harm):
    path = tmp_path / 'my.pt'
    torch.save({'x': 1}, path)
    with pytest.raises(ValueError, match=r'my.pt. is not a valid .*\(got a dict\)'):
        load_dataset(path)
    for content in (harm, Data(x=torch.ones(2, 1), harm=harm)):
        torch.save(content, path)
        text = rf"'{path}' is not a valid Data object: it refers to {harm.name}, which"
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


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    np.savez(tmp_path / 'my.npz', x=X, y=Y)
    monkeypatch.setattr(np, 'load', Mock(side_effect=MemoryError('too little')))
    with pytest.raises(MemoryError, match='too little'):
        load_dataset(tmp_path / 'my.npz')


@pytest.mark.parametrize(
    ('kind', 'options', 'error', 'text'),
    [
        ('pt', {'label': 'y'}, ValueError, r"'label' is not supported for a '.pt'"),
        ('pt', {'standardize': 'no'}, TypeError, r"'standardize' must be a bool"),
        ('pt', {'task': 'ranking'}, ValueError, r"'task' must be .* \(got 'ranking'\)"),
        ('pt', {'missing': ['x']}, ValueError, r"'missing' is not supported for a '.p"),
        ('npz', {'missing': 'NA'}, TypeError, "'missing' must be a sequence of str"),
        ('npz', {'allow_pickle': True}, ValueError, "'allow_pickle' is not supported"),
        ('csv', {}, ValueError, r"'label' must be the label column .* \(got None\)"),
    ],
)
def test_arguments(tmp_path, kind, options, error, text):
    path, _ = save(tmp_path, kind, np.ones((3, 2)), [0, 1, 2])
    with pytest.raises(error, match=text):
        load_dataset(path, **options)
