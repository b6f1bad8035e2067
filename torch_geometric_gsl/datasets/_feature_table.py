from __future__ import annotations

import os
import os.path as osp
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.data import BaseData

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.datasets._io.sealed_file import (
    DamagedFileError,
    damaged_file,
    read_sealed,
    write_atomically,
    write_sealed,
)

_NOTE = 'pre_transform.txt'


class FeatureTable(InMemoryDataset):
    r"""Base class of the datasets that hold one graph's nodes, and no edges.

    The processed file is written at once or not at all, and nothing in it is
    executed when it is read. One that is damaged is named by a warning, and the
    raw data is processed again. Its arguments are those of
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
    ) -> None:
        self._raw_dir = raw_dir
        super().__init__(root, transform, pre_transform, force_reload=force_reload)
        self.load(self.processed_paths[0])

    @property
    def raw_dir(self) -> str:
        return str(super().raw_dir) if self._raw_dir is None else self._raw_dir

    @property
    def processed_file_names(self) -> str:
        # Not the name of PyG, which reads its own format and executes what it holds.
        return 'data.sealed'

    @classmethod
    def save(cls, data_list: Sequence[BaseData], path: str) -> None:
        r"""Save a list of data objects to the file path :obj:`path`, atomically."""
        if other := [type(data) for data in data_list if type(data) is not Data]:
            raise TypeError(
                "'data_list' must hold Data objects, also after 'pre_transform' "
                f'(got {other[0].__name__})'
            )
        data, slices = cls.collate(data_list)
        write_sealed(path, {'data': data.to_dict(), 'slices': slices})

    def load(self, path: str, data_cls: type[BaseData] = Data) -> None:
        r"""Load a file of :meth:`save`, and execute nothing that it holds."""
        data, self.slices = _read_table(path)
        self.data = data_cls.from_dict(data)  # type: ignore[attr-defined]

    # PyG's own would unpickle the notes that it keeps beside the data.
    def _process(self) -> None:
        note = osp.join(self.processed_dir, _NOTE)
        if not self.force_reload and self._is_processed():
            self._compare_note(note)
            return
        self._tell('Processing...')
        os.makedirs(self.processed_dir, exist_ok=True)
        self.process()
        write_atomically(note, _describe_callable(self.pre_transform).encode())
        self._tell('Done!')

    def _is_processed(self) -> bool:
        try:
            _read_table(self.processed_paths[0])
        except FileNotFoundError:
            return False
        except DamagedFileError as error:
            warn_caller(f'{error}: the raw data is processed again', UserWarning)
            return False
        return True

    def _compare_note(self, path: str) -> None:
        try:
            with open(path, 'rb') as file:
                note = file.read().decode(errors='replace')
        except FileNotFoundError:
            return
        if note != (own := _describe_callable(self.pre_transform)):
            warn_caller(
                f"'pre_transform' is not the one that '{self.processed_dir}' was made "
                f'with (got {own!r} for {note!r}): pass force_reload=True to apply it',
                UserWarning,
            )

    def _tell(self, text: str) -> None:
        if self.log and 'PYTEST_CURRENT_TEST' not in os.environ:
            sys.stderr.write(f'{text}\n')

    def _save_table(self, x: NDArray[Any], y: NDArray[Any], origin: str) -> None:
        """Check the counts and save features and labels as one data object."""
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


def _read_table(path: str) -> tuple[dict[str, Any], Any]:
    content = read_sealed(path)
    if type(content) is not dict or content.keys() != {'data', 'slices'}:
        raise damaged_file(path, 'it holds something else')
    if type(content['data']) is not dict:
        raise damaged_file(path, 'it holds no data')
    return cast(dict[str, Any], content['data']), content['slices']


def _describe_callable(function: object) -> str:
    """Return PyG's description, without an address, which no other process has."""
    return re.sub(r'(<.*?)\s.*(>)', r'\1\2', str(function))


def _describe(counts: tuple[int, int, int]) -> str:
    return f'{counts[0]} nodes, {counts[1]} features and {counts[2]} classes'
