from __future__ import annotations

import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl._damage import ERRORS, damaged
from torch_geometric_gsl._files import replacing
from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._raw_files import POSTS, RAW_FILES, known_copies

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
(_CACHE,) = RAW_FILES['20News'].digests


class TwentyNewsgroups(FeatureTable):
    r"""Posts from ten of the twenty newsgroups, as used in the `"NodeFormer: A
    Scalable Graph Structure Learning Transformer for Node Classification"
    <https://arxiv.org/abs/2306.08385>`_ paper: nodes are posts, features are
    the TF-IDF weights of the words that occur in at least 5 % of them, classes
    are newsgroups. There are no edges.

    The posts come from `scikit-learn's loader
    <https://scikit-learn.org/stable/datasets/real_world.html>`_, which
    downloads 14 MB, and are kept as text, in :obj:`posts.json`. The loader's cache
    file, :obj:`20news-bydate_py3.pkz`, may be put into the :obj:`raw` folder
    instead. It is a pickle that each machine writes differently: it is read if its
    bytes are known, or if :obj:`allow_pickle` is set.

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
        allow_pickle (bool, optional): Whether to read a raw file of unknown bytes. If
            it is a pickle, this executes what it holds. (default: :obj:`False`)

    **STATS:**

    ======  =========  ========
    #nodes  #features  #classes
    ======  =========  ========
     9,607        236        10
    ======  =========  ========

    Raises:
        OSError: If the posts cannot be downloaded, or their file is damaged or
            unknown.
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
        return _CACHE if Path(self.raw_dir, _CACHE).is_file() else POSTS

    def download(self) -> None:
        path = self.raw_paths[0]
        try:
            # Scikit-learn would unpickle what it found in a folder.
            with TemporaryDirectory() as folder:
                posts = self._fetch(folder, download_if_missing=True)
        except OSError as error:
            raise OSError(
                f"'{path}' could not be downloaded ({error}): try again, or put "
                f"'{_CACHE}' from the scikit-learn data folder of a machine that has "
                'it beside it'
            ) from error
        with replacing(path) as draft:
            draft.write_text(json.dumps(posts), encoding='ascii')

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
            posts, y = self._read_posts(path)
            return counter, counter.fit_transform(posts), np.array(y, dtype=np.int64)
        except ImportError:
            raise
        except ERRORS as error:
            raise damaged(path, error) from error

    def _read_posts(self, path: Path) -> Any:
        if path.name != _CACHE:
            return json.loads(path.read_bytes())
        digests = RAW_FILES['20News'].digests
        with known_copies(path.parent, digests, self.allow_pickle) as folder:
            try:
                return self._fetch(str(folder), download_if_missing=False)
            except OSError as error:
                raise damaged(path, error) from error

    def _fetch(
        self, data_home: str, download_if_missing: bool
    ) -> tuple[list[str], list[int]]:
        """Return the posts of the ten groups and their labels."""
        datasets = self._import_sklearn('sklearn.datasets')
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # Of old pickles.
            found = datasets.fetch_20newsgroups(
                data_home=data_home,
                subset='all',
                categories=list(_CLASS_NAMES),
                download_if_missing=download_if_missing,
            )
        return found.data, found.target.tolist()
