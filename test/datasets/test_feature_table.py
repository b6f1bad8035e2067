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


def processed(root):
    return root / 'processed' / 'table.pt'


def test_it_is_a_dataset_of_pyg(root):
    dataset = Table(str(root))
    assert isinstance(dataset, InMemoryDataset)
    assert (repr(dataset), len(dataset)) == ('Table()', 1)
    assert (dataset.num_features, dataset.num_classes) == (1, 2)
    assert dataset.processed_paths == [str(processed(root))]
    assert dataset.x.tolist() == [[1], [2], [3]]
    assert dataset.copy()[0].y.tolist() == [0, 1, 0]
    assert list((root / 'processed').iterdir()) == [processed(root)]
    with pytest.raises(TypeError, match="'allow_pickle' must be a bool"):
        Table(str(root), allow_pickle='no')


@pytest.mark.parametrize('is_data', [False, True])
@pytest.mark.parametrize(
    'name', ['table.pt', 'data.pt', 'pre_transform.pt', 'pre_filter.pt']
)
def test_nothing_in_a_processed_folder_is_executed(root, harm, name, is_data):
    load(root)
    path = root / 'processed' / name
    # Also in the form in which PyG saves data sets.
    torch.save(({'x': harm}, None, Data) if is_data else {'data': harm}, path)
    if name == 'table.pt':
        text = rf"table.pt' holds no table: .* {harm.name}, .*: the raw data is proc"
        with pytest.warns(UserWarning, match=text):
            assert load(root).x.tolist() == [[1], [2], [3]]
    else:
        assert load(root).x.tolist() == [[1], [2], [3]]
        torch.load(path, weights_only=False)
    assert harm.marker.exists() == (name != 'table.pt')


def to_bytes(content, path):
    torch.save(content, path)
    return path.read_bytes()


@pytest.mark.parametrize(
    'damage',
    [
        lambda content, path: b'',
        lambda content, path: content[: len(content) // 2],
        lambda content, path: content[:-1],
        lambda content, path: content.replace(b'\0\0\0\x40', b'\0\0\1\x40'),
        lambda content, path: to_bytes([1], path),
        lambda content, path: to_bytes({'data': {}}, path),
    ],
    ids=['empty', 'half', 'end', 'flip', 'list', 'dict'],
)
def test_a_damaged_file_is_named_and_made_again(root, damage):
    load(root)
    path = processed(root)
    content = path.read_bytes()
    path.write_bytes(damage(content, path))
    assert path.read_bytes() != content
    text = rf"'{path}' (is damaged|holds no table).*: the raw data is processed again"
    with pytest.warns(UserWarning, match=text):
        assert load(root).x.tolist() == [[1], [2], [3]]
    assert path.read_bytes() == content


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


def test_what_pre_transform_adds_is_kept(root):
    def add(data):
        data.adj = torch.eye(3).to_sparse_csr()
        data.names, data.scale = ['a', 'b', 'c'], 0.5
        return data

    for _ in range(2):
        data = load(root, pre_transform=add)
        assert torch.equal(data.adj.to_dense(), torch.eye(3))
        assert (data.names, data.scale) == (['a', 'b', 'c'], 0.5)


def test_what_cannot_be_read_without_trust_is_not_written(root):
    def add(data):
        data.path = Path('a')
        return data

    with pytest.raises(ValueError, match=r"table.pt' is left as it is: .* pathlib"):
        load(root, pre_transform=add)
    text = r"'pre_transform' must return a Data object \(got HeteroData\)"
    with pytest.raises(TypeError, match=text):
        load(root, pre_transform=lambda data: HeteroData())
    assert not list((root / 'processed').iterdir())
