"""Raw files of public data sets: locations, digests and readers.

Some are pickles, which can execute code: readers get copies of files with known
digests.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from sklearn import datasets
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data

from reproduction.files import write_bytes

_FEATURES, _EDGES = 'out1_node_feature_label.txt', 'out1_graph_edges.txt'
# Safe replacements for the pickles of 20News and MiniImageNet.
_POSTS, _ARRAYS = 'posts.json', 'features.npz'
_GROUPS = [
    *('alt.atheism', 'comp.sys.ibm.pc.hardware', 'misc.forsale', 'rec.autos'),
    *('rec.sport.hockey', 'sci.crypt', 'sci.electronics', 'sci.med', 'sci.space'),
    'talk.politics.guns',
]


def _read_planetoid(folder: Path) -> Data:
    prefix = next(folder.glob('*.graph')).name.split('.')[1]
    return read_planetoid_data(str(folder), prefix)


def _read_wikipedia(folder: Path) -> Data:
    # `WikipediaNetwork` converts eleven million digits to Python numbers.
    lines = (folder / _FEATURES).read_bytes().splitlines()
    rows = [line.split(b'\t') for line in lines[1:]]
    x = np.stack([np.frombuffer(row[1], np.uint8)[::2] - ord('0') for row in rows])
    if (x > 9).any():
        raise ValueError('features must be digits')
    y = np.array([row[2] for row in rows], dtype=np.int64)
    edges = np.loadtxt(folder / _EDGES, np.int64, skiprows=1).T
    return Data(
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(y),
        edge_index=torch.from_numpy(edges).contiguous(),
    )


def _read_coauthor(folder: Path) -> Data:
    # `Coauthor` densifies the features, more than a gigabyte for Physics.
    with np.load(next(folder.iterdir()), allow_pickle=False) as arrays:
        names = ('attr_data', 'attr_indices', 'attr_indptr', 'attr_shape', 'labels')
        value, column, offset, shape, y = (torch.from_numpy(arrays[k]) for k in names)
    row = torch.arange(len(y)).repeat_interleave(offset.diff())
    # Binary occurrence of keywords, not counts.
    index = torch.stack([row, column])[:, value > 0]
    ones = torch.ones(index.size(1))
    x = torch.sparse_coo_tensor(index, ones, shape.tolist(), check_invariants=True)
    return Data(x=x.coalesce(), y=y.long())


def _fetch_posts(folder: Path, *, download: bool) -> tuple[list[str], list[int]]:
    """Fetch posts of ten newsgroups and their labels with scikit-learn."""
    posts = datasets.fetch_20newsgroups(
        data_home=str(folder),
        subset='all',
        categories=_GROUPS,
        download_if_missing=download,
    )
    return posts.data, posts.target.tolist()


def _read_newsgroups(folder: Path) -> Data:
    try:
        posts, y = json.loads((folder / _POSTS).read_bytes())
    except FileNotFoundError:
        posts, y = _fetch_posts(folder, download=False)
    counter = CountVectorizer(stop_words='english', min_df=0.05)
    counts = counter.fit_transform(posts)
    x = TfidfTransformer(smooth_idf=False).fit_transform(counts).toarray()
    return Data(
        x=torch.from_numpy(x).float(),
        y=torch.tensor(y),
        class_names=list(_GROUPS),
        feature_names=counter.get_feature_names_out().tolist(),
    )


def _read_mini_imagenet(folder: Path) -> Data:
    try:
        with (folder / _ARRAYS).open('rb') as stream:
            arrays = np.load(stream, allow_pickle=False)
            return Data(**{name: torch.from_numpy(arrays[name]) for name in 'xy'})
    except FileNotFoundError:
        pickled: Any = pickle.loads((folder / 'mini_imagenet.pkl').read_bytes())
    splits = ('train', 'val', 'test')
    xs, ys = ([np.asarray(pickled[f'{k}_{split}']) for split in splits] for k in 'xy')
    x = torch.from_numpy(np.concatenate(xs).astype(np.float32))
    if not x.isfinite().all():
        raise ValueError('features must be finite')
    labels, y = np.unique(np.concatenate(ys), return_inverse=True)
    if labels.dtype.kind not in 'iu' or y.shape != x.shape[:1]:
        raise ValueError('each row must have one integer as its label')
    return Data(x=x, y=torch.from_numpy(y))


class RawFiles(NamedTuple):
    """Raw files of a data set.

    Digests are SHA-256, or names of git blobs. Counts are those of nodes, features and
    classes. The plain file, if any, replaces the raw files and is not a pickle.
    """

    folder: str
    digests: Mapping[str, tuple[str, ...]]
    read: Callable[[Path], Data]
    counts: tuple[int, int, int]
    url: str = ''
    plain: str = ''


def read_raw(name: str, folder: Path | None, root: str, allow_pickle: bool) -> Data:
    """Read features, labels and edges; download missing raw files."""
    raw = RAW_FILES[name]
    download_folder = Path(root, raw.folder)
    if folder is None:
        folder = download_folder
        for file in raw.digests:
            _download(download_folder / file, raw)
    with TemporaryDirectory() as copies, warnings.catch_warnings():
        warnings.simplefilter('ignore')  # About old pickles.
        _copy_known(folder, raw, allow_pickle, Path(copies))
        try:
            data = raw.read(Path(copies))
            x, y = cast(Tensor, data.x), cast(Tensor, data.y)
        except MemoryError:
            raise
        except Exception as error:  # A damaged pickle may raise any.
            raise OSError(
                f"'{folder}' is damaged ({error}): delete it to download it again"
            ) from error
    sizes = (*x.shape, y.unique().numel())
    if sizes != raw.counts:
        counts = '{} nodes, {} features and {} classes'.format
        raise ValueError(
            f"'{folder}' must give {counts(*raw.counts)} (got {counts(*sizes)})"
        )
    if raw.plain == _ARRAYS and not (folder / _ARRAYS).is_file():
        content = io.BytesIO()
        np.savez(content, x=x.numpy(), y=y.numpy())
        write_bytes(download_folder / _ARRAYS, content.getvalue())
    return data


def _copy_known(folder: Path, raw: RawFiles, allow_pickle: bool, copies: Path) -> None:
    """Copy files with known digests, so that the checked bytes are read."""
    if raw.plain and (folder / raw.plain).is_file():
        shutil.copyfile(folder / raw.plain, copies / raw.plain)
        return
    for name, digests in raw.digests.items():
        content = (folder / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        # The name of a file's git blob.
        blob = hashlib.sha1(b'blob %d\0' % len(content) + content).hexdigest()
        if not allow_pickle and not {digest, blob} & {*digests}:
            raise OSError(
                f"'{folder / name}' must have a known digest, "
                f'{" or ".join(digests) or "but there is none"} (got {digest}): it is '
                'damaged or another file. If you trust it, pass allow_pickle=True, '
                'which allows a pickle to execute code'
            )
        (copies / name).write_bytes(content)


def _download(path: Path, raw: RawFiles) -> None:
    """Download a raw file, or the posts of 20News, stored as text."""
    if path.is_file():
        return
    if raw.plain == _ARRAYS:
        raise FileNotFoundError(
            f"'{path}' is missing and cannot be downloaded: copy it from the data "
            f'folder linked at {raw.url}'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    url = f'{raw.url}/{path.name}' if raw.url else 'scikit-learn'
    try:
        if raw.url:
            torch.hub.download_url_to_file(url, str(path))
            return
        # Scikit-learn would unpickle files in a folder.
        with TemporaryDirectory() as empty:
            posts = _fetch_posts(Path(empty), download=True)
    except OSError as error:
        raise OSError(
            f"'{path}' could not be downloaded from {url} ({error}): try again, or "
            "set 'GSL_DATA' to a folder that has it"
        ) from error
    write_bytes(path.with_name(_POSTS), json.dumps(posts).encode())


def _known_files() -> dict[str, RawFiles]:
    text = (resources.files(__package__) / 'raw_files.json').read_text(encoding='utf-8')
    files = {}
    for name, entry in json.loads(text).items():
        entry['read'] = _READERS[entry['read']]
        entry['counts'] = tuple(entry['counts'])
        entry['digests'] = {k: tuple(v) for k, v in entry['digests'].items()}
        files[name] = RawFiles(**entry)
    return files


_READERS = {
    'planetoid': _read_planetoid,
    'wikipedia': _read_wikipedia,
    'coauthor': _read_coauthor,
    'newsgroups': _read_newsgroups,
    'mini_imagenet': _read_mini_imagenet,
}
RAW_FILES = _known_files()
