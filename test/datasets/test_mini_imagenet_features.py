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
    data = Small(str(tmp_path), allow_pickle=True)[0]
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
    ('changes', 'error', 'text'),
    [
        ({'x_train': torch.zeros(6, 5)}, OSError, r'is damaged \(.*dimension'),
        ({'x_val': torch.zeros(3, 4)}, ValueError, r'\(got shape \(11, 4\), and int64'),
        ({'y_train': np.zeros(6)}, ValueError, r'and float64 of shape \(12,\)\)'),
        (
            {'x_test': np.array([[1e300, -np.inf, np.nan, 0], [0, 0, 0, 0]])},
            ValueError,
            r'must have finite features \(got 3 NaN or infinite\)',
        ),
        (
            {'y_test': np.array([3, 4])},
            ValueError,
            r'must give 12 nodes, 4 features and 3 .* \(got 12 .* and 5 classes\)',
        ),
        ({'y_test': None}, OSError, 'is damaged'),
    ],
)
def test_content_is_checked(tmp_path, changes, error, text):
    path = write(tmp_path, small_content() | changes)
    with pytest.raises(error, match=text) as caught:
        Small(str(tmp_path), allow_pickle=True)
    assert str(path) in str(caught.value)
    assert not list((tmp_path / 'processed').iterdir())


def test_a_truncated_file(tmp_path):
    path = write(tmp_path, small_content())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(OSError, match=rf"'{path}' is damaged"):
        Small(str(tmp_path), allow_pickle=True)


def test_nothing_in_the_file_is_executed(tmp_path, harm):
    path = write(tmp_path, small_content() | {'x_val': harm})
    text = (
        rf"'{path}' must have a known digest, but none is \(got \w+\): .* allow_pickle"
    )
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    assert not harm.marker.exists()
