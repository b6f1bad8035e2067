"""Public data sets: where they are found, what is read, and what is refused."""

import hashlib
import json
import pickle
import re
import shutil
import zlib
from pathlib import Path
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import datasets, preprocessing
from torch_geometric.data import Data
from torch_geometric.io import read_npz
from torch_geometric.transforms import NormalizeFeatures

from reproduction.datasets import (
    DATASETS,
    load_dataset,
    load_observed_edges,
    raw_folder,
)
from reproduction.datasets.raw_files import RAW_FILES

LINES = b'node_id\tfeature\tlabel\n0\t0,1,0\t1\n1\t7,1,0\t0\n2\t0,0,0\t1\n'
EDGES = b'node_id\tnode_id\n1\t0\n1\t1\n'
FILE, EDGE_FILE = 'out1_node_feature_label.txt', 'out1_graph_edges.txt'
FOLDER = 'chameleon/geom_gcn/raw'
CACHE = '20news-bydate_py3.pkz'


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.delenv('GSL_DATA', raising=False)
    refuse = Mock(side_effect=URLError('no network in tests'))
    monkeypatch.setattr(torch.hub, 'download_url_to_file', refuse)
    monkeypatch.setattr('sklearn.datasets._twenty_newsgroups._fetch_remote', refuse)


@pytest.fixture
def small(monkeypatch):
    """A function that changes the counts and the known bytes of a data set."""

    def change(name, counts, contents=None):
        raw = RAW_FILES[name]._replace(counts=counts)
        if contents is not None:
            sums = {k: (hashlib.sha256(v).hexdigest(),) for k, v in contents.items()}
            raw = raw._replace(digests=sums)
        monkeypatch.setitem(RAW_FILES, name, raw)

    return change


@pytest.fixture
def chameleon(small):
    small('Chameleon', (3, 3, 2), {FILE: LINES, EDGE_FILE: EDGES})


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def write_chameleon(folder, lines=LINES):
    return write(folder, {FILE: lines, EDGE_FILE: EDGES})


def snapshot(folder):
    paths = [path for path in folder.rglob('*') if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


# The files themselves


def test_documented_counts():
    doc = load_dataset.__doc__ or ''
    rows = re.findall(r'(\w+) +([\d,]+) +([\d,]+) +([\d,]+)\n', doc)
    documented = {
        n: tuple(int(c.replace(',', '')) for c in counts) for n, *counts in rows
    }
    assert tuple(documented) == DATASETS
    for name, raw in RAW_FILES.items():
        assert raw.counts == documented[name]
        assert re.fullmatch(r'(https://[\w.-]+(/[\w.-]+)+)?', raw.url), raw


def digest(*tensors):
    sha = hashlib.sha256()
    for x in tensors:
        is_dense = x.layout == torch.strided
        arrays = [x] if is_dense else [x.crow_indices(), x.col_indices(), x.values()]
        for array in arrays:
            sha.update(f'{array.dtype}{list(array.shape)}'.encode())
            sha.update(array.numpy().tobytes())
    return sha.hexdigest()[:16]


@pytest.mark.parametrize(
    ('name', 'words', 'expected', 'edges'),
    [
        ('CiteSeer', 105_165, '8dba3da23c97a6e9', '27a972b45ced8771'),
        ('PubMed', 988_031, '1bc15d306e220b08', 'ad1da6e56655758e'),
        ('Chameleon', 29_157, 'c3d4a253f1b22d77', 'aebc8c1d4d6ce35f'),
        ('Squirrel', 93_477, 'accc46e8ee4674e5', 'c38de353dd9457f3'),
        ('CS', 1_092_079, '27c0f21c138ee8bb', None),
        ('Physics', 1_137_311, '2c1e213c9be3491a', None),
    ],
)
def test_real_words(gsl_data, monkeypatch, tmp_path, name, words, expected, edges):
    """Each number is as it was when the paper's tables were made."""
    folder = RAW_FILES[name].folder
    source = gsl_data(folder)
    monkeypatch.setenv('GSL_DATA', str(source.parents[folder.count('/')]))
    data = load_dataset(name, str(tmp_path))
    assert sorted(data.keys()) == ['x', 'y']
    x = data.x if data.x.layout == torch.strided else data.x.values()
    assert int(x.count_nonzero()) == words
    assert digest(data.x, data.y) == expected
    if edges is not None:
        observed = load_observed_edges(name, str(tmp_path))
        assert digest(observed) == edges
    assert not list(tmp_path.iterdir())  # Nothing is written, the source is no root.


def test_real_posts(gsl_data, tmp_path):
    write(tmp_path / '20News' / 'raw', {})
    source = gsl_data(f'20News/{CACHE}')
    shutil.copyfile(source, tmp_path / '20News' / 'raw' / CACHE)
    data = load_dataset('20News', tmp_path)
    assert (data.x.shape, data.x.dtype) == ((9607, 236), torch.float32)
    assert (len(data.feature_names), len(data.class_names)) == (236, 10)
    # The numbers of posts that the newsgroups are known to have.
    sizes = [799, 982, 975, 990, 999, 991, 984, 990, 987, 910]
    assert data.y.bincount().tolist() == sizes
    # TF-IDF rows have unit norm, unless none of the words occurs.
    norm = data.x.norm(dim=1)
    assert torch.allclose(norm[norm > 0], torch.ones(()))
    assert int((norm == 0).sum()) < 100


@pytest.mark.parametrize('name', ['digits', 'wine', 'breast_cancer'])
def test_tables_of_scikit_learn(tmp_path, name):
    data, table = load_dataset(name, tmp_path), getattr(datasets, f'load_{name}')()
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    assert data.class_names == [str(label) for label in table.target_names]
    assert data.y.tolist() == table.target.tolist()
    # scikit-learn also maps constant columns to zero.
    expected = preprocessing.StandardScaler().fit_transform(table.data)
    np.testing.assert_allclose(data.x.numpy(), expected, rtol=1e-5, atol=1e-6)


# Folders


@pytest.mark.usefixtures('chameleon')
@pytest.mark.parametrize('subfolder', [FOLDER, 'chameleon/geom_gcn'])
def test_files_of_the_environment_come_first(tmp_path, monkeypatch, subfolder):
    write_chameleon(tmp_path / 'root' / FOLDER, b'damaged')
    write_chameleon(tmp_path / 'own' / subfolder)
    monkeypatch.setenv('GSL_DATA', str(tmp_path / 'own'))
    before = snapshot(tmp_path)
    data = load_dataset('Chameleon', str(tmp_path / 'root'))
    # Rows that sum to more than 1 are divided; the density of 1/3 keeps them dense.
    assert data.x.tolist() == [[0, 1, 0], [7 / 8, 1 / 8, 0], [0, 0, 0]]
    assert data.y.tolist() == [1, 0, 1]
    assert raw_folder('Chameleon') == tmp_path / 'own' / subfolder
    edges = load_observed_edges('Chameleon', str(tmp_path / 'root'))
    assert edges.tolist() == [[0, 1], [1, 0]]
    # The home folder is known by its sign.
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.delenv('GSL_DATA')
    if subfolder == FOLDER:
        assert load_dataset('Chameleon', '~/own').num_nodes == 3
    assert snapshot(tmp_path) == before


def test_folders_that_do_not_serve(tmp_path, monkeypatch):
    write(tmp_path / 'CiteSeer' / 'raw', {'ind.citeseer.allx': b''})
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    assert raw_folder('CiteSeer', str(tmp_path / 'root')) is None
    monkeypatch.setenv('GSL_DATA', '/no/such/folder')
    text = r"'GSL_DATA' must be a folder \(got '/no/such/folder'\)"
    with pytest.raises(ValueError, match=text):
        load_dataset('CiteSeer')


@pytest.mark.usefixtures('chameleon')
def test_download(tmp_path, monkeypatch):
    urls = []

    def download(url, path):
        urls.append(url)
        Path(path).write_bytes(LINES if url.endswith(FILE) else EDGES)

    monkeypatch.setattr(torch.hub, 'download_url_to_file', download)
    for _ in range(2):  # The second time it is there.
        assert load_dataset('Chameleon', str(tmp_path)).num_nodes == 3
        features_url, edges_url = urls
    assert features_url.startswith(
        'https://raw.githubusercontent.com/graphdml-uiuc-jlu/'
    )
    assert features_url.endswith(f'/new_data/chameleon/{FILE}')
    assert edges_url.endswith(f'/new_data/chameleon/{EDGE_FILE}')


@pytest.mark.parametrize(
    ('name', 'file', 'source'),
    [('Chameleon', FILE, f'https.*{FILE}'), ('20News', CACHE, 'scikit-learn')],
)
def test_download_fails(tmp_path, name, file, source):
    text = rf"'.*{file}' could not be downloaded from {source} \(.*no network in tests"
    with pytest.raises(OSError, match=text):
        load_dataset(name, str(tmp_path))
    assert not snapshot(tmp_path)


# Bytes


def write_planetoid(folder):
    names = RAW_FILES['CiteSeer'].digests
    matrix = pickle.dumps(sparse.csr_matrix(np.eye(3)))
    return write(folder, dict.fromkeys(names, matrix))


def test_unknown_bytes_are_refused(tmp_path, harm):
    folder = tmp_path / 'CiteSeer' / 'raw'
    write_planetoid(folder)
    path = folder / 'ind.citeseer.x'
    path.write_bytes(pickle.dumps(harm))
    (expected,) = RAW_FILES['CiteSeer'].digests['ind.citeseer.x']
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    text = (
        f"'{path}' must have a known digest, {expected} (got {sha256}): it is damaged"
    )
    with pytest.raises(OSError, match=re.escape(text)):
        load_dataset('CiteSeer', str(tmp_path))
    with pytest.raises(OSError, match=re.escape(text)):
        load_observed_edges('CiteSeer', str(tmp_path))
    assert not harm.marker.exists()
    with pytest.raises(OSError, match=re.escape(f"'{folder}' is damaged (")):
        load_dataset('CiteSeer', str(tmp_path), allow_pickle=True)
    assert harm.marker.exists()


@pytest.mark.usefixtures('chameleon')
def test_a_digest_of_git_is_known(tmp_path, monkeypatch):
    folder = write_chameleon(tmp_path / FOLDER)
    raw = RAW_FILES['Chameleon']
    blob = '249221a32c8b306bb5e5d07c09db0a38003ae8c0'  # Of `git hash-object`.
    digests = {**raw.digests, EDGE_FILE: ('0', blob)}
    monkeypatch.setitem(RAW_FILES, 'Chameleon', raw._replace(digests=digests))
    assert load_dataset('Chameleon', str(tmp_path)).num_nodes == 3
    (folder / EDGE_FILE).write_bytes(EDGES + b'2\t1\n')
    with pytest.raises(OSError, match=rf"'{folder / EDGE_FILE}' must .*0 or {blob}"):
        load_dataset('Chameleon', str(tmp_path))


@pytest.mark.parametrize(('width', 'is_sparse'), [(5, False), (60, True)])
def test_coauthor_reads_what_pyg_reads(tmp_path, small, width, is_sparse):
    rng = np.random.default_rng(0)
    # A part that is not needed may hold objects, which are not unpickled.
    arrays = {'labels': np.arange(6) % 3, 'names': np.array([{}])}
    for matrix_name, size in (('attr', 5), ('adj', 6)):
        matrix = sparse.csr_matrix(rng.integers(1, 3, size=(6, size)))
        matrix.data[::4] = 0  # Stored, yet no occurrence.
        matrix.resize(6, width if matrix_name == 'attr' else 6)
        for suffix in ('data', 'indices', 'indptr', 'shape'):
            arrays[f'{matrix_name}_{suffix}'] = getattr(matrix, suffix)
    path = write(tmp_path / 'CS' / 'raw', {}) / 'ms_academic_cs.npz'
    np.savez_compressed(path, **arrays)
    small('CS', (6, width, 3), {path.name: path.read_bytes()})
    loaded, expected = load_dataset('CS', str(tmp_path)), read_npz(str(path))
    x = NormalizeFeatures()(Data(x=expected.x)).x
    assert (loaded.x.layout == torch.sparse_csr) == is_sparse
    torch.testing.assert_close(loaded.x.to_dense() if is_sparse else loaded.x, x)
    assert torch.equal(loaded.y, expected.y)


# 20News

GROUPS = [
    *('alt.atheism', 'comp.sys.ibm.pc.hardware', 'misc.forsale', 'rec.autos'),
    *('rec.sport.hockey', 'sci.crypt', 'sci.electronics', 'sci.med', 'sci.space'),
    'talk.politics.guns',
]


def posts():
    """Two posts in each of the ten groups, and two in one that is left out."""
    groups = [*GROUPS, 'zzz.other']
    texts = [f'the common {group.replace(".", "")}' for group in groups]
    content = {'data': texts, 'target': np.arange(11), 'target_names': groups}
    bunch = pytest.importorskip('sklearn.utils').Bunch
    return dict.fromkeys(
        ['train', 'test'], bunch(**content, filenames=np.array(groups))
    )


def test_downloaded_posts_are_kept_as_text(tmp_path, small, monkeypatch):
    small('20News', (20, 11, 10))
    real = datasets.fetch_20newsgroups

    def fake(data_home, download_if_missing, **kwargs):
        # Nothing is there that scikit-learn could unpickle.
        assert list(Path(data_home).iterdir()) == []
        assert download_if_missing
        cache = zlib.compress(pickle.dumps(posts()))
        (Path(data_home) / CACHE).write_bytes(cache)
        return real(data_home=data_home, download_if_missing=False, **kwargs)

    monkeypatch.setattr(datasets, 'fetch_20newsgroups', fake)
    assert raw_folder('20News', tmp_path) is None
    data = load_dataset('20News', tmp_path)
    x = data.x
    assert data.y.bincount().tolist() == [2] * 10
    # "the" is a stop word, "common" is in 20 of 20 posts, the name of a group in 2.
    words = sorted(['common'] + [group.replace('.', '') for group in GROUPS])
    assert (data.feature_names, data.class_names) == (words, sorted(GROUPS))
    assert sorted(x[0].unique().tolist()) == pytest.approx([0, 0.29, 0.957], abs=1e-3)
    monkeypatch.delattr(datasets, 'fetch_20newsgroups')
    # Nothing is to be trusted, nor downloaded again.
    folder = tmp_path / '20News' / 'raw'
    assert [item.name for item in folder.iterdir()] == ['posts.json']
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    assert raw_folder('20News', 'root') == folder
    assert torch.equal(load_dataset('20News', 'root').x, x)
    content = (folder / 'posts.json').read_bytes()
    for damage in (b'', content[: len(content) // 2], json.dumps([[1], [0]]).encode()):
        (folder / 'posts.json').write_bytes(damage)
        with pytest.raises(OSError, match=rf"'{folder}' is damaged \(.*\): delete it"):
            load_dataset('20News', 'root')


# MiniImageNet


def write_mini(root, **changes):
    rng = np.random.default_rng(0)
    content = {}
    for split, size in {'train': 6, 'val': 4, 'test': 2}.items():
        content[f'x_{split}'] = torch.from_numpy(rng.standard_normal((size, 4))).float()
        # Any numbers are labels, and are counted in their order.
        content[f'y_{split}'] = np.array([64, 80, 99])[np.arange(size) % 3]
    content |= changes
    folder = root / 'MiniImageNet' / 'raw'
    write(folder, {'mini_imagenet.pkl': pickle.dumps(content)})
    return folder, content


def test_a_pickle_is_read_once(tmp_path, monkeypatch, small):
    small('MiniImageNet', (12, 4, 3))
    folder, content = write_mini(tmp_path / 'own')
    monkeypatch.setenv('GSL_DATA', str(tmp_path / 'own'))
    before, root = snapshot(tmp_path / 'own'), tmp_path / 'root'
    text = rf"'{folder}/mini_imagenet.pkl' must have a known digest, but there is none"
    with pytest.raises(OSError, match=text):
        load_dataset('MiniImageNet', root)
    data = load_dataset('MiniImageNet', root, allow_pickle=True)
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    x = torch.cat([content['x_train'], content['x_val'], content['x_test']])
    assert torch.equal(data.x, x)
    assert data.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 1]
    # The arrays are no pickle, and need no permission.
    again = load_dataset('MiniImageNet', root)
    assert torch.equal(again.x, x)
    assert torch.equal(again.y, data.y)
    assert snapshot(tmp_path / 'own') == before
    path = root / 'MiniImageNet' / 'raw' / 'features.npz'
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(OSError, match=rf"'{path.parent}' is damaged \("):
        load_dataset('MiniImageNet', root)


@pytest.mark.parametrize(
    ('changes', 'error', 'text'),
    [
        ({'x_train': torch.zeros(6, 5)}, OSError, r'is damaged \(.*dimension'),
        ({'y_train': np.zeros(6)}, OSError, r'each row must have one integer'),
        ({'x_test': np.full((2, 4), np.nan)}, OSError, r'must be finite'),
        (
            {'y_test': np.array([3, 4])},
            ValueError,
            r'must give 12 nodes, 4 features and 3 .* \(got 12 .* and 5 classes\)',
        ),
    ],
)
def test_the_content_of_a_pickle_is_checked(tmp_path, small, changes, error, text):
    small('MiniImageNet', (12, 4, 3))
    folder, _ = write_mini(tmp_path, **changes)
    with pytest.raises(error, match=text) as caught:
        load_dataset('MiniImageNet', tmp_path, allow_pickle=True)
    assert str(folder) in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ['mini_imagenet.pkl']


def test_a_missing_pickle(tmp_path):
    text = r"'.*raw/mini_imagenet.pkl' is missing and .* qitianwu/NodeFormer"
    with pytest.raises(FileNotFoundError, match=text.replace(' qi', '.*qi')):
        load_dataset('MiniImageNet', tmp_path)


# Arguments


@pytest.mark.parametrize('name', ['Cora', Path('a.txt')])
def test_unknown_names(name):
    text = rf"must be one of \['CiteSeer', .*, or the path .*\(got '{name}'\)"
    with pytest.raises(ValueError, match=text):
        load_dataset(name)
    with pytest.raises(ValueError, match="'name' must be one of"):
        load_observed_edges('CS')  # Only some have edges.
