"""Raw files of public data sets: where they are, their digests and their readers.

Some are pickles, which execute what they hold: a reader gets copies of files whose
bytes are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Coauthor, Planetoid, WikipediaNetwork
from torch_geometric.io import read_planetoid_data

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
_CHAMELEON = {
    'features': '5fd29736ff31b43a1bfcf305bc8b4cffc3103fb0957667976b2ea0f78aedcf5b',
    'edges': '45ac593de9207470090230c8fd76beeb2f60b5371a9be088e8bf31e7f0619a4b',
}
_SQUIRREL = {
    'features': 'ac15ab755983717a187992eef8ce2017aae33ea444fd655b07e4662690dcc03a',
    'edges': '453d8e96754d68e2ab0a7ebb56f93506b59531d95abaec7a2b46fe1eae7c39cd',
}
_CS = '933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3'
_PHYSICS = 'e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375'
_NEWS = 'd25b55a0871c6fa5fdaa07bcd8403649ef37ff29df4a6bef5483edf171287ec3'
# The public `ind.pubmed.allx` by the name of its blob in git. The digest above is that
# of a file which was built again: its arrays are the same.
_ALLX = '3b86bccf08111c37c632a9dd8ab63db25ea76361'
_WIKIPEDIA_FILES = {
    'features': 'out1_node_feature_label.txt',
    'edges': 'out1_graph_edges.txt',
}
#: The posts of 20News as text, which serve as well as its raw file.
POSTS = 'posts.json'


class RawFiles(NamedTuple):
    """The folder of raw files, their known digests and their address."""

    folder: str
    digests: Mapping[str, tuple[str, ...]]
    url: str = ''


@contextmanager
def known_copies(
    folder: Path, digests: Mapping[str, tuple[str, ...]], allow_pickle: bool
) -> Iterator[Path]:
    """Copy files to a temporary folder, and raise if the bytes of one are not known.

    What a reader opens there are the bytes that have been checked, and it can write
    beside them.
    """
    with TemporaryDirectory() as copies:
        for name, known in digests.items():
            content = (folder / name).read_bytes()
            if not allow_pickle:
                _check_digest(folder / name, content, known)
            Path(copies, name).write_bytes(content)
        yield Path(copies)


def _check_digest(path: Path, content: bytes, known: tuple[str, ...]) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found not in known and _blob_name(content) not in known:
        raise OSError(
            f"'{path}' must have a known digest, {' or '.join(known) or 'but none is'} "
            f'(got {found}): it is damaged or another file. If you trust it, pass '
            'allow_pickle=True, which executes what a pickle holds'
        )


def _blob_name(content: bytes) -> str:
    """Return the name that git gives to the content of a file."""
    digest = hashlib.sha1(b'blob %d\0' % len(content))
    digest.update(content)
    return digest.hexdigest()


def _read_planetoid(folder: Path) -> Data:
    prefix = next(folder.glob('*.graph')).name.split('.')[1]
    return read_planetoid_data(str(folder), prefix)


def _read_wikipedia(folder: Path) -> Data:
    # `WikipediaNetwork` makes a number of Python of each of eleven million digits.
    lines = (folder / _WIKIPEDIA_FILES['features']).read_bytes().splitlines()[1:]
    rows = [line.split(b'\t') for line in lines]
    x = np.stack([np.frombuffer(row[1], np.uint8)[::2] - ord('0') for row in rows])
    if (x > 9).any():
        raise ValueError('features must be digits')
    y = np.array([row[2] for row in rows], dtype=np.int64)
    edges = np.loadtxt(folder / _WIKIPEDIA_FILES['edges'], np.int64, skiprows=1).T
    return Data(
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(y),
        edge_index=torch.from_numpy(edges).contiguous(),
    )


def _read_coauthor(folder: Path) -> Data:
    # `Coauthor` makes the features dense, more than a gigabyte in Physics.
    with np.load(next(folder.iterdir()), allow_pickle=False) as arrays:
        names = ('data', 'indices', 'indptr', 'shape')
        parts = [torch.from_numpy(arrays[f'attr_{name}']) for name in names]
        y = torch.from_numpy(arrays['labels']).long()
    value, column, offset, shape = parts
    row = torch.arange(len(y)).repeat_interleave(offset.diff())
    # Whether a keyword occurs, not how often.
    index = torch.stack([row, column])[:, value > 0]
    x = torch.sparse_coo_tensor(
        index, torch.ones(index.size(1)), shape.tolist(), check_invariants=True
    )
    return Data(x=x.coalesce(), y=y)


def _planetoid(name: str, digests: dict[str, str]) -> RawFiles:
    others = {'ind.pubmed.allx': (_ALLX,)}
    names = {f'ind.{name.lower()}.{part}': digest for part, digest in digests.items()}
    files = {file: (digest, *others.get(file, ())) for file, digest in names.items()}
    return RawFiles(f'{name}/raw', files, Planetoid.url)


def _wikipedia(name: str, digests: dict[str, str]) -> RawFiles:
    files = {_WIKIPEDIA_FILES[part]: (digest,) for part, digest in digests.items()}
    url = f'{WikipediaNetwork.processed_url}/new_data/{name}'
    return RawFiles(f'{name}/geom_gcn/raw', files, url)


def _coauthor(name: str, digest: str) -> RawFiles:
    files = {f'ms_academic_{name[:3].lower()}.npz': (digest,)}
    return RawFiles(f'{name}/raw', files, Coauthor.url.rstrip('/'))


RAW_FILES = {
    'CiteSeer': _planetoid('CiteSeer', _CITESEER),
    'PubMed': _planetoid('PubMed', _PUBMED),
    'Chameleon': _wikipedia('chameleon', _CHAMELEON),
    'Squirrel': _wikipedia('squirrel', _SQUIRREL),
    'CS': _coauthor('CS', _CS),
    'Physics': _coauthor('Physics', _PHYSICS),
    '20News': RawFiles('20News/raw', {'20news-bydate_py3.pkz': (_NEWS,)}),
    'MiniImageNet': RawFiles('MiniImageNet/raw', {'mini_imagenet.pkl': ()}),
}
#: Readers of the datasets that have no class of their own.
READERS: dict[str, Callable[[Path], Data]] = {
    'CiteSeer': _read_planetoid,
    'PubMed': _read_planetoid,
    'Chameleon': _read_wikipedia,
    'Squirrel': _read_wikipedia,
    'CS': _read_coauthor,
    'Physics': _read_coauthor,
}
