import math
import pickle
import shutil
import sys
import zlib
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch

from torch_geometric_gsl.datasets import twenty_newsgroups
from torch_geometric_gsl.datasets.registry import raw_folder
from torch_geometric_gsl.datasets.twenty_newsgroups import TwentyNewsgroups

datasets = pytest.importorskip('sklearn.datasets')
utils = pytest.importorskip('sklearn.utils')

NAME = '20news-bydate_py3.pkz'
GROUPS = twenty_newsgroups._CLASS_NAMES


class Small(TwentyNewsgroups):
    _expected = (20, 11, 10)


def small_content():
    """Two posts in each of the ten groups, and two in one that is left out."""
    groups = [*GROUPS, 'zzz.other']
    posts = [f'the common {group.replace(".", "")}' for group in groups]

    def part():
        return utils.Bunch(
            data=list(posts),
            target=np.arange(11),
            target_names=list(groups),
            filenames=np.array(groups),
        )

    return {'train': part(), 'test': part()}


def pack(content):
    return zlib.compress(pickle.dumps(content))


def write(root, content):
    (root / 'raw').mkdir(parents=True)
    (root / 'raw' / NAME).write_bytes(content)
    return root / 'raw' / NAME


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise URLError('no network in tests')

    monkeypatch.setattr('sklearn.datasets._twenty_newsgroups._fetch_remote', refuse)


def test_real_posts(gsl_data, tmp_path):
    source = gsl_data(f'20News/{NAME}')
    (tmp_path / 'raw').mkdir()
    shutil.copyfile(source, tmp_path / 'raw' / NAME)

    dataset = TwentyNewsgroups(str(tmp_path))
    assert (dataset.num_features, dataset.num_classes) == (236, 10)
    data = dataset[0]
    data.validate(raise_on_error=True)
    assert 'edge_index' not in data
    assert data.x.shape == (9607, 236)
    assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
    # The numbers of posts that the newsgroups are known to have.
    sizes = [799, 982, 975, 990, 999, 991, 984, 990, 987, 910]
    assert data.y.bincount().tolist() == sizes
    # TF-IDF rows have unit norm, unless none of the words occurs.
    norm = data.x.norm(dim=1)
    assert torch.allclose(norm[norm > 0], torch.ones(()))
    assert int((norm == 0).sum()) < 100


def test_small_posts(tmp_path):
    write(tmp_path, pack(small_content()))
    with pytest.raises(ValueError, match=r'with scikit-learn .* must give 9607'):
        TwentyNewsgroups(str(tmp_path), allow_pickle=True)
    dataset = Small(str(tmp_path), allow_pickle=True)
    data = dataset[0]
    assert data.x.shape == (20, 11)
    assert data.y.bincount().tolist() == [2] * 10
    assert list(dataset.class_names) == sorted(GROUPS)

    # By hand: "the" is a stop word, "common" is in 20 of 20 posts, a name in 2.
    common, name = 1.0, math.log(20 / 2) + 1
    norm = math.hypot(common, name)
    words = sorted(['common'] + [group.replace('.', '') for group in GROUPS])
    assert dataset.feature_names == tuple(words)
    expected = torch.zeros(20, 11)
    expected[:, words.index('common')] = common / norm
    for row, label in enumerate(data.y.tolist()):
        expected[row, words.index(GROUPS[label].replace('.', ''))] = name / norm
    assert torch.allclose(data.x, expected)


@pytest.mark.parametrize('kept', [0, 0.5, 0.99])
def test_damaged_posts(tmp_path, kept, monkeypatch):
    fake_download(monkeypatch)
    Small(str(tmp_path))
    path = tmp_path / 'raw' / 'posts.json'
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(OSError, match=rf"'{path}' is damaged \(.*\): delete it"):
        Small(str(tmp_path), force_reload=True)
    path.write_text('[[1, 2], [0, 1]]')
    with pytest.raises(OSError, match=rf"'{path}' is damaged \(.*\): delete it"):
        Small(str(tmp_path), force_reload=True)


def test_a_damaged_cache(tmp_path):
    content = pack(small_content())[:-1]
    path = write(tmp_path, content)
    with pytest.raises(OSError, match=rf"'{path}' is damaged \(20Newsgroups"):
        Small(str(tmp_path), allow_pickle=True)
    # No download, and no half-written result.
    assert path.read_bytes() == content
    assert not list((tmp_path / 'processed').iterdir())
    path.write_bytes(pack({'train': small_content()['train']}))
    with pytest.raises(OSError, match=rf"'{path}' is damaged \('test'\)"):
        Small(str(tmp_path), allow_pickle=True)


def test_nothing_in_an_unknown_file_is_executed(tmp_path, harm):
    path = write(tmp_path, pack(small_content() | {'harm': harm}))
    with pytest.raises(OSError, match=rf"'{path}' must have a known digest, \w+ \(got"):
        Small(str(tmp_path))
    assert not harm.marker.exists()
    Small(str(tmp_path), allow_pickle=True)
    assert harm.marker.exists()


def fake_download(monkeypatch):
    real = datasets.fetch_20newsgroups

    def fake(data_home, download_if_missing, **kwargs):
        # Nothing is there that scikit-learn could unpickle.
        assert list(Path(data_home).iterdir()) == []
        assert download_if_missing
        (Path(data_home) / NAME).write_bytes(pack(small_content()))
        return real(data_home=data_home, download_if_missing=False, **kwargs)

    monkeypatch.setattr(datasets, 'fetch_20newsgroups', fake)


def test_download(tmp_path, monkeypatch):
    fake_download(monkeypatch)
    x = Small(str(tmp_path))[0].x
    monkeypatch.delattr(datasets, 'fetch_20newsgroups')
    # Posts are kept as text: nothing is to be trusted, nor downloaded again.
    again = Small(str(tmp_path), force_reload=True)
    assert torch.equal(again[0].x, x)
    assert len(again.feature_names) == 11
    assert [item.name for item in (tmp_path / 'raw').iterdir()] == ['posts.json']


def test_downloaded_posts_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    assert raw_folder('20News', str(tmp_path / 'root')) is None
    fake_download(monkeypatch)
    Small(str(tmp_path / '20News'))
    found = raw_folder('20News', str(tmp_path / 'root'))
    assert found == tmp_path / '20News' / 'raw'


def test_download_fails(tmp_path):
    text = r"'.*raw/posts.json' could not be downloaded \(.*no network in tests.*\)"
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    assert not (tmp_path / 'processed').exists()
    assert not list((tmp_path / 'raw').iterdir())


@pytest.mark.parametrize('module', ['datasets', 'feature_extraction.text'])
def test_scikit_learn_is_optional(tmp_path, monkeypatch, module):
    write(tmp_path, pack(small_content()))
    monkeypatch.setitem(sys.modules, f'sklearn.{module}', None)
    text = "'Small' needs scikit-learn: pip install scikit-learn"
    with pytest.raises(ImportError, match=text):
        Small(str(tmp_path), allow_pickle=True)
