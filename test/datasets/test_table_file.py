from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.data.storage import GlobalStorage

from torch_geometric_gsl.datasets import load_dataset
from torch_geometric_gsl.datasets._io.csv_file import _find_label
from torch_geometric_gsl.datasets._io.labels import _check_classes, encode

CSV = 'width,species,length\n1,b,0.5\n2, a,-3\n4,b,1e2\n4,b,1e2\n'


def write(folder: Path, text: str | bytes, name: str = 'my.csv') -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv(tmp_path: Path) -> None:
    path = write(tmp_path, CSV)
    data = load_dataset(path, label='species', standardize=False)
    assert data.x.tolist() == [[1, 0.5], [2, -3], [4, 100], [4, 100]]
    assert data.y.tolist() == [1, 0, 1, 1]
    assert data.class_names == ['a', 'b']
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    assert data.validate()
    # Nothing is written beside the file, and the file stays as it is.
    assert [item.name for item in tmp_path.iterdir()] == ['my.csv']
    assert path.read_bytes() == CSV.encode()


def test_csv_is_standardized_by_default(tmp_path: Path) -> None:
    rows = [[5.0, 1.0, 1e6], [5, 2, 1e6 + 1], [5, 6, 1e6 + 5]]
    lines = [f'{i % 2},{",".join(map(str, row))}' for i, row in enumerate(rows)]
    path = write(tmp_path, '\n'.join(['y,a,b,c', *lines]))
    out = load_dataset(str(path), label='y').x
    for j in range(3):
        column = [row[j] for row in rows]
        mean = sum(column) / 3
        deviation = (sum((value - mean) ** 2 for value in column) / 3) ** 0.5
        for i in range(3):
            expected = 0 if deviation == 0 else (rows[i][j] - mean) / deviation
            assert float(out[i, j]) == pytest.approx(expected, abs=1e-6)


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
def test_dialects(tmp_path: Path, text: str) -> None:
    data = load_dataset(write(tmp_path, text, 'my.CSV'), label='y', standardize=False)
    assert data.x.tolist() == [[1], [2]]
    assert data.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ('labels', 'y', 'class_names'),
    [
        (['10', '2', '10'], [1, 0, 1], ['2', '10']),
        (['1.0', '-1', '1'], [1, 0, 1], ['-1', '1']),
        (['10', '2', 'x'], [0, 1, 2], ['10', '2', 'x']),
        (['1_0', '2', '10'], [1, 2, 0], ['10', '1_0', '2']),
        (['9007199254740993.0', '9007199254740992', '0'], [2, 1, 0], None),
        (['01', '1', '1.0'], [0, 1, 2], ['01', '1', '1.0']),  # Codes are names.
        (['-01', '0', '-1'], [0, 2, 1], ['-01', '-1', '0']),
        (['0e9', '0.0', '1'], [0, 0, 1], ['0', '1']),
        ([3, 1, 3], [1, 0, 1], ['1', '3']),
        ([True, False, True], [1, 0, 1], ['False', 'True']),
    ],
)
def test_classes(
    labels: list[Any], y: list[int], class_names: list[str] | None
) -> None:
    numbers, names = encode(labels, 'it')
    assert numbers.tolist() == y
    assert class_names is None or names == class_names


@settings(max_examples=20)
@given(st.lists(st.text(min_size=1), min_size=2).filter(lambda t: len(set(t)) > 1))
def test_class_names_give_the_labels_back(labels: list[str]) -> None:
    labels = [f'_{label}' for label in labels]
    y, class_names = encode(labels, 'it')
    assert [class_names[i] for i in y.tolist()] == labels
    assert class_names == sorted(class_names)


@pytest.mark.parametrize(
    ('text', 'label', 'message'),
    [
        ('', 'y', r"my.csv' must begin with the names of its columns"),
        ('a,y\n', 'y', r"my.csv' must have rows below its header \(got none\)"),
        ('a,y\n1,0', 'z', r"'label' must name .*, one of \['a', 'y'\] \(got 'z'\)"),
        ('a,y\n1,0', None, r"'label' must name .*, one of \['a', 'y'\] \(got None\)"),
        ('a;y\n1;0', 'y', r"one of \['a;y'\] \(got 'y'\)"),
        ('y\n1\n0', 'y', r"must have features beside the column 'y'"),
        (',a,y\n0,1,0', 'y', r'column 1 has no name'),
        ('a,b,a,y', 'y', r"must give each column its own name \(got \['a'\]\)"),
        ('a,y\n1,0\n2', 'y', r'line 3 must have 2 fields, .* \(got 1\)'),
        ('a,y\n1,0\n2,1,1', 'y', r'line 3 must have 2 fields, .* \(got 3\)'),
        ('a,y\n1,0\n\n,1', 'y', r"line 4: 'a' must not be missing \(got ''\)"),
        ('a,y\nNaN,0', 'y', r"line 2: 'a' must not be missing \(got 'NaN'\)"),
        ('a,y\n1, ?', 'y', r"line 2: 'y' must not be missing \(got ' \?'\)"),
        ('b,a,y\n1,red,0', 'y', r"line 2: 'a' must be a finite .* \(got 'red'\); enco"),
        ('a,y\n1_000,0', 'y', r"line 2: 'a' must be a finite .* \(got '1_000'\)"),
        ('a,y\ninf,0', 'y', r"line 2: 'a' must be a finite number \(got 'inf'\)"),
        ('a,y\n1,0\n2,0', 'y', r"column 'y' of .* at least two classes \(got \{0\}\)"),
        ('a,y\n1,u\n2,u', 'y', r"at least two classes \(got \{'u'\}\)"),
        ('a,y\n1,0\n2,1.5', 'y', r'classes, not measured numbers \(got 1.5\)'),
        ('a,y\n1e39,0\n2,1', 'y', r'must have finite features \(got 1 that are not'),
        (b'a,y\n1,\xff', 'y', r"my.csv' must be text in UTF-8 \(.*0xff"),
        ('a,y\n1,0\n"2,1', 'y', r"my.csv', after line 2: unexpected end of data"),
    ],
)
def test_damaged_csv(
    tmp_path: Path, text: str | bytes, label: str | None, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        load_dataset(path, label=label, standardize=False)
    assert str(path) in str(caught.value)


class Name(str):
    """A text that counts its comparisons."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize('count', [100, 1000])
def test_wide_headers_take_few_comparisons(count: int) -> None:
    Name.comparisons = 0
    header: list[str] = [Name(f'c{i}') for i in range(count)]
    assert _find_label(Path('my.csv'), header, f'c{count - 1}') == count - 1
    assert Name.comparisons <= 5 * count


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for name in ('my.csv', 'my.npz', 'my.pt'):
        label = 'y' if name == 'my.csv' else None
        with pytest.raises(FileNotFoundError, match=name):
            load_dataset(tmp_path / name, label=label)
        (tmp_path / name).mkdir()
        with pytest.raises(OSError, match=name):
            load_dataset(tmp_path / name, label=label)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / 'my.npz'
    x = np.array([[1.0, 2], [3, 4], [3, 4]])
    np.savez(path, x=x, y=np.array([7, 5, 7]), z=np.array([{}]))
    data = load_dataset(path)
    assert data.x.tolist() == x.tolist()
    assert (data.y.tolist(), data.class_names) == ([1, 0, 1], ['5', '7'])
    assert data.x.dtype == torch.float32
    assert load_dataset(path, standardize=True).x.mean(dim=0).tolist() == [0, 0]

    np.savez_compressed(path, features=x.astype(int), kind=np.array(['u', 'v', 'u']))
    data = load_dataset(path, label='kind')
    assert data.x.tolist() == x.tolist()
    assert (data.y.tolist(), data.class_names) == ([0, 1, 0], ['u', 'v'])


X, Y = np.ones((3, 2)), np.array([0, 1, 0])


@pytest.mark.parametrize(
    ('arrays', 'text'),
    [
        (
            {'a': X, 'b': X, 'y': Y},
            r"an array 'x' of features \(got \['a', 'b', 'y'\]\)",
        ),
        ({'x': X}, r"must have an array 'y' of labels \(got \['x'\]\)"),
        ({'x': X, 'y': Y[:2]}, r"'y' in .* vector of 3 classes.* \(got int64 of shape"),
        ({'x': X, 'y': Y[:, None]}, r"'y' in .* vector of 3 classes"),
        ({'x': X, 'y': Y / 1.0}, r"'y' in .* vector of 3 classes.* \(got float64"),
        ({'x': X, 'y': Y * 0}, r"'y' in .* at least two classes \(got \{0\}\)"),
        ({'x': X[0], 'y': Y}, r"'x' in .* must be a matrix .* \(got float64 of shape"),
        ({'x': X[:, :0], 'y': Y}, r"'x' in .* must be a matrix of numbers"),
        ({'x': X * 1j, 'y': Y}, r"'x' in .* must be a matrix .* \(got complex128"),
        ({'x': np.array([{}]), 'y': Y}, r'arrays of numbers \(Object arrays cannot be'),
        (
            {'x': X, 'y': np.array(['a', 'b', ''])},
            r"'y' in .* must not be missing \(got '' for row 2\)",
        ),
        ({'x': X, 'y': np.array(['a', ' NaN', 'b'])}, r"\(got ' NaN' for row 1\)"),
        ({'x': X * np.nan, 'y': Y}, r'finite features \(got 6 that are not'),
    ],
)
def test_damaged_npz(tmp_path: Path, arrays: dict[str, Any], text: str) -> None:
    path = tmp_path / 'my.npz'
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


def write_npz(path: Path, members: list[tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(path, 'w') as archive, warnings.catch_warnings():
        warnings.simplefilter('ignore')  # Two members of one name.
        for name, content in members:
            archive.writestr(name, content)


def to_npy(array: np.ndarray[Any, Any], shape: object = None) -> bytes:
    """Return an array in NumPy's format, whose header may state another shape."""
    stream = io.BytesIO()
    np.save(stream, array)
    if shape is None:
        return stream.getvalue()
    header = {'descr': array.dtype.str, 'fortran_order': False, 'shape': shape}
    text = repr(header).encode() + b'\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text + array.tobytes()


@pytest.mark.parametrize(
    ('members', 'text'),
    [
        (
            [('x.npy', to_npy(X, (10**6, 10**6)))],
            r"'x.npy' states the shape \(1000000, 1000000\), but does not hold "
            '8,000,000,000,000 bytes',
        ),
        ([('x.npy', to_npy(X, (4, 2)))], ''),
        ([('x.npy', to_npy(X))] * 2, r"it holds more than one array named \['x'\]"),
        (
            [('x', to_npy(X)), ('x.npy', to_npy(X))],
            r"more than one array named \['x'\]",
        ),
        ([('x.npy', b'\x93NUMPY\x07\x00')], r'the unknown format \(7, 0\)'),
        ([('x.npy', b'\x93NUMPY\x01\x00\x05\x00(((((')], 'cannot be parsed'),
        ([('x.npy', b'')], ''),
    ],
)
def test_forged_npz(
    tmp_path: Path, members: list[tuple[str, bytes]], text: str
) -> None:
    path = tmp_path / 'my.npz'
    write_npz(path, [*members, ('y.npy', to_npy(Y))])
    with pytest.raises(ValueError, match=rf"^'{path}' must hold .*\(.*{text}.*\)$"):
        load_dataset(path)


def test_arrays_larger_than_their_file_are_read(tmp_path: Path) -> None:
    path = tmp_path / 'my.npz'
    np.savez_compressed(path, x=np.ones((5000, 9)), y=np.arange(5000) % 2)
    assert path.stat().st_size < 5000
    assert load_dataset(path).x.sum() == 45_000


def test_truncated_files(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / 'my.npz', x=X, y=Y)
    torch.save(Data(x=torch.ones(3, 2), y=torch.from_numpy(Y)), tmp_path / 'my.pt')
    for name in ('my.npz', 'my.pt'):
        path = tmp_path / name
        content = path.read_bytes()
        for kept in (0, 1, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:kept])
            with pytest.raises(ValueError, match=rf"^'{path}' must hold "):
                load_dataset(path)


def test_pt(tmp_path: Path) -> None:
    path = tmp_path / 'my.pt'
    x = torch.tensor([[1.0, 0], [0, 3], [0, 0]], dtype=torch.float64)
    data = Data(x=x, y=torch.tensor([0, 2, 0], dtype=torch.int32))
    data.edge_index = torch.tensor([[0, 1], [1, 2]])
    data.class_names = ['a', 'b', 'c']
    torch.save(data, path)
    out = load_dataset(path)
    assert sorted(out.keys()) == ['class_names', 'x', 'y']
    assert torch.equal(out.x, x.float())
    assert out.y.tolist() == [0, 2, 0]
    assert out.y.dtype == torch.int64
    assert out.class_names == ['a', 'b', 'c']
    assert load_dataset(path, standardize=True).x.mean(dim=0).abs().max() < 1e-6
    # Nothing more is allowed than before, and PyG's own part still is.
    allowed = torch.serialization.get_safe_globals()
    assert Data in allowed
    assert GlobalStorage not in allowed

    torch.save(Data(x=x.to_sparse_csr(), y=data.y), path)
    out = load_dataset(path)
    assert out.x.layout == torch.sparse_csr
    assert torch.equal(out.x.to_dense(), x.float())
    with pytest.raises(ValueError, match=r"'standardize' must be False .* are sparse"):
        load_dataset(path, standardize=True)


def bits(*nodes: int) -> torch.Tensor:
    return torch.isin(torch.arange(4), torch.tensor(nodes))


SPLIT = {'train_mask': bits(0), 'val_mask': bits(1), 'test_mask': bits(3)}


def save_split(path: Path, masks: dict[str, Any]) -> Path:
    torch.save(Data(x=torch.ones(4, 2), y=torch.arange(4) % 2, **masks), path)
    return path


def test_a_split_of_the_file_is_kept(tmp_path: Path) -> None:
    out = load_dataset(save_split(tmp_path / 'my.pt', SPLIT))
    for name, mask in SPLIT.items():  # Node 2 is in none of them.
        assert torch.equal(out[name], mask)


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        (
            {'val_mask': None},
            r"must hold all of .*'val_mask', 't.* \(got \['train_mask'",
        ),
        ({'train_mask': None, 'val_mask': None}, r"or none \(got \['test_mask'\]\)"),
        (
            {'val_mask': bits(1).float()},
            r"'val_mask' in .* boolean tensor \(got torch.float32\)",
        ),
        ({'val_mask': [1]}, r"'val_mask' in .* boolean tensor \(got list\)"),
        (
            {'test_mask': bits(3)[:3]},
            r"'test_mask' in .* of shape \[4\].* \(got torch.strided of shape \[3\]",
        ),
        (
            {'train_mask': torch.stack([bits(0), bits(2)], dim=1)},
            r"'train_mask' in .* those of one split \(got .* of shape \[4, 2\]",
        ),
        (
            {'train_mask': bits(0).to_sparse()},
            r"'train_mask' in .* must be dense .* \(got torch.sparse_coo of",
        ),
        ({'val_mask': bits()}, r"'val_mask' in .* at least one node \(got none\)"),
        (
            {'test_mask': bits(0, 2, 3)},
            r"'train_mask' and 'test_mask' in .* share nodes \(got 1 in both\)",
        ),
        (
            {'test_mask': bits(1, 3), 'val_mask': bits(1, 2, 3)},
            r"'val_mask' and 'test_mask' in .* share nodes \(got 2 in both\)",
        ),
    ],
)
def test_a_split_is_checked(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    masks = {k: v for k, v in (SPLIT | changes).items() if v is not None}
    path = save_split(tmp_path / 'my.pt', masks)
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize('kind', ['csv', 'npz', 'pt'])
def test_a_number_to_predict_is_no_class(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f'my.{kind}'
    y = np.random.default_rng(0).permutation(1000)[:200]
    if kind == 'csv':
        rows = '\n'.join(f'{i},{value}' for i, value in enumerate(y))
        path.write_text(f'a,y\n{rows}\n')
    elif kind == 'npz':
        np.savez(path, x=np.ones((200, 2)), y=y)
    else:
        torch.save(Data(x=torch.ones(200, 2), y=torch.from_numpy(y)), path)
    text = (
        r"'y' .*must be classes, .* \(got 200 classes in 200 rows, 200 of them with "
        r'one row only: is it a number to predict'
    )
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path, label='y' if kind == 'csv' else None)
    assert str(path) in str(caught.value)


def test_rare_classes() -> None:
    twins = [f'group {i}' for i in range(11)] * 2
    for single, is_refused in ((11, False), (12, True)):
        labels = [*twins, *(f'single {i}' for i in range(single))]
        if is_refused:
            with pytest.raises(ValueError, match='got 23 classes in 34 rows, 12 of'):
                _check_classes(labels, 'it')
        else:
            _check_classes(labels, 'it')
    # Small tables may have what they like.
    _check_classes(range(20), 'it')
    with pytest.raises(ValueError, match='got 21 classes in 21 rows, 21 of them'):
        _check_classes(range(21), 'it')


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ('harm',)


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (Harm(), Data(x=torch.ones(2, 1), harm=Harm())):
        torch.save(content, 'my.pt')
        with pytest.raises(
            ValueError, match=r"'my.pt' must .* \(it asks for posix.mkdir\)"
        ):
            load_dataset('my.pt')
    np.savez('my.npz', x=np.array([[Harm()]]), y=np.array([0]))
    np.save('whole.npy', np.array([[Harm()]]))
    Path('whole.npy').rename('whole.npz')
    for name in ('my.npz', 'whole.npz'):
        with pytest.raises(
            ValueError, match=f"'{name}' must hold arrays of numbers"
        ) as found:
            load_dataset(name)
        assert 'trust' not in str(found.value)
    assert not Path('harm').exists()


@pytest.mark.parametrize(
    ('content', 'text'),
    [
        ({'x': 1}, r'must hold a Data object \(got dict\)'),
        (torch.ones(3), r'must hold a Data object \(got Tensor\)'),
        (Data(y=torch.arange(3)), r"node features: 'x' must be .* \(got NoneType\)"),
        (Data(x=torch.ones(3, 2)), r"'y' in .* must be a tensor \(got NoneType\)"),
        (
            Data(x=torch.arange(3), y=torch.arange(3)),
            r"'x' must have shape \[num_nodes",
        ),
        (
            Data(x=torch.ones(3, 2), y=torch.arange(3.0)),
            r"'y' in .* vector of 3 classes.*\(got float32 of shape",
        ),
        (Data(x=torch.ones(3, 2), y=torch.arange(2)), r"'y' in .* vector of 3 classes"),
        (
            Data(x=torch.ones(3, 2), y=torch.ones(3, dtype=torch.long)),
            r'at least two classes \(got \{1\}\)',
        ),
        (
            Data(x=torch.ones(3, 2), y=torch.arange(3) - 1),
            r"'y' in .* must not be negative \(got -1\)",
        ),
        (
            Data(x=torch.ones(3, 2) * torch.inf, y=torch.arange(3)),
            r"'x' contains NaN or infinite values \(got 6 of 6\)",
        ),
        (
            Data(x=torch.ones(3, 0), y=torch.arange(3)),
            r"'x' must have channels and values \(got \[3, 0\] on cpu",
        ),
        (
            Data(x=torch.ones(3, 2, device='meta'), y=torch.arange(3)),
            r"'x' must have channels and values \(got \[3, 2\] on meta",
        ),
        (
            Data(x=torch.ones(3, 2).to(torch.float8_e5m2), y=torch.arange(3)),
            'must hold node features: ',
        ),
        (
            Data(x=torch.ones(3, 2), y=torch.arange(3).bfloat16()),
            r'dense tensor of integers \(got torch.bfloat16, torch.strided, on cpu',
        ),
        (
            Data(x=torch.ones(3, 2), y=torch.arange(3).to_sparse()),
            r'dense tensor of integers \(got torch.int64, torch.sparse_coo, on cpu',
        ),
        (
            Data(x=torch.ones(3, 2), y=torch.arange(3, device='meta')),
            r'dense tensor of integers \(got torch.int64, torch.strided, on meta',
        ),
        (
            Data(x=torch.ones(3, 2).double() * 1e39, y=torch.arange(3)),
            r'finite features \(got 6 that are not, or are too large for float32',
        ),
    ],
)
def test_damaged_pt(tmp_path: Path, content: Any, text: str) -> None:
    path = tmp_path / 'my.pt'
    torch.save(content, path)
    with pytest.raises(ValueError, match=text) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ('crow', 'column', 'text'),
    [
        ([0, 1, 2, 3], [0, 1, 10**6], '0 <= col_indices < ncols'),
        ([0, 1, 2, 3], [0, 1, -1], '0 <= col_indices < ncols'),
        ([0, 1, 2, 60], [0, 1, 1], r'crow_indices\[..., -1\] == nnz'),
        ([0, 2, 2, 3], [1, 1, 0], 'are sorted and distinct'),
    ],
)
@pytest.mark.filterwarnings('ignore:Sparse CSR')
def test_damaged_csr(
    tmp_path: Path, crow: list[int], column: list[int], text: str
) -> None:
    parts = torch.tensor(crow), torch.tensor(column), torch.ones(3)
    x = torch.sparse_csr_tensor(*parts, size=(3, 2), check_invariants=False)
    path = tmp_path / 'my.pt'
    torch.save(Data(x=x, y=torch.arange(3)), path)
    with pytest.raises(ValueError, match=f"{path}' must hold node features: .*{text}"):
        load_dataset(path)


def test_arguments_are_checked(tmp_path: Path) -> None:
    path = tmp_path / 'my.pt'
    torch.save(Data(x=torch.ones(3, 2), y=torch.arange(3)), path)
    with pytest.raises(ValueError, match=r"'label' has no meaning for a '.pt' file"):
        load_dataset(path, label='y')
    with pytest.raises(TypeError, match=r"'standardize' must be a bool \(got 'no'\)"):
        load_dataset(path, standardize='no')  # type: ignore[arg-type]
