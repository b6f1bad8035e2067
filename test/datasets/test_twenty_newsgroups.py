from __future__ import annotations

import math
import pickle
import shutil
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets import twenty_newsgroups
from torch_geometric_gsl.datasets.twenty_newsgroups import TwentyNewsgroups

datasets = pytest.importorskip('sklearn.datasets')
utils = pytest.importorskip('sklearn.utils')

NAME = '20news-bydate_py3.pkz'
GROUPS = twenty_newsgroups._CLASS_NAMES


class Small(TwentyNewsgroups):
    _expected = (20, 11, 10)


def small_cache() -> bytes:
    """Two posts in each of the ten groups, and two in one that is left out."""
    groups = [*GROUPS, 'zzz.other']
    posts = [f'the common {group.replace(".", "")}' for group in groups]

    def part() -> Any:
        return utils.Bunch(
            data=list(posts),
            target=np.arange(11),
            target_names=list(groups),
            filenames=np.array(groups),
        )

    return zlib.compress(pickle.dumps({'train': part(), 'test': part()}))


def write(root: Path, content: bytes) -> Path:
    (root / 'raw').mkdir(parents=True)
    (root / 'raw' / NAME).write_bytes(content)
    return root / 'raw' / NAME


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise URLError('no network in tests')

    monkeypatch.setattr('sklearn.datasets._twenty_newsgroups._fetch_remote', refuse)


def test_real_posts(gsl_data: Callable[[str], Path], tmp_path: Path) -> None:
    source = gsl_data(f'20News/{NAME}')
    (tmp_path / 'raw').mkdir()
    shutil.copyfile(source, tmp_path / 'raw' / NAME)

    dataset = TwentyNewsgroups(str(tmp_path))
    assert str(dataset) == 'TwentyNewsgroups()'
    assert len(dataset) == 1
    assert (dataset.num_features, dataset.num_classes) == (236, 10)
    assert len(dataset.class_names) == 10
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


def test_small_posts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, small_cache())
    dataset = Small(str(tmp_path))
    data = dataset[0]
    assert data.x.shape == (20, 11)
    assert data.y.bincount().tolist() == [2] * 10
    assert list(dataset.class_names) == sorted(GROUPS)
    assert 'failed' not in capsys.readouterr().out

    # By hand: "the" is a stop word, "common" is in 20 of 20 posts, a name in 2.
    common, name = 1.0, math.log(20 / 2) + 1
    norm = math.hypot(common, name)
    words = sorted(['common'] + [group.replace('.', '') for group in GROUPS])
    expected = torch.zeros(20, 11)
    expected[:, words.index('common')] = common / norm
    for row, label in enumerate(data.y.tolist()):
        expected[row, words.index(GROUPS[label].replace('.', ''))] = name / norm
    assert torch.allclose(data.x, expected)


def test_transforms(tmp_path: Path) -> None:
    def halve(data: Data) -> Data:
        data.x = data.x / 2
        return data

    write(tmp_path, small_cache())
    x = Small(str(tmp_path))[0].x
    assert torch.equal(Small(str(tmp_path), transform=halve)[0].x, x / 2)
    dataset = Small(str(tmp_path), pre_transform=halve, force_reload=True)
    assert torch.equal(dataset[0].x, x / 2)


def test_counts_are_checked(tmp_path: Path) -> None:
    write(tmp_path, small_cache())
    text = (
        r'must give 9607 nodes, 236 features and 10 classes '
        r'\(got 20 nodes, 11 features and 10 classes\)'
    )
    with pytest.raises(ValueError, match=text) as caught:
        TwentyNewsgroups(str(tmp_path))
    assert NAME in str(caught.value)
    assert 'with scikit-learn' in str(caught.value)
    assert not list((tmp_path / 'processed').iterdir())


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ('damage', 'reason'),
    [
        (lambda content: content[: len(content) // 2], 'it ends too early'),
        (lambda content: content[:-1], 'it ends too early'),
        (lambda content: b'', 'it ends too early'),
        (flip, 'Error -3 while decompressing'),
        (lambda content: b'<html>not found</html>', 'incorrect header check'),
        (lambda content: zlib.compress(b'\x80\x04junk'), 'pickle data was truncated'),
        (lambda content: zlib.compress(pickle.dumps({})), r"KeyError\('train'\)"),
        (lambda content: zlib.compress(pickle.dumps([1])), 'TypeError'),
    ],
    ids=['half', 'end', 'empty', 'flip', 'html', 'junk', 'keys', 'type'],
)
def test_damaged_file(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
    reason: str,
) -> None:
    content = damage(small_cache())
    path = write(tmp_path, content)
    text = rf"'.*{NAME}' is damaged \(.*({reason}).*\): delete it to download it again"
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    # No download, no half-written result, no noise from scikit-learn.
    assert path.read_bytes() == content
    assert [item.name for item in path.parent.iterdir()] == [NAME]
    assert not list((tmp_path / 'processed').iterdir())
    assert capsys.readouterr().out == ''


def test_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    fetch = datasets.fetch_20newsgroups

    def fake(**options: Any) -> Any:
        calls.append(options)
        if options.get('download_if_missing', True):
            (Path(options['data_home']) / NAME).write_bytes(small_cache())
        return fetch(**{**options, 'download_if_missing': False})

    monkeypatch.setattr(datasets, 'fetch_20newsgroups', fake)
    assert Small(str(tmp_path))[0].num_nodes == 20
    assert [call['data_home'] for call in calls] == [str(tmp_path / 'raw')] * 2
    Small(str(tmp_path))
    assert len(calls) == 2


def test_download_fails(tmp_path: Path) -> None:
    text = rf"'.*raw/{NAME}' could not be downloaded \(.*no network in tests.*\): try"
    with pytest.raises(OSError, match=text):
        Small(str(tmp_path))
    assert not (tmp_path / 'processed').exists()


@pytest.mark.parametrize('module', ['datasets', 'feature_extraction.text'])
def test_scikit_learn_is_optional(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    write(tmp_path, small_cache())
    monkeypatch.setitem(sys.modules, f'sklearn.{module}', None)
    text = r"'Small' needs scikit-learn: .* 'torch_geometric_gsl\[datasets\]'"
    with pytest.raises(ImportError, match=text):
        Small(str(tmp_path))
