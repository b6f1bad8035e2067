from __future__ import annotations

import contextlib
import io
import zlib
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._sklearn import import_sklearn

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


class TwentyNewsgroups(FeatureTable):
    r"""Posts from ten of the twenty newsgroups, as used in the `"NodeFormer: A
    Scalable Graph Structure Learning Transformer for Node Classification"
    <https://arxiv.org/abs/2306.08385>`_ paper: nodes are posts, features are
    the TF-IDF weights of the words that occur in at least 5 % of them, classes
    are newsgroups. There are no edges.

    The posts come from `scikit-learn's loader
    <https://scikit-learn.org/stable/datasets/real_world.html>`_, which
    downloads 14 MB. Its cache file, :obj:`20news-bydate_py3.pkz`, is a pickle:
    put it into the :obj:`raw` folder yourself only if you trust its origin.

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

    .. list-table::
        :widths: 10 10 10
        :header-rows: 1

        * - #nodes
          - #features
          - #classes
        * - 9,607
          - 236
          - 10

    Raises:
        OSError: If the posts cannot be downloaded, or their file is damaged.
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
        r"""The newsgroups' names, in the order of their labels."""
        return _CLASS_NAMES

    @property
    def raw_file_names(self) -> str:
        return '20news-bydate_py3.pkz'

    def download(self) -> None:
        path = self.raw_paths[0]
        datasets = import_sklearn('sklearn.datasets', type(self).__name__)
        try:
            datasets.fetch_20newsgroups(data_home=self.raw_dir, subset='all')
        except OSError as error:
            raise OSError(
                f"'{path}' could not be downloaded ({error}): try again, or copy "
                'the file of that name from the scikit-learn data folder of a '
                'machine that has it'
            ) from error

    def process(self) -> None:
        path = self.raw_paths[0]
        user = type(self).__name__
        text = import_sklearn('sklearn.feature_extraction.text', user)
        _check_stream(path)
        posts, y = _read_posts(self.raw_dir, path, user)
        counter = text.CountVectorizer(stop_words='english', min_df=0.05)
        counts = counter.fit_transform(posts)
        x = text.TfidfTransformer(smooth_idf=False).fit_transform(counts).toarray()
        version = import_sklearn('sklearn', user).__version__
        self._save_table(x, y, f"'{path}' with scikit-learn {version}")


def _damaged(path: str, reason: str) -> OSError:
    return OSError(f"'{path}' is damaged ({reason}): delete it to download it again")


def _check_stream(path: str) -> None:
    """Finds truncated and altered files, at which scikit-learn would print."""
    decoder = zlib.decompressobj()
    try:
        with open(path, 'rb') as file:
            while chunk := file.read(2**16):
                decoder.decompress(chunk)
    except zlib.error as error:
        raise _damaged(path, str(error)) from error
    if not decoder.eof:
        raise _damaged(path, 'it ends too early')


def _read_posts(
    folder: str, path: str, user: str
) -> tuple[list[str], NDArray[np.int64]]:
    """Reads texts and labels from scikit-learn's cache, without a download."""
    datasets = import_sklearn('sklearn.datasets', user)
    # scikit-learn prints why a cache cannot be read, and keeps it from the error.
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            bunch: Any = datasets.fetch_20newsgroups(
                data_home=folder,
                subset='all',
                categories=list(_CLASS_NAMES),
                shuffle=True,
                random_state=42,
                download_if_missing=False,
            )
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        reason = (printed.getvalue().splitlines() or [repr(error)])[-1]
        raise _damaged(path, reason) from error
    return bunch.data, bunch.target
