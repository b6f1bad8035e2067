"""Raw files are read if their bytes are known, and nothing is executed otherwise."""

import hashlib
import pickle
import re
import sys

import numpy as np
import pytest
import torch
from torch_geometric.io import read_npz

from torch_geometric_gsl.datasets import load_dataset, load_observed_edges
from torch_geometric_gsl.datasets._raw_files import (
    RAW_FILES,
    _read_coauthor,
    _read_wikipedia,
    known_copies,
)

sparse = pytest.importorskip('scipy.sparse')

SHA256 = hashlib.sha256(b'content').hexdigest()
# What `git hash-object` tells.
BLOB = '6b584e8ece562ebffc15d38808cd6b98fc3d97ea'


def write_planetoid(folder):
    """Files like those of CiteSeer: two test nodes are missing, one row is empty."""
    rng = np.random.default_rng(0)
    dense = (rng.random((604, 5)) < 0.5).astype(np.float32)
    dense[2] = 0
    labels = np.eye(3, dtype=np.int32)[rng.integers(3, size=604)]
    values = {
        'x': sparse.csr_matrix(dense[:3]),
        'allx': sparse.csr_matrix(dense[:600]),
        'tx': sparse.csr_matrix(dense[600:]),
        'y': labels[:3],
        'ally': labels[:600],
        'ty': labels[600:],
        'graph': {0: [1, 1, 0], 1: [2], 605: [603]},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        path = folder / f'ind.citeseer.{name}'
        path.write_bytes(pickle.dumps(value, protocol=2))
    (folder / 'ind.citeseer.test.index').write_text('603\n600\n605\n601\n')
    return dense, labels.argmax(axis=1)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.delenv('GSL_DATA', raising=False)
    return tmp_path / 'data'


def test_test_rows_are_put_where_the_index_tells(root):
    dense, labels = write_planetoid(root / 'CiteSeer' / 'raw')
    data = load_dataset('CiteSeer', str(root), allow_pickle=True)
    x, y = np.zeros((606, 5), dtype=np.float32), np.zeros(606, dtype=np.int64)
    # Nodes of no file have no words, and class 0.
    nodes = [*range(600), 603, 600, 605, 601]
    x[nodes], y[nodes] = dense, labels
    expected = x / x.sum(axis=1, keepdims=True).clip(1)
    torch.testing.assert_close(data.x, torch.from_numpy(expected))
    assert data.y.tolist() == y.tolist()
    edges = load_observed_edges('CiteSeer', 606, str(root), allow_pickle=True)
    assert edges.tolist() == [[0, 1, 1, 2, 603, 605], [1, 0, 2, 1, 605, 603]]
    with pytest.raises(ValueError, match=r"'num_nodes' must be 606 .* \(got 9\)"):
        load_observed_edges('CiteSeer', 9, str(root), allow_pickle=True)


@pytest.mark.parametrize(
    'load', [load_dataset, lambda *args: load_observed_edges(args[0], 606, args[1])]
)
def test_unknown_bytes_are_refused(root, load, harm):
    folder = root / 'CiteSeer' / 'raw'
    write_planetoid(folder)
    path = folder / 'ind.citeseer.x'
    path.write_bytes(pickle.dumps(harm))
    (known,) = RAW_FILES['CiteSeer'].digests['ind.citeseer.x']
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    text = f"'{path}' must have a known digest, {known} (got {found}): it is damaged"
    with pytest.raises(OSError, match=re.escape(text)):
        load('CiteSeer', str(root))
    assert not harm.marker.exists()
    with pytest.raises(OSError, match=re.escape(f"'{folder}' is damaged (")):
        load_dataset('CiteSeer', str(root), allow_pickle=True)
    assert harm.marker.exists()


def test_scipy_is_optional(root, monkeypatch):
    write_planetoid(root / 'CiteSeer' / 'raw')
    monkeypatch.setitem(sys.modules, 'scipy.sparse._csr', None)
    with pytest.raises(ImportError, match=r"^'CiteSeer' needs scipy.*not installed"):
        load_dataset('CiteSeer', str(root), allow_pickle=True)


def test_copies_of_known_files(tmp_path):
    path = tmp_path / 'a'
    path.write_bytes(b'content')
    for known in (SHA256, BLOB):
        with known_copies(tmp_path, {'a': ('0', known)}, False) as folder:
            assert (folder / 'a').read_bytes() == b'content'
            # What is read there is what has been checked.
            path.write_bytes(b'other')
            assert (folder / 'a').read_bytes() == b'content'
        assert not folder.exists()
        with (
            pytest.raises(OSError, match=rf"'{path}' must have .*, 0 or {known} \(got"),
            known_copies(tmp_path, {'a': ('0', known)}, False),
        ):
            pass
        path.write_bytes(b'content')


def test_coauthor_reads_what_pyg_reads(tmp_path):
    rng = np.random.default_rng(0)
    # A part that is not needed may hold objects, which are not unpickled.
    arrays = {'labels': rng.integers(3, size=6), 'names': np.array([{}])}
    for kind, width in (('attr', 5), ('adj', 6)):
        matrix = sparse.csr_matrix(rng.integers(1, 3, size=(6, width)))
        matrix.data[::4] = 0  # Stored, yet no occurrence.
        for part in ('data', 'indices', 'indptr', 'shape'):
            arrays[f'{kind}_{part}'] = getattr(matrix, part)
    np.savez_compressed(tmp_path / 'a.npz', **arrays)
    found, expected = _read_coauthor(tmp_path), read_npz(str(tmp_path / 'a.npz'))
    assert torch.equal(found.x.to_dense(), expected.x)
    assert torch.equal(found.y, expected.y)


def test_wikipedia(tmp_path):
    path = tmp_path / 'out1_node_feature_label.txt'
    path.write_bytes(b'node_id\tfeature\tlabel\n0\t0,1,0\t1\n1\t7,0,0\t0\n')
    (tmp_path / 'out1_graph_edges.txt').write_text('node_id\tnode_id\n1\t0\n1\t1\n')
    data = _read_wikipedia(tmp_path)
    assert data.x.tolist() == [[0, 1, 0], [7, 0, 0]]
    assert (data.y.tolist(), data.edge_index.tolist()) == ([1, 0], [[1, 1], [0, 1]])
    path.write_bytes(path.read_bytes().replace(b'7,', b'x,'))
    with pytest.raises(ValueError, match='features must be digits'):
        _read_wikipedia(tmp_path)


SIZES = {
    'CiteSeer': (3327, 4552),
    'PubMed': (19717, 44324),
    'Chameleon': (2277, 31371),
    'Squirrel': (5201, 198353),
}


@pytest.mark.parametrize('name', SIZES)
def test_observed_edges_of_real_data(name, gsl_data, monkeypatch, tmp_path):
    nodes, pairs = SIZES[name]
    folder = RAW_FILES[name].folder
    source = gsl_data(folder)
    monkeypatch.setenv('GSL_DATA', str(source.parents[folder.count('/')]))
    source, target = found = load_observed_edges(name, nodes, str(tmp_path))
    assert found.shape == (2, 2 * pairs)
    assert not (source == target).any()
    code = source * nodes + target
    assert (code.diff() > 0).all()  # Each once, sorted.
    assert torch.equal((target * nodes + source).sort().values, code)


def test_arguments():
    with pytest.raises(ValueError, match="'name' must be one of"):
        load_observed_edges('CS', 3)
    with pytest.raises(ValueError, match="'num_nodes' must be at least 1"):
        load_observed_edges('CiteSeer', 0)
