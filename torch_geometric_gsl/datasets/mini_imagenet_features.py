from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from torch_geometric_gsl.datasets._feature_table import FeatureTable
from torch_geometric_gsl.datasets._io.safe_pickle import load_arrays

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
    :obj:`root/raw`. It is a pickle, and is read in a way that runs none of
    its code. The published parts (training, validation, test) are joined in
    this order, and classes are numbered by their sorted labels.

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
    18,000        128        30
    ======  =========  ========

    Raises:
        OSError: If the file is missing, damaged, or asks for anything but
            arrays and tensors.
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
        path = Path(self.raw_paths[0])
        names = [(f'x_{part}', f'y_{part}') for part in ('train', 'val', 'test')]
        arrays = load_arrays(path, [name for pair in names for name in pair])
        parts = [(arrays[x], arrays[y]) for x, y in names]
        for (x, y), pair in zip(parts, names, strict=True):
            are_labels = y.shape == x.shape[:1] and y.dtype.kind in 'iu'
            if x.ndim != 2 or x.dtype.kind != 'f' or not are_labels:
                raise ValueError(
                    f"'{pair[0]}' and '{pair[1]}' in '{path}' must be a floating-point "
                    f'matrix and an integer for each of its rows (got {x.dtype} of '
                    f'shape {x.shape} and {y.dtype} of shape {y.shape})'
                )
        widths = [x.shape[1] for x, _ in parts]
        if len(set(widths)) > 1:
            raise ValueError(f"'{path}' must have features of one width (got {widths})")
        # A value too large for float32 becomes infinite, and is reported as such.
        with np.errstate(over='ignore'):
            x = np.concatenate([x for x, _ in parts]).astype(np.float32)
        if bad := int(x.size - np.isfinite(x).sum()):
            raise ValueError(
                f"'{path}' must have finite features (got {bad} NaN or infinite)"
            )
        _, y = np.unique(np.concatenate([y for _, y in parts]), return_inverse=True)
        self._save_table(x, y, f"'{path}'")
