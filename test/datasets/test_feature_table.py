import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import NormalizeFeatures

from torch_geometric_gsl.datasets._feature_table import FeatureTable


class Table(FeatureTable):
    """Three nodes, whose features are read from a raw file."""

    @property
    def raw_file_names(self):
        return 'x.txt'

    def process(self):
        x = np.array(Path(self.raw_paths[0]).read_text().split(), dtype=float)
        self._save_table(x[:, None], np.arange(3) % 2, 'it')


@pytest.fixture
def root(tmp_path):
    (tmp_path / 'raw').mkdir()
    (tmp_path / 'raw' / 'x.txt').write_text('1 2 3')
    return tmp_path


def load(root, **options):
    return Table(str(root), **options)[0]


def sealed(root):
    return root / 'processed' / 'data.sealed'


def to_bytes(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def seal(payload):
    return hashlib.sha256(payload).digest() + payload


def test_it_is_a_dataset_of_pyg(root):
    dataset = Table(str(root))
    assert isinstance(dataset, InMemoryDataset)
    assert (repr(dataset), len(dataset)) == ('Table()', 1)
    assert (dataset.num_features, dataset.num_classes) == (1, 2)
    assert dataset.processed_paths == [str(sealed(root))]
    assert dataset.x.tolist() == [[1], [2], [3]]
    assert dataset.copy()[0].y.tolist() == [0, 1, 0]
    assert sealed(root).stat().st_mode == (root / 'raw' / 'x.txt').stat().st_mode
    # No draft is left behind.
    names = sorted(path.name for path in (root / 'processed').iterdir())
    assert names == ['data.sealed', 'pre_transform.txt']


@pytest.mark.parametrize('is_sealed', [False, True])
@pytest.mark.parametrize('is_data', [False, True])
def test_nothing_in_a_processed_file_is_executed(root, harm, is_sealed, is_data):
    load(root)
    # Also in the form in which PyG saves data sets.
    content = ({'x': harm}, None, Data) if is_data else {'data': harm, 'slices': None}
    payload = to_bytes(content)
    sealed(root).write_bytes(seal(payload) if is_sealed else payload)
    reason = f'it holds {os.name}.mkdir' if is_sealed else 'its digest is wrong'
    text = rf"data.sealed' is damaged \({reason}\): the raw data is processed again"
    with pytest.warns(UserWarning, match=text):
        assert load(root).x.tolist() == [[1], [2], [3]]
    assert not harm.marker.exists()
    load(root)  # Whole again.
    torch.load(io.BytesIO(payload), weights_only=False)
    assert harm.marker.exists()


@pytest.mark.parametrize(
    'name', ['data.pt', 'pre_transform.pt', 'pre_filter.pt', 'pre_transform.txt']
)
@pytest.mark.filterwarnings("ignore:'pre_transform' is not the one")
def test_nothing_beside_the_processed_file_is_executed(root, harm, name):
    load(root)
    (root / 'processed' / name).write_bytes(to_bytes(harm))
    assert load(root).num_nodes == 3
    assert not harm.marker.exists()


@pytest.mark.parametrize(
    'damage',
    [
        lambda content: b'',
        lambda content: content[:20],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:-300] + bytes([content[-300] ^ 1]) + content[-299:],
        lambda content: content + b'\0',
        lambda content: seal(b''),
        lambda content: seal(b'no archive'),
        lambda content: seal(to_bytes([1])),
        lambda content: seal(to_bytes({'data': {}})),
        lambda content: seal(to_bytes({'data': None, 'slices': None})),
    ],
    ids=map(str, range(11)),
)
def test_a_damaged_file_is_named_and_made_again(root, damage):
    load(root)
    content = sealed(root).read_bytes()
    sealed(root).write_bytes(damage(content))
    with pytest.raises(OSError, match=rf"'{sealed(root)}' is damaged \(it"):
        # Of an object that is already there.
        Table.load(Table.__new__(Table), str(sealed(root)))
    with pytest.warns(UserWarning, match=rf"'{sealed(root)}' is damaged \(it"):
        assert load(root).x.tolist() == [[1], [2], [3]]
    assert load(root).x.tolist() == [[1], [2], [3]]


def test_a_second_process_meanwhile(root, monkeypatch):
    seen = []

    def look(descriptor):
        monkeypatch.undo()
        seen.append(sealed(root).exists())
        seen.append(load(root).num_nodes)

    monkeypatch.setattr(os, 'fsync', look)
    assert load(root).num_nodes == 3
    # Once where nothing was, and once where a file is replaced.
    monkeypatch.setattr(os, 'fsync', look)
    assert load(root, force_reload=True).num_nodes == 3
    assert seen == [False, 3, True, 3]
    assert load(root).num_nodes == 3


def test_a_write_that_fails_leaves_nothing(root, monkeypatch):
    def fail(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, 'fsync', fail)
    with pytest.raises(KeyboardInterrupt):
        load(root)
    assert not list((root / 'processed').iterdir())
    monkeypatch.undo()
    assert load(root).num_nodes == 3


def test_force_reload(root):
    load(root)
    (root / 'raw' / 'x.txt').write_text('4 5 6')
    assert load(root).x.tolist() == [[1], [2], [3]]
    assert load(root, force_reload=True).x.tolist() == [[4], [5], [6]]
    assert load(root).x.tolist() == [[4], [5], [6]]


def test_another_pre_transform_is_told(root):
    expected = [[0], [1], [1]]
    assert load(root, transform=NormalizeFeatures()).x.tolist() == expected
    load(root, pre_transform=NormalizeFeatures(), force_reload=True)
    assert load(root, pre_transform=NormalizeFeatures()).x.tolist() == expected
    text = r"is not the one .* \(got 'None' for 'NormalizeFeatures\(\)'\): pass force"
    with pytest.warns(UserWarning, match=text) as caught:
        assert load(root).x.tolist() == expected
    assert caught[0].filename == __file__
    assert load(root, force_reload=True).x.tolist() == [[1], [2], [3]]
    (root / 'processed' / 'pre_transform.txt').unlink()
    load(root)


def test_what_pre_transform_adds_is_kept(root):
    def add(data):
        data.edge_index = torch.tensor([[0, 1], [1, 2]])
        data.adj = torch.eye(3).to_sparse_csr()
        data.names, data.scale = ['a', 'b', 'c'], 0.5
        return data

    load(root, pre_transform=add)
    data = load(root, pre_transform=add)
    assert data.edge_index.tolist() == [[0, 1], [1, 2]]
    assert torch.equal(data.adj.to_dense(), torch.eye(3))
    assert (data.names, data.scale) == (['a', 'b', 'c'], 0.5)


def test_what_cannot_be_read_without_trust_is_not_written(root):
    def add(data):
        data.path = Path('a')
        return data

    with pytest.raises(TypeError, match=r"data.sealed' can only hold .* \(got pathlib"):
        load(root, pre_transform=add)
    text = r"'data_list' must .* also after 'pre_transform' \(got HeteroData\)"
    with pytest.raises(TypeError, match=text):
        load(root, pre_transform=lambda data: HeteroData())
    assert not list((root / 'processed').iterdir())


def test_several_graphs_can_be_saved(root):
    path = str(root / 'own')
    Table.save([Data(x=torch.ones(2, 1)), Data(x=torch.zeros(3, 1))], path)
    dataset = Table(str(root))
    dataset.load(path)
    assert [data.num_nodes for data in dataset] == [2, 3]


def test_progress_is_told(root, monkeypatch, capsys):
    load(root)
    assert capsys.readouterr() == ('', '')
    monkeypatch.delenv('PYTEST_CURRENT_TEST')
    load(root, force_reload=True)
    assert capsys.readouterr() == ('', 'Processing...\nDone!\n')
