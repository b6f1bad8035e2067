from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, InMemoryDataset


class FeatureTable(InMemoryDataset):
    r"""Base class of the datasets that hold one graph's nodes, and no edges.

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
    """

    #: The published numbers of nodes, features and classes, where they are known.
    _expected: ClassVar[tuple[int, int, int] | None] = None

    def __init__(
        self,
        root: str,
        transform: Callable[[Data], Data] | None = None,
        pre_transform: Callable[[Data], Data] | None = None,
        force_reload: bool = False,
        raw_dir: str | None = None,
    ) -> None:
        self._raw_dir = raw_dir
        super().__init__(root, transform, pre_transform, force_reload=force_reload)
        path = self.processed_paths[0]
        try:
            self.load(path)
        except (AssertionError, EOFError, RuntimeError, pickle.UnpicklingError) as e:
            raise OSError(
                f"'{path}' is damaged ({e}): delete it to process the raw data again"
            ) from e

    @property
    def raw_dir(self) -> str:
        return str(super().raw_dir) if self._raw_dir is None else self._raw_dir

    @property
    def processed_file_names(self) -> str:
        return 'data.pt'

    def _save_table(self, x: NDArray[Any], y: NDArray[Any], origin: str) -> None:
        """Checks the counts and saves features and labels as one data object."""
        found = (x.shape[0], x.shape[1], int(np.unique(y).size))
        if self._expected is not None and found != self._expected:
            raise ValueError(
                f'{origin} must give {_describe(self._expected)} '
                f'(got {_describe(found)})'
            )
        data = Data(
            x=torch.from_numpy(x.astype(np.float32)),
            y=torch.from_numpy(y.astype(np.int64)),
        )
        if self.pre_transform is not None:
            data = self.pre_transform(data)
        self.save([data], self.processed_paths[0])


def _describe(counts: tuple[int, int, int]) -> str:
    return f'{counts[0]} nodes, {counts[1]} features and {counts[2]} classes'
