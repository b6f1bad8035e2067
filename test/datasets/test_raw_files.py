import pickle
import struct

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_npz, read_planetoid_data

from torch_geometric_gsl.datasets._io.raw_files import (
    _read_rows,
    _to_sparse,
    read_coauthor,
    read_planetoid,
    read_wikipedia,
)
from torch_geometric_gsl.datasets._io.safe_pickle import read_pickle, to_numbers

sparse = pytest.importorskip('scipy.sparse')

NAMES = ('allx', 'tx', 'ally', 'ty', 'test.index')


def python2_pickle(array):
    """An array as Python 2 wrote it: its bytes are a string."""
    content = array.tobytes()
    kind = array.dtype.str[1:].encode()
    return b''.join(
        [
            b'\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85',
            b'U\x01b\x87R(K\x01',
            b'K' + bytes([array.size]) + b'\x85',
            b'cnumpy\ndtype\nU' + bytes([len(kind)]) + kind + b'K\x00K\x01\x87R',
            b'(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T',
            struct.pack('<i', len(content)) + content + b'tb.',
        ]
    )


def write_planetoid(folder):
    """Files like those of CiteSeer: two test nodes are missing, one row is empty."""
    rng = np.random.default_rng(0)
    dense = (rng.random((10, 5)) * (rng.random((10, 5)) < 0.5)).astype(np.float32)
    dense[2] = 0
    values = {
        'allx': sparse.csr_matrix(dense[:6]),
        'tx': sparse.csr_matrix(dense[6:]),
        'ally': np.eye(3, dtype=np.int32)[rng.integers(3, size=6)],
        'ty': np.eye(3, dtype=np.int32)[rng.integers(3, size=4)],
    }
    for name, value in values.items():
        path = folder / f'ind.citeseer.{name}'
        path.write_bytes(pickle.dumps(value, protocol=2))
    (folder / 'ind.citeseer.test.index').write_text('9\n6\n11\n7\n')
    return [folder / f'ind.citeseer.{name}' for name in NAMES]


def same(read, data):
    x, y = read
    assert torch.equal(x.to_dense(), data.x)
    assert y.tolist() == data.y.tolist()


def test_planetoid_puts_test_rows_where_the_index_tells(tmp_path):
    paths = write_planetoid(tmp_path)
    first, second, *labels = (pickle.loads(path.read_bytes()) for path in paths[:4])
    x, y = np.zeros((12, 5), dtype=np.float32), np.zeros(12, dtype=np.int64)
    for node in range(6):
        x[node], y[node] = first.toarray()[node], labels[0][node].argmax()
    for row, node in enumerate([9, 6, 11, 7]):
        x[node], y[node] = second.toarray()[row], labels[1][row].argmax()
    # Nodes 8 and 10 are in no file: they have no features, and class 0.
    same(read_planetoid(paths), Data(x=torch.from_numpy(x), y=torch.from_numpy(y)))


@pytest.mark.parametrize('name', ['CiteSeer', 'PubMed'])
def test_planetoid_on_real_data(gsl_data, name):
    folder = gsl_data(f'{name}/raw')
    paths = [folder / f'ind.{name.lower()}.{part}' for part in NAMES]
    same(read_planetoid(paths), read_planetoid_data(str(folder), name))


def test_python2_strings_are_bytes(tmp_path):
    path = tmp_path / 'file'
    array = np.arange(200, dtype=np.uint8)
    path.write_bytes(python2_pickle(array))
    assert pickle.loads(path.read_bytes(), encoding='latin1').shape
    np.testing.assert_array_equal(to_numbers(read_pickle(path), 'x', path), array)


def test_nothing_else_is_loaded(tmp_path):
    path = tmp_path / 'file'
    csr = b'\x80\x02cscipy.sparse.csr\ncsr_matrix\n'
    cases = {
        b'cos\nsystem\n(Vtouch\ntR.': 'os.system',
        csr + b')\x81K\x05b.': 'a matrix of unknown form',
        csr + b'}b.': '__setstate__',  # The state of the class itself.
        csr + b'}\x92.': 'NEWOBJ_EX',
    }
    for content, text in cases.items():
        path.write_bytes(content)
        with pytest.raises(OSError, match=rf"file' is not a readable .*{text}"):
            _read_rows(path)
    for content in (
        csr + b'K\x05\x85R.',
        csr + b')\x81.',
        csr + b')\x81}X\x06\x00\x00\x00_shapeK\x05sb.',
    ):
        path.write_bytes(content)
        text = r"file' is damaged \('data' in '.*file' must be an array.*\): delete"
        with pytest.raises(OSError, match=text):
            _read_rows(path)


@pytest.mark.parametrize(
    'parts',
    [
        {'indices': np.full(15, 5, dtype=np.int32)},
        {'indices': np.full(15, -1, dtype=np.int32)},
        {'indices': np.zeros(14, dtype=np.int32)},
        {'indices': np.zeros(15)},
        {'indptr': np.array([0, 3, 2, 6, 9, 12, 15])},
        {'indptr': np.array([1, 3, 3, 6, 9, 12, 15])},
        # Differences of these wrap to what is not negative.
        {'indptr': np.array([0, 3, 2, 6, 9, 12, 15], dtype=np.uint32)},
        {'indptr': np.array([0, 3, 2, 6, 9, 12, 15], dtype=np.uint64)},
        {'indptr': np.array([0, 2**63 - 1, -2, 0, 9, 12, 15])},
        {'indptr': np.array([0, 15])},
        {'data': np.full(15, np.nan)},
        {'data': np.ones((3, 5))},
        {'_shape': (6, 5, 1)},
    ],
)
def test_corrupt_sparse_matrix(tmp_path, parts):
    paths = write_planetoid(tmp_path)
    indptr = np.array([0, 3, 3, 6, 9, 12, 15])
    csr = (np.ones(15), np.tile([0, 2, 4], 5), indptr)
    matrix = sparse.csr_matrix(csr, shape=(6, 5))
    paths[0].write_bytes(pickle.dumps(matrix, 2))
    assert read_planetoid(paths)[0].shape == (12, 5)
    vars(matrix).update(parts)
    paths[0].write_bytes(pickle.dumps(matrix, 2))
    with pytest.raises(OSError, match=r'allx. is damaged \(its parts make no sparse'):
        read_planetoid(paths)


@pytest.mark.parametrize('dtype', [np.uint8, np.uint64])
def test_unsigned_parts(dtype):
    # 255 rows: one more is no number of eight bits.
    matrix = sparse.csr_matrix(np.eye(255, 5, dtype=np.float32))
    parts = matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape)
    found = _to_sparse('file', [parts[0], *(part.astype(dtype) for part in parts[1:])])
    assert torch.equal(found.to_dense(), torch.eye(255, 5))


def test_a_matrix_of_fewer_than_no_rows():
    none, shape = np.zeros(0, dtype=int), np.array([-1, 5])
    with pytest.raises(OSError, match='its parts make no sparse matrix'):
        _to_sparse('file', [none, none, none, shape])


def test_files_that_disagree(tmp_path):
    index = tmp_path / 'ind.citeseer.test.index'
    for text, reason in {
        '9 6 11': r"tx' is damaged \(it must give \(3, 5\), not \(4, 5\)\)",
        '9 5 11 7': r"index' is damaged \(it must give 6, not 5\)",
        '9 6 6 7': r"index' is damaged \(it must list each test node once\)",
        '9 6 x 7': r"index' is damaged \(invalid literal",
    }.items():
        paths = write_planetoid(tmp_path)
        index.write_text(text)
        with pytest.raises(OSError, match=reason):
            read_planetoid(paths)
    paths = write_planetoid(tmp_path)
    with pytest.raises(OSError, match=r"ty' is damaged \(it must give 6, not 4\)"):
        read_planetoid([*paths[:2], paths[3], *paths[3:]])
    with pytest.raises(OSError, match=r"ally' is damaged \(it holds no sparse matrix"):
        read_planetoid([paths[2], *paths[1:]])
    paths[3].write_bytes(pickle.dumps(np.arange(4)))
    with pytest.raises(OSError, match=r"ty' is damaged \(its labels have the shape"):
        read_planetoid(paths)
    paths[3].write_bytes(pickle.dumps(['a']))
    with pytest.raises(
        OSError, match=r"ty' is damaged \('data' in .* must be an array"
    ):
        read_planetoid(paths)


WIKIPEDIA = b'node_id\tfeature\tlabel\n0\t0,1,0\t1\n1\t7,0,0\t0\n2\t0,0,0\t4\n'


def wikipedia_file(folder, content=WIKIPEDIA):
    path = folder / 'out1_node_feature_label.txt'
    path.write_bytes(content)
    return path


def test_wikipedia(tmp_path):
    x, y = read_wikipedia([wikipedia_file(tmp_path)])
    assert x.to_dense().tolist() == [[0, 1, 0], [7, 0, 0], [0, 0, 0]]
    assert y.tolist() == [1, 0, 4]


@pytest.mark.parametrize(
    ('old', 'new', 'text'),
    [
        (b'0,1,0', b'0,1,0,', r'line 2: features must be digits between commas'),
        (b'0,1,0', b'0,1;0', r'line 2: features must be digits between commas'),
        (b'0,1,0', b'0,x,0', r'line 2: features must be digits between commas'),
        (b'0,1,0', b'0.5,0', r'line 2: features must be digits between commas'),
        (WIKIPEDIA, b'', r'line 2: need at least one array'),
        (b'7,0,0', b'7,0', r'line 5: all input arrays must have the same shape'),
        (b'\t4', b'', r'line 4: not enough values'),
        (b'\t4', b'\tfour', r'line 4: invalid literal'),
        (b'\n1\t', b'\n2\t', r'line 3: node 1 is missing'),
        (b'\t0\n', b'\t99999999999999999999\n', r'line 5: .* too large'),
    ],
)
def test_damaged_wikipedia(tmp_path, old, new, text):
    assert old in WIKIPEDIA
    path = wikipedia_file(tmp_path, WIKIPEDIA.replace(old, new))
    with pytest.raises(OSError, match=rf"txt' is damaged \({text}.*\): delete it"):
        read_wikipedia([path])


def coauthor_file(folder, **changes):
    rng = np.random.default_rng(0)
    arrays = {}
    for kind, width in (('attr', 5), ('adj', 6)):
        matrix = sparse.csr_matrix(rng.integers(1, 3, size=(6, width)))
        matrix.data[::4] = 0  # Stored, yet no occurrence.
        for part in ('data', 'indices', 'indptr', 'shape'):
            arrays[f'{kind}_{part}'] = getattr(matrix, part)
    arrays['labels'] = rng.integers(3, size=6)
    path = folder / 'ms_academic_cs.npz'
    np.savez_compressed(path, **{**arrays, **changes})
    return path


def test_coauthor_reads_what_pyg_reads(tmp_path):
    # A part that is not needed may hold objects, which are not unpickled.
    path = coauthor_file(tmp_path, names=np.array([{}]))
    same(read_coauthor([path]), read_npz(str(path)))


def test_damaged_coauthor(tmp_path):
    content = coauthor_file(tmp_path).read_bytes()
    path = tmp_path / 'file.npz'
    middle = content.index(b'attr_data') + 50
    flipped = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
    for damage in (content[:-1], content[: len(content) // 2], b'', b'no zip', flipped):
        path.write_bytes(damage)
        with pytest.raises(OSError, match=r"file\.npz' is damaged \(.*\): delete it"):
            read_coauthor([path])
    cases = [
        ({'attr_shape': np.array([6, 2])}, 'its parts make no sparse matrix'),
        ({'attr_data': np.array(['a'] * 30)}, 'its parts make no sparse matrix'),
        ({'attr_data': np.array([{}])}, 'Object arrays cannot be loaded'),
        ({'labels': np.arange(5)}, r'its labels have the shape \(5,\)'),
        ({'labels': np.arange(6.0)}, r'its labels have the shape \(6,\)'),
    ]
    for changes, text in cases:
        with pytest.raises(OSError, match=rf"cs\.npz' is damaged \({text}"):
            read_coauthor([coauthor_file(tmp_path, **changes)])


@pytest.mark.parametrize('kept', [0, 0.5, 0.97])
@pytest.mark.parametrize('name', NAMES)
def test_truncated_planetoid_file(tmp_path, name, kept):
    paths = write_planetoid(tmp_path)
    path = tmp_path / f'ind.citeseer.{name}'
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * (len(content) - 2))])
    # Fewer test nodes than rows: it cannot be told which of the two is at fault.
    at_fault = '(tx|test.index)' if name == 'test.index' else name
    with pytest.raises(OSError, match=rf"^'{tmp_path}/ind.citeseer.{at_fault}' is "):
        read_planetoid(paths)
