import sys

import numpy as np
import pytest
import torch

from torch_geometric_gsl.datasets.registry import load_dataset
from torch_geometric_gsl.datasets.sklearn_table import SklearnTable

datasets = pytest.importorskip('sklearn.datasets')
preprocessing = pytest.importorskip('sklearn.preprocessing')

TABLES = [('digits', 1797, 64, 10), ('wine', 178, 13, 3), ('breast_cancer', 569, 30, 2)]


@pytest.mark.parametrize(('name', 'num_nodes', 'num_features', 'num_classes'), TABLES)
def test_tables(tmp_path, name, num_nodes, num_features, num_classes):
    dataset = SklearnTable(str(tmp_path), name)
    assert str(dataset) == f"SklearnTable('{name}', standardize=True)"
    assert (len(dataset), dataset.raw_paths) == (1, [])
    assert (dataset.num_features, dataset.num_classes) == (num_features, num_classes)

    data = dataset[0]
    data.validate(raise_on_error=True)
    assert 'edge_index' not in data
    assert data.num_nodes == num_nodes
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)

    table = getattr(datasets, f'load_{name}')()
    assert dataset.class_names == tuple(str(label) for label in table.target_names)
    assert data.y.tolist() == table.target.tolist()
    # scikit-learn also maps constant columns to zero.
    expected = preprocessing.StandardScaler().fit_transform(table.data)
    np.testing.assert_allclose(data.x.numpy(), expected, rtol=1e-5, atol=1e-6)

    original = SklearnTable(str(tmp_path), name, standardize=False)
    assert str(original) == f"SklearnTable('{name}', standardize=False)"
    np.testing.assert_array_equal(original[0].x, table.data.astype(np.float32))

    # By its name, with the same files.
    loaded = load_dataset(name, str(tmp_path))
    assert torch.equal(loaded.x, data.x)
    assert loaded.class_names == list(dataset.class_names)
    loaded = load_dataset(name, str(tmp_path), standardize=False)
    assert torch.equal(loaded.x, original[0].x)


def test_settings_do_not_share_files(tmp_path):
    SklearnTable(str(tmp_path), 'wine', pre_transform=lambda data: data)
    # Neither a stale table, nor a warning about the other's pre_transform.
    assert SklearnTable(str(tmp_path), 'wine', standardize=False)[0].x.max() == 1680


def test_arguments_are_checked(tmp_path):
    text = r"'name' must be one of \['digits', 'wine', 'breast_cancer'\] \(got 'iris'\)"
    with pytest.raises(ValueError, match=text):
        SklearnTable(str(tmp_path), 'iris')
    with pytest.raises(TypeError, match=r"'standardize' must be a bool \(got 'no'\)"):
        SklearnTable(str(tmp_path), 'wine', standardize='no')
    assert not list(tmp_path.iterdir())


def test_scikit_learn_is_optional(tmp_path, monkeypatch):
    x = SklearnTable(str(tmp_path), 'wine')[0].x
    monkeypatch.setitem(sys.modules, 'sklearn.datasets', None)
    assert torch.equal(SklearnTable(str(tmp_path), 'wine')[0].x, x)
    text = "'SklearnTable' needs scikit-learn: pip install scikit-learn"
    with pytest.raises(ImportError, match=text):
        SklearnTable(str(tmp_path), 'digits')
