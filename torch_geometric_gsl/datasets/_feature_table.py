from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import uuid
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.data import BaseData

from torch_geometric_gsl._damage import ERRORS, check_memory, refused_global
from torch_geometric_gsl._warnings import warn_caller

_DIGEST_BYTES = hashlib.sha256().digest_size


class DamagedFileError(OSError):
    """A processed file is not as it was written."""


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
        buffer = io.BytesIO()
        torch.save({'data': data.to_dict(), 'slices': slices}, buffer)
        payload = buffer.getvalue()
        try:
            _load_tensors(payload)
        except ValueError as error:
            raise TypeError(
                f"'{path}' can only hold tensors, numbers, text, and lists and dicts "
                f'of them (got {error})'
            ) from error
        # The digest of the rest comes first.
        _write_atomically(Path(path), hashlib.sha256(payload).digest() + payload)

    def load(self, path: str, data_cls: type[BaseData] = Data) -> None:
        r"""Load a file of :meth:`save`, and execute nothing that it holds."""
        data, self.slices = _read_table(path)
        self.data = data_cls.from_dict(data)  # type: ignore[attr-defined]

    # PyG's own would unpickle the notes that it keeps beside the data.
    def _process(self) -> None:
        note = Path(self.processed_dir, 'pre_transform.txt')
        if not self.force_reload and self._is_processed():
            self._compare_note(note)
            return
        self._tell('Processing...')
        os.makedirs(self.processed_dir, exist_ok=True)
        self.process()
        _write_atomically(note, _describe_callable(self.pre_transform).encode())
        self._tell('Done!')

    def _is_processed(self) -> bool:
        try:
            _read_table(self.processed_paths[0])
            return True
        except DamagedFileError as error:
            warn_caller(f'{error}: the raw data is processed again', UserWarning)
        except FileNotFoundError:
            pass
        return False

    def _compare_note(self, path: Path) -> None:
        if not path.exists():
            return
        note = path.read_text(encoding='utf-8', errors='replace')
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
        self.save([data], self.processed_paths[0])

    def _import_sklearn(self, module: str) -> Any:
        """Import a module of scikit-learn, which is an optional dependency."""
        try:
            return import_module(module)
        except ImportError as error:
            raise ImportError(
                f"'{type(self).__name__}' needs scikit-learn: pip install scikit-learn"
            ) from error


def _write_atomically(path: Path, content: bytes) -> None:
    """Replace a file: a kill, or another process, sees the old content or the new."""
    # Of this process alone, should two ever write the same file.
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex[:8]}.tmp')
    try:
        with draft.open('wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _read_table(path: str) -> tuple[dict[str, Any], Any]:
    content = Path(path).read_bytes()
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        raise _damaged(path, 'its digest is wrong')
    try:  # Whoever forges a file can seal it, too.
        found = _load_tensors(payload)
    except ValueError as error:
        raise _damaged(path, f'it holds {error}') from error
    is_table = type(found) is dict and found.keys() == {'data', 'slices'}
    if not is_table or type(found['data']) is not dict:
        raise _damaged(path, 'it holds something else')
    return found['data'], found['slices']


def _damaged(path: str, reason: str) -> DamagedFileError:
    return DamagedFileError(f"'{path}' is damaged ({reason})")


def _load_tensors(payload: bytes) -> Any:
    """Load what torch has saved; raise the name of what it may not hold."""
    try:
        return torch.load(io.BytesIO(payload), map_location='cpu', weights_only=True)
    except ERRORS as error:
        check_memory(error, len(payload))
        raise ValueError(refused_global(error) or type(error).__name__) from error


def _describe_callable(function: object) -> str:
    """Return PyG's description, without an address, which no other process has."""
    return re.sub(r'(<.*?)\s.*(>)', r'\1\2', str(function))
