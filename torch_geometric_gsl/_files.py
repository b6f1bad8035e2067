"""Save objects to files of plain values and tensors, and load them as data only."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import tempfile
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from torch_geometric_gsl._checks import check_device


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces the file once it is written."""
    path = Path(path)
    if not path.parent.is_dir() or path.is_dir():
        raise FileNotFoundError(
            f"'path' must be a file in a folder that exists (got '{path}')"
        )
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        # `mkstemp` makes it readable by its owner only.
        umask = os.umask(0)
        os.umask(umask)
        draft.chmod(0o666 & ~umask)
        os.replace(draft, path)
    finally:  # It no longer exists once it has been moved.
        draft.unlink(missing_ok=True)


def plain_value(value: Any) -> Any:
    """Convert NumPy strings and numbers inside a value to Python ones."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {plain_value(k): plain_value(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_value, value))
    return value


def write_file(
    path: str | Path, class_name: str, options: dict[str, Any], state: dict[str, Any]
) -> None:
    """Write the options and the state of an object of a class, if they can be read.

    Both hold plain values and tensors: :obj:`torch.load(path, weights_only=True)`.
    """
    content = {
        'class': class_name,
        'version': import_module(__package__).__version__,
        'options': plain_value(options),
        'state': plain_value(state),
    }
    with atomic_write(path) as draft:
        torch.save(content, draft)
        try:
            torch.load(draft, weights_only=True, map_location='meta')
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"'{path}' is unchanged: the new content could not be read back "
                f'({_reason(error)})'
            ) from error


def read_file(path: str | Path, class_names: Collection[str]) -> dict[str, Any]:
    """Read a file that an object of one of the named classes wrote, as data only."""
    with Path(path).open('rb') as stream:
        if (reason := _damage(stream)) is not None:
            raise OSError(f"'{path}' is not a valid saved model: {reason}")
        content = _load_plain(stream, path)
    if not isinstance(content, dict):
        class_name = type(content).__name__
        raise OSError(f"'{path}' is not a valid saved model (got a {class_name})")
    if content.keys() != {'class', 'version', 'options', 'state'}:
        raise OSError(f"'{path}' is not a valid saved model (got {[*content]})")
    class_name = content['class']
    if not isinstance(class_name, str) or class_name not in class_names:
        raise ValueError(
            f"'{path}' must hold a {' or a '.join(class_names)} (got a {class_name}): "
            f"use '{class_name}.load'"
        )
    return content


@contextmanager
def restore_errors(path: str | Path, content: dict[str, Any]) -> Iterator[None]:
    """Name the file and its version if what it holds does not fit its class."""
    try:
        yield
    except (
        *(ArithmeticError, AttributeError, LookupError, RuntimeError),
        *(TypeError, ValueError),
    ) as error:
        raise ValueError(
            f"'{path}' holds a {content['class']} of version {content['version']} "
            f'that cannot be restored: {error}'
        ) from error


class SaveMixin(ABC):
    """Save an object to a file, and load it again.

    Subclasses define what a file holds.
    """

    def save(self, path: str | Path) -> None:
        r"""Write the object to a file, to be read by :meth:`load`.

        Args:
            path (str or pathlib.Path): The file, replaced atomically.

        Raises:
            TypeError: If an option is not a plain value, such as a string or number.
        """
        write_file(path, type(self).__name__, *self._save_state())

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> Any:
        r"""Load an object written by :meth:`save`; no code is executed.

        Args:
            path (str or pathlib.Path): The file.
            device (str or torch.device, optional): The device of the parameters; of an
                estimator, the one of the saved parameter, else the CPU, if :obj:`None`.
                (default: :obj:`None`)

        Raises:
            OSError: If the file is not a saved model, or is damaged.
            ValueError: If it holds an object of another class, or one that this version
                cannot restore.
        """
        if device is not None:
            device = check_device(device)
        classes = {cls_.__name__: cls_ for cls_ in _concrete(cls)}
        content = read_file(path, classes)
        with restore_errors(path, content):
            cls_ = classes[content['class']]
            return cls_._from_state(content['options'], content['state'], device)

    @abstractmethod
    def _save_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of the constructor, and what was learned."""

    @classmethod
    @abstractmethod
    def _from_state(cls, options: Any, state: Any, device: torch.device | None) -> Any:
        """Create an object from what :meth:`_save_state` returns."""


def _concrete(cls: Any) -> Iterator[Any]:
    """Yield a class and its subclasses, except abstract ones."""
    # The tracer of PyTorch derives classes of the same names.
    is_traced = any(base.__module__.startswith('torch.fx.') for base in cls.__mro__)
    if not inspect.isabstract(cls) and not is_traced:
        yield cls
    for subclass in cls.__subclasses__():
        yield from _concrete(subclass)


def _load_plain(stream: IO[bytes], path: str | Path) -> Any:
    """Load an object whose types PyTorch allows, onto the CPU."""
    with warnings.catch_warnings():
        # Pickle protocols that are rejected anyway.
        warnings.filterwarnings('ignore', 'Detected pickle protocol')
        try:
            return torch.load(stream, weights_only=True, map_location='cpu')
        except MemoryError:
            raise
        except Exception as error:  # A damaged archive or pickle may raise any.
            match = re.search(r'tried to allocate (\d+) bytes', str(error))
            # A file that requests more memory than its size is damaged.
            is_sound = match and int(match[1]) <= stream.seek(0, os.SEEK_END)
            if isinstance(error, RuntimeError) and is_sound:
                raise MemoryError(str(error).splitlines()[0]) from error
            raise OSError(
                f"'{path}' is not a valid saved model: {_reason(error)}"
            ) from error


def _reason(error: Exception) -> str:
    """Return why PyTorch rejected a file, without its advice to trust the file."""
    if match := re.search(r'GLOBAL (\S{1,100})', str(error)):
        return f'it refers to {match[1]}, which is not loaded'
    reason = str(error).partition('\n')[0]
    if 'weights_only' in reason:  # Advice of PyTorch to trust the file.
        reason = 'it does not hold plain values and tensors only'
    return reason


def _damage(stream: IO[bytes]) -> str | None:
    """Describe a part with a wrong checksum, which PyTorch does not verify."""
    try:
        with zipfile.ZipFile(stream) as archive:
            member = archive.testzip()
        return None if member is None else f"its part '{member}' is damaged"
    except zipfile.BadZipFile:
        return 'it is truncated, or of another program'
    finally:
        stream.seek(0)
