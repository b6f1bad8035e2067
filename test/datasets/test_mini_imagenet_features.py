import os
import pickle

import numpy as np
import pytest
import torch

from torch_geometric_gsl.datasets.mini_imagenet_features import MiniImageNetFeatures


class Small(MiniImageNetFeatures):
    _expected = (12, 4, 3)


def small_content():
    rng = np.random.default_rng(0)
    sizes = {'train': 6, 'val': 4, 'test': 2}
    content = {}
    for part, size in sizes.items():
        content[f'x_{part}'] = torch.from_numpy(rng.standard_normal((size, 4))).float()
        # Any numbers are labels, and are counted in their order.
        content[f'y_{part}'] = np.array([64, 80, 99])[np.arange(size) % 3]
    return content


def write(root, content):
    path = root / 'raw' / 'mini_imagenet.pkl'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))
    return path


def test_small_file(tmp_path):
    content = small_content()
    write(tmp_path, content)
    data = Small(str(tmp_path))[0]
    data.validate(raise_on_error=True)
    assert 'edge_index' not in data
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    x = torch.cat([content['x_train'], content['x_val'], content['x_test']])
    assert torch.equal(data.x, x)
    assert data.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 1]


def test_missing_file(tmp_path):
    text = (
        r"'.*raw/mini_imagenet.pkl' is missing and cannot be downloaded: take "
        r"'mini_imagenet.pkl' from .*qitianwu/NodeFormer links, and put it there"
    )
    with pytest.raises(FileNotFoundError, match=text):
        MiniImageNetFeatures(str(tmp_path))
    assert not (tmp_path / 'processed').exists()


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        ({'x_train': torch.zeros(6, 5)}, r'of one width \(got \[5, 4, 4\]\)'),
        ({'x_val': torch.zeros(3, 4)}, r"'x_val' and .* of shape \(3, 4\) and int"),
        ({'x_val': torch.zeros(4, 2, 2)}, r'float32 of shape \(4, 2, 2\) and int64 of'),
        ({'x_test': np.zeros((2, 4), 'u1')}, r'\(got uint8 of shape \(2, 4\) and'),
        ({'y_train': np.eye(6, 3, dtype=int)}, r'and int64 of shape \(6, 3\)\)'),
        ({'y_train': np.zeros(6)}, r'an integer .* and float64 of shape \(6,\)\)'),
        (
            {'x_test': np.array([[1e300, -np.inf, np.nan, 0], [0, 0, 0, 0]])},
            r'must have finite features \(got 3 NaN or infinite\)',
        ),
        (
            {'y_test': np.array([3, 4])},
            r'must give 12 nodes, 4 features and 3 .* \(got 12 .* and 5 classes\)',
        ),
        ({'y_test': None}, r"'y_test' in .* must be an array, .* \(got NoneType\)"),
    ],
)
def test_content_is_checked(tmp_path, changes, text):
    write(tmp_path, small_content() | changes)
    with pytest.raises(ValueError, match=text) as caught:
        Small(str(tmp_path))
    assert 'mini_imagenet.pkl' in str(caught.value)
    assert not list((tmp_path / 'processed').iterdir())


def test_nothing_in_the_file_is_executed(tmp_path, harm):
    write(tmp_path, small_content() | {'x_val': harm})
    with pytest.raises(OSError, match=rf"the global '{os.name}.mkdir'"):
        Small(str(tmp_path))
    assert not harm.marker.exists()
