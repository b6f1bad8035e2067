"""Raw files of public data sets: locations, digests and readers.

Some are pickles, which can execute code: readers get copies of files with known
digests.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Coauthor, Planetoid, WikipediaNetwork
from torch_geometric.io import read_planetoid_data

from torch_geometric_gsl._files import replacing

# SHA-256 digests.
_CITESEER = {
    'x': 'd20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6',
    'tx': '539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21',
    'allx': '2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668',
    'y': '8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924',
    'ty': '55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce',
    'ally': 'f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95',
    'graph': 'd79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7',
    'test.index': '2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4',
}
_PUBMED = {
    'x': 'fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33',
    'tx': '4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d',
    'allx': '9d419f4544d0029d635a142df75e01fa8a376682e282a4cb3f3ff6539d57472e',
    'y': 'e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3',
    'ty': 'ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd',
    'ally': '0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e',
    'graph': '5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9',
    'test.index': 'b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5',
}
_CHAMELEON = (
    '5fd29736ff31b43a1bfcf305bc8b4cffc3103fb0957667976b2ea0f78aedcf5b',
    '45ac593de9207470090230c8fd76beeb2f60b5371a9be088e8bf31e7f0619a4b',
)
_SQUIRREL = (
    'ac15ab755983717a187992eef8ce2017aae33ea444fd655b07e4662690dcc03a',
    '453d8e96754d68e2ab0a7ebb56f93506b59531d95abaec7a2b46fe1eae7c39cd',
)
_CS = '933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3'
_PHYSICS = 'e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375'
_NEWS = 'd25b55a0871c6fa5fdaa07bcd8403649ef37ff29df4a6bef5483edf171287ec3'
# The public `ind.pubmed.allx` by the name of its git blob. The digest above belongs
# to a rebuilt file with the same arrays.
_ALLX = '3b86bccf08111c37c632a9dd8ab63db25ea76361'
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
    one = torch.ones(index.size(1))
    x = torch.sparse_coo_tensor(index, one, shape.tolist(), check_invariants=True)
    return Data(x=x.coalesce(), y=y.long())


def _fetch_posts(folder: Path, *, download: bool) -> tuple[list[str], list[int]]:
    """Return posts of ten newsgroups and their labels, with scikit-learn."""
    from sklearn.datasets import fetch_20newsgroups

    found = fetch_20newsgroups(
        data_home=str(folder),
        subset='all',
        categories=_GROUPS,
        download_if_missing=download,
    )
    return found.data, found.target.tolist()


def _read_newsgroups(folder: Path) -> Data:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

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
        found: Any = pickle.loads((folder / 'mini_imagenet.pkl').read_bytes())
    parts = ('train', 'val', 'test')
    xs, ys = ([np.asarray(found[f'{k}_{part}']) for part in parts] for k in 'xy')
    x = torch.from_numpy(np.concatenate(xs).astype(np.float32))
    if not x.isfinite().all():
        raise ValueError('features must be finite')
    labels, y = np.unique(np.concatenate(ys), return_inverse=True)
    if labels.dtype.kind not in 'iu' or y.shape != x.shape[:1]:
        raise ValueError('each row must have one integer as its label')
    return Data(x=x, y=torch.from_numpy(y))


class RawFiles(NamedTuple):
    """Raw files of a data set.

    The counts are those of nodes, features and classes. The plain file, if any,
    replaces the raw files and is not a pickle.
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
    own = Path(root, raw.folder)
    if folder is None:
        folder = own
        for file in raw.digests:
            _download(own / file, raw)
    with TemporaryDirectory() as copies, warnings.catch_warnings():
        warnings.simplefilter('ignore')  # About old pickles.
        _copy_known(folder, raw, allow_pickle, Path(copies))
        try:
            data = raw.read(Path(copies))
            x, y = cast(Tensor, data.x), cast(Tensor, data.y)
        except ModuleNotFoundError as error:
            raise needs(name, error) from error
        except MemoryError:
            raise
        except Exception as error:  # A damaged pickle may raise any.
            raise OSError(
                f"'{folder}' is damaged ({error}): delete it to download it again"
            ) from error
    found = (*x.shape, y.unique().numel())
    if found != raw.counts:
        counts = '{} nodes, {} features and {} classes'.format
        raise ValueError(
            f"'{folder}' must give {counts(*raw.counts)} (got {counts(*found)})"
        )
    if raw.plain == _ARRAYS and not (folder / _ARRAYS).is_file():
        own.mkdir(parents=True, exist_ok=True)
        with replacing(own / _ARRAYS) as draft, draft.open('wb') as stream:
            np.savez(stream, x=x.numpy(), y=y.numpy())
    return data


def _copy_known(folder: Path, raw: RawFiles, allow_pickle: bool, copies: Path) -> None:
    """Copy files with known digests, so that the checked bytes are read."""
    if raw.plain and (folder / raw.plain).is_file():
        shutil.copyfile(folder / raw.plain, copies / raw.plain)
        return
    for name, known in raw.digests.items():
        content = (folder / name).read_bytes()
        found = hashlib.sha256(content).hexdigest()
        # The name of a file's git blob.
        blob = hashlib.sha1(b'blob %d\0' % len(content) + content).hexdigest()
        if not allow_pickle and not {found, blob} & {*known}:
            raise OSError(
                f"'{folder / name}' must have a known digest, "
                f'{" or ".join(known) or "but none is"} (got {found}): it is damaged '
                'or another file. If you trust it, pass allow_pickle=True, which '
                'allows a pickle to execute code'
            )
        (copies / name).write_bytes(content)


def _download(path: Path, raw: RawFiles) -> None:
    """Download a raw file, or the posts of 20News, stored as text."""
    if path.is_file():
        return
    if raw.plain == _ARRAYS:
        raise FileNotFoundError(
            f"'{path}' is missing and cannot be downloaded: take it from the data "
            f'folder that {raw.url} links'
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
    except ModuleNotFoundError as error:
        raise needs('20News', error) from error
    except OSError as error:
        raise OSError(
            f"'{path}' could not be downloaded from {url} ({error}): try again, or "
            "set 'GSL_DATA' to a folder that has it"
        ) from error
    with replacing(path.with_name(_POSTS)) as draft:
        draft.write_text(json.dumps(posts), encoding='ascii')


def needs(name: str, error: ImportError) -> ImportError:
    """Return the error of a data set whose library is not installed."""
    return ImportError(
        f"'{name}' needs {error.name}, which is not installed: pip install scikit-learn"
    )


def _planetoid(
    name: str, digests: dict[str, str], counts: tuple[int, int, int]
) -> RawFiles:
    others = {'ind.pubmed.allx': (_ALLX,)}
    names = {f'ind.{name.lower()}.{part}': digest for part, digest in digests.items()}
    files = {file: (digest, *others.get(file, ())) for file, digest in names.items()}
    return RawFiles(f'{name}/raw', files, _read_planetoid, counts, Planetoid.url)


def _wikipedia(
    name: str, features: str, edges: str, counts: tuple[int, int, int]
) -> RawFiles:
    url = f'{WikipediaNetwork.processed_url}/new_data/{name}'
    files = {_FEATURES: (features,), _EDGES: (edges,)}
    return RawFiles(f'{name}/geom_gcn/raw', files, _read_wikipedia, counts, url)


def _coauthor(name: str, digest: str, counts: tuple[int, int, int]) -> RawFiles:
    files = {f'ms_academic_{name[:3].lower()}.npz': (digest,)}
    url = Coauthor.url.rstrip('/')
    return RawFiles(f'{name}/raw', files, _read_coauthor, counts, url)


RAW_FILES = {
    'CiteSeer': _planetoid('CiteSeer', _CITESEER, (3327, 3703, 6)),
    'PubMed': _planetoid('PubMed', _PUBMED, (19717, 500, 3)),
    'Chameleon': _wikipedia('chameleon', *_CHAMELEON, (2277, 2325, 5)),
    'Squirrel': _wikipedia('squirrel', *_SQUIRREL, (5201, 2089, 5)),
    'CS': _coauthor('CS', _CS, (18333, 6805, 15)),
    'Physics': _coauthor('Physics', _PHYSICS, (34493, 8415, 5)),
    '20News': RawFiles(
        *('20News/raw', {'20news-bydate_py3.pkz': (_NEWS,)}, _read_newsgroups),
        *((9607, 236, 10), '', _POSTS),
    ),
    'MiniImageNet': RawFiles(
        *('MiniImageNet/raw', {'mini_imagenet.pkl': ()}, _read_mini_imagenet),
        *((18000, 128, 30), 'https://github.com/qitianwu/NodeFormer', _ARRAYS),
    ),
}
