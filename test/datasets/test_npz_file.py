import io
import struct
import tracemalloc
import zipfile

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


def test_arrays_larger_than_their_file_are_read(tmp_path):
    path = tmp_path / 'my.npz'
    np.savez_compressed(path, x=np.ones((5000, 9)), y=np.arange(5000) % 2)
    assert path.stat().st_size < 5000
    assert load_dataset(path).x.sum() == 45_000


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


def to_npy(header, content=None):
    """Return an array in NumPy's format, with a header of one's own."""
    content = X.tobytes() if content is None else content
    size = struct.pack('<H', len(header) + 1)
    return b'\x93NUMPY\x01\x00' + size + f'{header}\n'.encode() + content


STATE = "{{'descr': '<f8', 'fortran_order': False, 'shape': {}}}"
WHOLE = to_npy(STATE.format((3, 2)))


@pytest.mark.parametrize(
    ('members', 'text'),
    [
        ({'x.npy': to_npy(STATE.format((10**9, 10**3)))}, r"'x.npy' states the shape"),
        ({'x.npy': to_npy(STATE.format((4, 2)))}, 'of 64 bytes, but holds 48'),
        ({'x.npy': to_npy(STATE.format((2, 2)))}, 'of 32 bytes, but holds 48'),
        ({'x.npy': to_npy(STATE.format((-3, -2)))}, ''),
        ({'x': WHOLE, 'x.npy': WHOLE}, r"more than one array named \['x'\]"),
        ({'x.npy': b'\x93NUMPY\x07\x00'}, r'the unknown format \(7, 0\)'),
        ({'x.npy': to_npy('(' * 1000)}, 'the header of an array cannot be parsed'),
        ({'x.npy': b''}, ''),
    ],
)
def test_forged_npz(tmp_path, members, text):
    path = tmp_path / 'my.npz'
    with zipfile.ZipFile(path, 'w') as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        stream = io.BytesIO()
        np.save(stream, Y)
        archive.writestr('y.npy', stream.getvalue())
    with pytest.raises(ValueError, match=rf"^'{path}' must hold .*\(.*{text}.*\)$"):
        load_dataset(path)


def test_no_more_is_unpacked_than_a_header_states(tmp_path):
    path, header = tmp_path / 'my.npz', STATE.format((2, 2))
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('x.npy', to_npy(header, bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r'of 32 bytes, but holds 67,108,864'):
            load_dataset(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize('method', [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_that_claims_more_than_its_file(tmp_path, method):
    path, size = tmp_path / 'my.npz', 8 * 10**12
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, 'w', method) as archive:
        archive.writestr('x.npy', to_npy(STATE.format((10**12, 1)), b''))
        (member,) = archive.infolist()
        # Only the list of members at the archive's end is forged.
        member.file_size += size
        member.compress_size += size
    path.write_bytes(stream.getvalue())
    assert path.stat().st_size < 1000
    text = rf"^'{path}' must .*\(a member claims more than \d+ bytes\)$"
    with pytest.raises(ValueError, match=text):
        load_dataset(path)
