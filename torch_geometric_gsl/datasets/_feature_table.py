from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, InMemoryDataset

from torch_geometric_gsl._checks import check_flag
from torch_geometric_gsl._damage import ERRORS, check_memory
from torch_geometric_gsl._files import read_tensors, write_tensors
from torch_geometric_gsl._warnings import warn_caller


class FeatureTable(InMemoryDataset):
    r"""Base class of the datasets that hold one graph's nodes, and no edges.

    Reading the processed file executes nothing. If it is damaged, a warning says so,
    and the raw data is processed again. Its arguments are those of
    :class:`~torch_geometric_gsl.datasets.TwentyNewsgroups`.
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
        allow_pickle: bool = False,
    ) -> None:
        check_flag(allow_pickle, 'allow_pickle')
        self._raw_dir, self.allow_pickle = raw_dir, allow_pickle
        super().__init__(root, transform, pre_transform, force_reload=force_reload)
        content = _read(self.processed_paths[0])
        self.data, self.slices = self.collate([Data.from_dict(content['data'])])

    @property
    def raw_dir(self) -> str:
        return str(super().raw_dir) if self._raw_dir is None else self._raw_dir

    @property
    def processed_file_names(self) -> str:
        # Not the name of PyG, which reads its own format and executes what it holds.
        return 'table.pt'

    # PyG's own would unpickle the notes that it keeps beside the data.
    def _process(self) -> None:
        path, own = self.processed_paths[0], _describe_callable(self.pre_transform)
        try:
            if not self.force_reload:
                if (note := _read(path)['pre_transform']) != own:
                    warn_caller(
                        f"'pre_transform' is not the one that '{path}' was made with "
                        f'(got {own!r} for {note!r}): pass force_reload=True to apply '
                        'it',
                        UserWarning,
                    )
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            warn_caller(f'{error}: the raw data is processed again', UserWarning)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.process()

    def _save_table(self, x: NDArray[Any], y: NDArray[Any], origin: str) -> None:
        """Check the counts and save features and labels as one data object."""
        found = (x.shape[0], x.shape[1], int(np.unique(y).size))
        if self._expected is not None and found != self._expected:
            counts = '{} nodes, {} features and {} classes'.format
            raise ValueError(
                f'{origin} must give {counts(*self._expected)} (got {counts(*found)})'
            )
        data = Data(
            x=torch.from_numpy(x.astype(np.float32)),
            y=torch.from_numpy(y.astype(np.int64)),
        )
        if self.pre_transform is not None:
            data = self.pre_transform(data)
        if type(data) is not Data:
            raise TypeError(
                f"'pre_transform' must return a Data object (got {type(data).__name__})"
            )
        note = _describe_callable(self.pre_transform)
        content = {'data': data.to_dict(), 'pre_transform': note}
        write_tensors(content, self.processed_paths[0])

    def _import_sklearn(self, module: str) -> Any:
        """Import a module of scikit-learn, which is an optional dependency."""
        try:
            return import_module(module)
        except ImportError as error:
            raise ImportError(
                f"'{type(self).__name__}' needs scikit-learn: pip install scikit-learn"
            ) from error


def _read(path: str) -> dict[str, Any]:
    try:  # PyTorch does not compare the sums of an archive.
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except ERRORS as error:
        check_memory(error, Path(path).stat().st_size)
        bad = str(error)
    content = {} if bad else read_tensors(path, 'table')
    if content.keys() != {'data', 'pre_transform'}:
        raise OSError(f"'{path}' is damaged ({bad or 'it holds something else'})")
    return content


def _describe_callable(function: object) -> str:
    """Return PyG's description, without an address, which no other process has."""
    return re.sub(r'(<.*?)\s.*(>)', r'\1\2', str(function))
