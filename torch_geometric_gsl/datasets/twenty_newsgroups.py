from __future__ import annotations

import os
import os.path as osp
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._io.newsgroups_file import read_posts
from torch_geometric_gsl.datasets._io.raw_files import damaged
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
        r"""The newsgroups' names, in the order of their labels."""
        return _CLASS_NAMES

    @property
    def raw_file_names(self) -> str:
        return '20news-bydate_py3.pkz'

    def download(self) -> None:
        path = self.raw_paths[0]
        datasets = import_sklearn('sklearn.datasets', type(self).__name__)
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

    def process(self) -> None:
        path = self.raw_paths[0]
        user = type(self).__name__
        text = import_sklearn('sklearn.feature_extraction.text', user)
        posts, y = read_posts(Path(path), _CLASS_NAMES)
        counter = text.CountVectorizer(stop_words='english', min_df=0.05)
        try:
            counts = counter.fit_transform(posts)
        except ValueError as error:
            raise damaged(Path(path), error) from error
        x = text.TfidfTransformer(smooth_idf=False).fit_transform(counts).toarray()
        version = import_sklearn('sklearn', user).__version__
        self._save_table(x, y, f"'{path}' with scikit-learn {version}")
