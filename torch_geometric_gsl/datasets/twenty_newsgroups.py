from __future__ import annotations

import os
import os.path as osp
import zlib
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, TypeGuard

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl._damage import damaged
from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._io.safe_pickle import (
    DType,
    Function,
    read_pickle,
    to_numbers,
)

_CLASS_NAMES = (
    'alt.atheism',
    'comp.sys.ibm.pc.hardware',
    'misc.forsale',
    'rec.autos',
    'rec.sport.hockey',
    'sci.crypt',
    'sci.electronics',
    'sci.med',
    'sci.space',
    'talk.politics.guns',
)
# Six times the real posts: a small file cannot ask for more memory.
_MAX_BYTES = 2**28


class TwentyNewsgroups(FeatureTable):
    r"""Posts from ten of the twenty newsgroups, as used in the `"NodeFormer: A
    Scalable Graph Structure Learning Transformer for Node Classification"
    <https://arxiv.org/abs/2306.08385>`_ paper: nodes are posts, features are
    the TF-IDF weights of the words that occur in at least 5 % of them, classes
    are newsgroups. There are no edges.

    The posts come from `scikit-learn's loader
    <https://scikit-learn.org/stable/datasets/real_world.html>`_, which
    downloads 14 MB. Its cache file, :obj:`20news-bydate_py3.pkz`, may also be
    put into the :obj:`raw` folder by hand. It is a pickle, and is read in a way
    that runs none of its code.

    Args:
        root (str): The folder in which the dataset is saved.
        transform (callable, optional): Applied to the data object before every
            access. (default: :obj:`None`)
        pre_transform (callable, optional): Applied to the data object before
            it is saved to disk. (default: :obj:`None`)
        force_reload (bool, optional): Whether to process the raw data again.
            (default: :obj:`False`)
        raw_dir (str, optional): The folder of the raw files, if it is not
            :obj:`root/raw`. (default: :obj:`None`)

    **STATS:**

    ======  =========  ========
    #nodes  #features  #classes
    ======  =========  ========
     9,607        236        10
    ======  =========  ========

    Raises:
        OSError: If the posts cannot be downloaded, or their file is damaged or
            asks for anything but texts and arrays.
        ValueError: If the posts do not give the published counts.
        ImportError: If scikit-learn is not installed.

    Example:
        >>> dataset = TwentyNewsgroups('data/20News')  # doctest: +SKIP
        >>> dataset[0]  # doctest: +SKIP
        Data(x=[9607, 236], y=[9607])
    """

    _expected: ClassVar[tuple[int, int, int] | None] = (9607, 236, 10)

    @property
    def class_names(self) -> tuple[str, ...]:
        r"""Return the newsgroups' names, in the order of their labels."""
        return _CLASS_NAMES

    @property
    def raw_file_names(self) -> str:
        return '20news-bydate_py3.pkz'

    def download(self) -> None:
        path = self.raw_paths[0]
        datasets = self._import_sklearn('sklearn.datasets')
        try:
            # In a folder of its own: there scikit-learn finds no file to unpickle,
            # and what a kill or a second process leaves half done stays apart.
            with TemporaryDirectory(dir=self.raw_dir) as folder:
                datasets.fetch_20newsgroups(data_home=folder, subset='all')
                os.replace(osp.join(folder, self.raw_file_names), path)
        except OSError as error:
            raise OSError(
                f"'{path}' could not be downloaded ({error}): try again, or copy "
                'the file of that name from the scikit-learn data folder of a '
                'machine that has it'
            ) from error

    @property
    def feature_names(self) -> tuple[str, ...]:
        r"""Return the words, in the order of the features, from the raw posts."""
        counter, _, _ = self._count_words()
        return tuple(counter.get_feature_names_out().tolist())

    def process(self) -> None:
        text = self._import_sklearn('sklearn.feature_extraction.text')
        _, counts, y = self._count_words()
        x = text.TfidfTransformer(smooth_idf=False).fit_transform(counts).toarray()
        version = self._import_sklearn('sklearn').__version__
        self._save_table(x, y, f"'{self.raw_paths[0]}' with scikit-learn {version}")

    def _count_words(self) -> tuple[Any, Any, NDArray[np.int64]]:
        """Count the words of each post: the counter, the counts, and the labels."""
        path = Path(self.raw_paths[0])
        text = self._import_sklearn('sklearn.feature_extraction.text')
        counter = text.CountVectorizer(stop_words='english', min_df=0.05)
        try:
            posts, y = _read_posts(path)
            return counter, counter.fit_transform(posts), y
        except (ValueError, zlib.error) as error:
            raise damaged(path, error) from error


class _Bunch(dict[object, object]):
    """Stand in for scikit-learn's dictionary, which ignores its state as well."""

    def __setstate__(self, state: object) -> None:
        pass


_NAMES = {
    # scikit-learn has moved the class.
    ('sklearn.utils._bunch', 'Bunch'): _Bunch,
    ('sklearn.utils', 'Bunch'): _Bunch,
    ('sklearn.datasets.base', 'Bunch'): _Bunch,
    # File names are read past.
    ('numpy', 'dtype'): Function(partial(DType, others=r'U[1-9]\d{0,5}')),
}


def _read_posts(path: Path) -> tuple[list[str], NDArray[np.int64]]:
    """Read the posts of the ten groups, in the order of scikit-learn's loader."""
    found = read_pickle(path, _NAMES, _decompress)
    parts = [_read_part(found, name, path) for name in ('train', 'test')]
    texts = [text for part in parts for text in part[0]]
    y = np.concatenate([part[1] for part in parts])
    kept = np.flatnonzero(y >= 0)
    # The loader shuffles by NumPy's older generator.
    np.random.RandomState(42).shuffle(kept)
    return [texts[i] for i in kept], y[kept]


def _decompress(content: bytes) -> bytes:
    decoder = zlib.decompressobj()
    unpacked = decoder.decompress(content, _MAX_BYTES)
    if decoder.unconsumed_tail:
        raise ValueError(f'it expands to more than {_MAX_BYTES:,} bytes')
    if not decoder.eof:
        raise ValueError('it ends too early')
    return unpacked


def _read_part(
    found: object, name: str, path: Path
) -> tuple[list[str], NDArray[np.int64]]:
    """Return texts and their labels, -1 for those of other groups."""
    part = found.get(name) if type(found) is dict else None
    if type(part) is not _Bunch:
        raise ValueError(f"it has no part '{name}'")
    texts, names = part.get('data'), part.get('target_names')
    if not _is_texts(texts) or not _is_texts(names):
        raise ValueError(f"'data' of its part '{name}' must be texts")
    target = to_numbers(part.get('target'), 'target', path)
    if (
        target.dtype.kind not in 'iu'
        or target.shape != (len(texts),)
        or not 0 <= target.min(initial=0) <= target.max(initial=0) < len(names)
    ):
        raise ValueError(f"'target' of its part '{name}' must be group numbers")
    if missing := [group for group in _CLASS_NAMES if group not in names]:
        raise ValueError(f'it has no posts of {missing}')
    labels = [_CLASS_NAMES.index(n) if n in _CLASS_NAMES else -1 for n in names]
    return texts, np.array(labels, dtype=np.int64)[target]


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return type(value) is list and all(type(item) is str for item in value)
