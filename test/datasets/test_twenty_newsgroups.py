import contextlib
import math
import os
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


def pack(content, protocol=None):
    return zlib.compress(pickle.dumps(content, protocol))


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
        TwentyNewsgroups(str(tmp_path))
    dataset = Small(str(tmp_path))
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


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ('damage', 'reason'),
    [
        (lambda content: content[:-1], 'it ends too early'),
        (lambda content: b'', 'it ends too early'),
        (flip, 'Error -3 while decompressing'),
        (lambda content: b'<html>not found</html>', 'incorrect header check'),
    ],
    ids=['end', 'empty', 'flip', 'html'],
)
def test_damaged_file(tmp_path, damage, reason):
    content = damage(pack(small_content()))
    path = write(tmp_path, content)
    text = rf"'.*{NAME}' is damaged \(.*({reason}).*\): delete it to download it again"
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    # No download, and no half-written result.
    assert path.read_bytes() == content
    assert not list((tmp_path / 'processed').iterdir())


def edit(part='test', **changes):
    content = small_content()
    content[part] |= changes
    return content


@pytest.mark.parametrize(
    ('content', 'reason'),
    [
        ([1], "it has no part 'train'"),
        ({'train': {'data': []}}, "it has no part 'train'"),
        (small_content() | {'test': None}, "it has no part 'test'"),
        (edit(data=None), "'data' of its part 'test' must be texts"),
        (edit(data=[b'bytes'] * 11), "'data' of its part 'test' must be texts"),
        (edit('train', target_names='ab'), "of its part 'train' must be texts"),
        (edit(target=['a']), "'target' in .* must be an array"),
        (edit(target=np.arange(11.0)), "'target' of its part 'test' must be group"),
        (edit(target=np.arange(10)), "'target' of its part 'test' must be group"),
        (edit(target=np.arange(11) + 1), "'target' of its part 'test' must be group"),
        (edit(target=np.arange(11) - 1), "'target' of its part 'test' must be group"),
        (edit(target_names=['a'] * 11), r"it has no posts of \['alt.atheism', 'comp"),
        (edit('train', data=['a'] * 11) | {'test': edit(data=['a'] * 11)['test']}, ''),
    ],
)
def test_content_is_checked(tmp_path, content, reason):
    write(tmp_path, pack(content))
    with pytest.raises(OSError, match=rf"'.*{NAME}' is damaged \(.*{reason}.*\): del"):
        Small(str(tmp_path))
    assert not list((tmp_path / 'processed').iterdir())


@pytest.mark.parametrize('protocol', range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize('module', ['sklearn.utils._bunch', 'sklearn.utils'])
def test_posts_are_those_of_scikit_learn(tmp_path, protocol, module, monkeypatch):
    monkeypatch.setattr(utils.Bunch, '__module__', module)
    path = write(tmp_path, pack(small_content(), protocol))
    texts, y = twenty_newsgroups._read_posts(path)
    expected = datasets.fetch_20newsgroups(
        data_home=str(path.parent),
        subset='all',
        categories=list(GROUPS),
        download_if_missing=False,
    )
    assert texts == expected.data
    assert y.tolist() == expected.target.tolist()


@pytest.mark.parametrize('place', ['part', 'posts', 'array', 'state'])
def test_nothing_in_the_file_is_executed(tmp_path, harm, place):
    content = small_content()
    if place == 'part':
        content['test'] = harm
    elif place == 'posts':
        content['test'].data[3] = harm
    elif place == 'array':
        content['test'].filenames = np.array([harm], dtype=object)
    else:
        content['test'].__dict__['_deprecated_key_to_warnings'] = harm
    path = write(tmp_path, pack(content))
    name = "array of type 'O8'" if place == 'array' else f"global '{os.name}.mkdir'"
    text = rf"'{path}' is not a readable pickle .*: it asks for (the|an) {name}"
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    assert not harm.marker.exists()
    with contextlib.suppress(TypeError):  # Its result is no part of an array.
        pickle.loads(zlib.decompress(path.read_bytes()))
    assert harm.marker.exists()


@pytest.mark.parametrize(
    ('content', 'text'),
    [
        (b'\x80\x02csklearn.utils\nBunch\nN}b.', ''),
        (pickle.dumps({'train': np.zeros(2, dtype='M8[s]')}), "of type 'M8'"),
    ],
)
def test_hostile_pickles(tmp_path, content, text):
    write(tmp_path, zlib.compress(content))
    with pytest.raises(OSError, match=rf"'.*{NAME}' is not a readable pickle.*{text}"):
        Small(str(tmp_path))


def test_a_small_file_cannot_ask_for_much_memory(tmp_path, monkeypatch):
    write(tmp_path, pack(small_content()))
    monkeypatch.setattr(twenty_newsgroups, '_MAX_BYTES', 1000)
    with pytest.raises(OSError, match=r'\(it expands to more than 1,000 bytes'):
        Small(str(tmp_path))


def test_download(tmp_path, monkeypatch):
    def fake(data_home, subset):
        # Nothing is there that scikit-learn could unpickle.
        assert list(Path(data_home).iterdir()) == []
        assert Path(data_home).parent == tmp_path / 'raw'
        (Path(data_home) / NAME).write_bytes(pack(small_content()))

    monkeypatch.setattr(datasets, 'fetch_20newsgroups', fake)
    assert Small(str(tmp_path))[0].num_nodes == 20
    monkeypatch.delattr(datasets, 'fetch_20newsgroups')
    Small(str(tmp_path))
    assert [item.name for item in (tmp_path / 'raw').iterdir()] == [NAME]


def test_download_fails(tmp_path):
    text = rf"'.*raw/{NAME}' could not be downloaded \(.*no network in tests.*\): try"
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    assert not (tmp_path / 'processed').exists()
    assert not list((tmp_path / 'raw').iterdir())


@pytest.mark.parametrize('module', ['datasets', 'feature_extraction.text'])
def test_scikit_learn_is_optional(tmp_path, monkeypatch, module):
    if module != 'datasets':  # Which only downloads.
        write(tmp_path, pack(small_content()))
    monkeypatch.setitem(sys.modules, f'sklearn.{module}', None)
    text = "'Small' needs scikit-learn: pip install scikit-learn"
    with pytest.raises(ImportError, match=text):
        Small(str(tmp_path))
