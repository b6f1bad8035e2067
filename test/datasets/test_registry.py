import hashlib
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from torch_geometric_gsl.datasets import DATASETS, load_dataset, registry
from torch_geometric_gsl.datasets.mini_imagenet_features import MiniImageNetFeatures
from torch_geometric_gsl.datasets.registry import raw_folder
from torch_geometric_gsl.datasets.twenty_newsgroups import TwentyNewsgroups

LINES = b'node_id\tfeature\tlabel\n0\t0,1,0\t1\n1\t7,1,0\t0\n2\t0,0,0\t1\n'
EDGES = b'node_id\tnode_id\n0\t1\n2\t1\n'
FILE, EDGE_FILE = 'out1_node_feature_label.txt', 'out1_graph_edges.txt'
FOLDER = 'chameleon/geom_gcn/raw'


@pytest.fixture
def small(monkeypatch):
    """Chameleon with three nodes, no GSL_DATA, and no network."""
    contents = {FILE: LINES, EDGE_FILE: EDGES}
    digests = {k: (hashlib.sha256(v).hexdigest(),) for k, v in contents.items()}
    raw = registry.RAW_FILES['Chameleon']._replace(digests=digests)
    monkeypatch.setitem(registry.RAW_FILES, 'Chameleon', raw)
    monkeypatch.delenv('GSL_DATA', raising=False)

    def refuse(url, path):
        raise OSError('no network in tests')

    monkeypatch.setattr(torch.hub, 'download_url_to_file', refuse)


def write(folder, content=LINES):
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(content)
    (folder / EDGE_FILE).write_bytes(EDGES)


def snapshot(folder):
    paths = [path for path in folder.rglob('*') if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def test_documented_counts():
    doc = load_dataset.__doc__ or ''
    rows = re.findall(r'(\w+) +([\d,]+) +([\d,]+) +([\d,]+)\n', doc)
    found = {name: [int(n.replace(',', '')) for n in counts] for name, *counts in rows}
    assert tuple(found) == DATASETS
    for raw in registry.RAW_FILES.values():
        assert re.fullmatch(r'(https://[\w.-]+(/[\w.-]+)+)?', raw.url), raw
    assert list(MiniImageNetFeatures._expected) == found['MiniImageNet']
    assert list(TwentyNewsgroups._expected) == found['20News']


@pytest.mark.parametrize(
    ('name', 'num_words', 'is_sparse'),
    [
        ('CiteSeer', 105_165, True),
        ('PubMed', 988_031, False),
        ('Chameleon', 29_157, True),
        ('Squirrel', 93_477, True),
        ('CS', 1_092_079, True),
        ('Physics', 1_137_311, True),
    ],
)
def test_words(gsl_data, monkeypatch, tmp_path, name, num_words, is_sparse):
    folder = registry.RAW_FILES[name].folder
    source = gsl_data(folder)
    monkeypatch.setenv('GSL_DATA', str(source.parents[folder.count('/')]))
    data = load_dataset(name, str(tmp_path))
    assert sorted(data.keys()) == ['x', 'y']
    assert data.validate()
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    assert data.y.unique().tolist() == list(range(int(data.y.max()) + 1))
    counts = ' +'.join(f'{n:,}' for n in (*data.x.shape, int(data.y.max()) + 1))
    assert re.search(f'{name} +{counts}\n', load_dataset.__doc__)
    assert (data.x.layout == torch.sparse_csr) == is_sparse
    x = data.x.to_sparse_coo() if is_sparse else data.x.to_sparse()
    x = x.coalesce()
    assert float(x.values().min()) > 0
    assert x.values().numel() == num_words
    total = torch.zeros(x.size(0)).index_add_(0, x.indices()[0], x.values())
    assert float(total.max()) < 1 + 1e-5
    assert not list(tmp_path.iterdir())  # Nothing is written, the source is no root.


@pytest.mark.usefixtures('small')
@pytest.mark.parametrize('place', [FOLDER, 'chameleon/geom_gcn'])
def test_files_of_the_environment_come_first(tmp_path, monkeypatch, place):
    write(tmp_path / 'root' / FOLDER, b'damaged')
    write(tmp_path / 'own' / place)
    monkeypatch.setenv('GSL_DATA', str(tmp_path / 'own'))
    before = snapshot(tmp_path)
    data = load_dataset('Chameleon', str(tmp_path / 'root'))
    # Rows that sum to more than 1 are divided; the density of 1/3 keeps them dense.
    assert data.x.tolist() == [[0, 1, 0], [7 / 8, 1 / 8, 0], [0, 0, 0]]
    assert data.y.tolist() == [1, 0, 1]
    assert raw_folder('Chameleon') == tmp_path / 'own' / place
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(('count', 'is_sparse'), [(9, True), (10, False)])
def test_rows_of_words(count, is_sparse):
    # Sums below and above 1.
    x = torch.zeros(10, 10)
    x.view(-1)[torch.arange(count) * 7] = torch.arange(1, count + 1) / 5
    out = registry._normalize(x.to_sparse())
    assert (out.layout == torch.sparse_csr) == is_sparse
    expected = NormalizeFeatures()(Data(x=x.clone())).x
    assert 0 < float(expected.sum(dim=1)[0]) < 1
    torch.testing.assert_close(out.to_dense(), expected)


@pytest.mark.usefixtures('small')
def test_the_home_folder_is_known_by_its_sign(tmp_path, monkeypatch):
    write(tmp_path / FOLDER)
    (tmp_path / 'my.csv').write_text('a,y\n1,0\n2,1\n')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert load_dataset('Chameleon', '~').num_nodes == 3
    assert load_dataset('~/my.csv', label='y').num_nodes == 2


def test_an_incomplete_folder_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    (tmp_path / 'CiteSeer' / 'raw').mkdir(parents=True)
    (tmp_path / 'CiteSeer' / 'raw' / 'ind.citeseer.allx').touch()
    assert raw_folder('CiteSeer', str(tmp_path / 'root')) is None


@pytest.mark.usefixtures('small')
def test_download(tmp_path, monkeypatch):
    urls = []

    def download(url, path):
        urls.append(url)
        Path(path).write_bytes(LINES if url.endswith(FILE) else EDGES)

    monkeypatch.setattr(torch.hub, 'download_url_to_file', download)
    for _ in range(2):  # The second time it is there.
        assert load_dataset('Chameleon', str(tmp_path)).num_nodes == 3
        first, second = urls
    assert first.startswith('https://raw.githubusercontent.com/graphdml-uiuc-jlu/')
    assert first.endswith(f'/new_data/chameleon/{FILE}')
    assert second.endswith(f'/new_data/chameleon/{EDGE_FILE}')
    names = sorted(path.name for path in tmp_path.rglob('*.*'))
    assert names == [EDGE_FILE, FILE]


@pytest.mark.usefixtures('small')
def test_download_fails(tmp_path):
    text = rf"'.*{FILE}' could not be downloaded from https.* \(no network in tests\)"
    with pytest.raises(OSError, match=text) as caught:
        load_dataset('Chameleon', str(tmp_path))
    assert "let 'GSL_DATA' name a folder that has it" in str(caught.value)
    assert not snapshot(tmp_path)


def test_a_table_reads_its_raw_file_where_it_lies(tmp_path, monkeypatch):
    monkeypatch.setattr(MiniImageNetFeatures, '_expected', (6, 3, 2))
    parts = {f'x_{part}': np.ones((2, 3)) for part in ('train', 'val', 'test')}
    parts |= {f'y_{part}': np.array([0, 1]) for part in ('train', 'val', 'test')}
    own = tmp_path / 'own' / 'MiniImageNet' / 'raw'
    own.mkdir(parents=True)
    (own / 'mini_imagenet.pkl').write_bytes(pickle.dumps(parts))
    monkeypatch.setenv('GSL_DATA', str(tmp_path / 'own'))
    before = snapshot(tmp_path / 'own')
    with pytest.raises(OSError, match=r"mini_imagenet.pkl' must have a known digest"):
        load_dataset('MiniImageNet', str(tmp_path / 'root'))
    data = load_dataset('MiniImageNet', str(tmp_path / 'root'), allow_pickle=True)
    assert data.x.shape == (6, 3)
    assert 'class_names' not in data
    # What has been processed is no pickle, and needs no permission.
    assert load_dataset('MiniImageNet', str(tmp_path / 'root')).num_nodes == 6
    assert snapshot(tmp_path / 'own') == before


@pytest.mark.parametrize(
    ('args', 'options', 'error', 'text'),
    [
        (['Cora'], {}, ValueError, r"must be one of \['CiteSeer', .*or the path"),
        ([Path('a.txt')], {}, ValueError, r"'.npz', '.pt'\] \(got 'a.txt'\)"),
        ([3], {}, TypeError, r"'name' must be a str or a Path \(got int\)"),
        (['wine', None], {}, TypeError, r"'root' must be a str or a Path \(got None"),
        ([Path('wine')], {'label': 'y'}, ValueError, "'label' has no meaning for 'win"),
        (['CS'], {'standardize': True}, ValueError, r"'standardize' has no meaning"),
        (['a.csv'], {'allow_pickle': True}, ValueError, "no meaning for 'a.csv'"),
        (['wine'], {'allow_pickle': True}, ValueError, "'allow_pickle' has no meaning"),
        (['CS'], {'allow_pickle': 'any'}, TypeError, "'allow_pickle' must be a bool"),
    ],
)
def test_arguments_are_checked(args, options, error, text):
    with pytest.raises(error, match=text):
        load_dataset(*args, **options)


def test_the_folder_of_the_environment_is_checked(monkeypatch):
    monkeypatch.setenv('GSL_DATA', '/no/such/folder')
    text = r"'GSL_DATA' must name a folder \(got '/no/such/folder'\)"
    with pytest.raises(ValueError, match=text):
        load_dataset('CiteSeer')
    with pytest.raises(ValueError, match=r"'name' must be one of \['CiteSeer', .*wine"):
        raw_folder('wine')
