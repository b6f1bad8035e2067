from __future__ import annotations

import pickle
from pathlib import Path
from typing import ClassVar

import numpy as np

from torch_geometric_gsl._damage import ERRORS, damaged
from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._raw_files import RAW_FILES, known_copies

_SOURCE = 'https://github.com/qitianwu/NodeFormer'


class MiniImageNetFeatures(FeatureTable):
    r"""Features of Mini-ImageNet images, as used in the `"NodeFormer: A
    Scalable Graph Structure Learning Transformer for Node Classification"
    <https://arxiv.org/abs/2306.08385>`_ paper: nodes are images of 30 classes
    (600 images each), features come from a convolutional network. There are
    no edges.

    The file :obj:`mini_imagenet.pkl` is not downloaded: bring it from the data
    folder that `NodeFormer's repository
    <https://github.com/qitianwu/NodeFormer>`_ links, and put it into
    :obj:`root/raw`. It is a pickle, whose bytes are not known here: it is read if
    :obj:`allow_pickle` is set, once, for its arrays are saved beside it. The
    published parts (training, validation, test) are joined in this order, and
    classes are numbered by their sorted labels.

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
        allow_pickle (bool, optional): Whether to read the pickle, which executes what
            it holds. (default: :obj:`False`)

    **STATS:**

    ======  =========  ========
    #nodes  #features  #classes
    ======  =========  ========
    18,000        128        30
    ======  =========  ========

    Raises:
        OSError: If the file is missing, damaged, or not allowed to be read.
        ValueError: If the file's content is not what was published.

    Example:
        >>> dataset = MiniImageNetFeatures('data/mini')  # doctest: +SKIP
        >>> dataset[0]  # doctest: +SKIP
        Data(x=[18000, 128], y=[18000])
    """

    _expected: ClassVar[tuple[int, int, int] | None] = (18000, 128, 30)

    @property
    def raw_file_names(self) -> str:
        return 'mini_imagenet.pkl'

    def download(self) -> None:
        raise FileNotFoundError(
            f"'{self.raw_paths[0]}' is missing and cannot be downloaded: take "
            f"'{self.raw_file_names}' from the data folder that {_SOURCE} links, "
            'and put it there'
        )

    def process(self) -> None:
        path, digests = Path(self.raw_paths[0]), RAW_FILES['MiniImageNet'].digests
        parts = ('train', 'val', 'test')
        with known_copies(path.parent, digests, self.allow_pickle) as folder:
            content = (folder / path.name).read_bytes()
        try:
            found = pickle.loads(content)
            xs, ys = ([np.asarray(found[f'{k}_{p}']) for p in parts] for k in 'xy')
            # A value too large for float32 becomes infinite, and is reported as such.
            with np.errstate(over='ignore'):
                x = np.concatenate(xs).astype(np.float32)
            names, y = np.unique(np.concatenate(ys), return_inverse=True)
        except ERRORS as error:
            raise damaged(path, error) from error
        if x.ndim != 2 or y.shape != x.shape[:1] or names.dtype.kind not in 'iu':
            raise ValueError(
                f"'{path}' must hold a matrix and an integer for each of its rows "
                f'(got shape {x.shape}, and {names.dtype} of shape {y.shape})'
            )
        if bad := int(x.size - np.isfinite(x).sum()):
            raise ValueError(
                f"'{path}' must have finite features (got {bad} NaN or infinite)"
            )
        self._save_table(x, y, f"'{path}'")
