"""Models in files."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from torch_geometric_gsl._files import plain_value, read_tensors, write_tensors

#: The plain values that a file may hold as arguments.
_PLAIN = str, int, float, bool, type(None)


class SavedModel(torch.nn.Module):
    r"""Save a model to a file and load it from there.

    A file holds the arguments of the constructor and the :obj:`state_dict`. Nothing in
    it is executed: classes are found by their names among those that Python knows
    already, the rest is read by :obj:`torch.load(..., weights_only=True)`.

    Example:
        >>> import tempfile
        >>> from torch_geometric_gsl import GSLNet
        >>> x, model = torch.randn(50, 16), GSLNet(16, 32, 2, 7).eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f'{folder}/model.pt')
        ...     again = GSLNet.load(f'{folder}/model.pt')
        >>> torch.equal(again(x), model(x))
        True
    """

    _given: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if '__init__' in cls.__dict__:
            # Wrapped, so that the class keeps the signature of its constructor.
            cls.__init__ = _noting(cls.__init__)  # type: ignore[method-assign]

    def save(self, path: str | Path) -> None:
        r"""Write the model to a file, which :meth:`load` reads.

        The arguments of the constructor must be plain values, such as names. What was
        set on a module afterwards, beside its :obj:`state_dict`, is not written.

        Args:
            path (str or pathlib.Path): The file, which is replaced as a whole.
        """
        if any(map(is_uninitialized_parameter, self.parameters())):
            raise ValueError(
                "'in_channels' must be known before a model is saved (got -1): call "
                'the model once'
            )
        content = {
            'class': type(self).__name__,
            'arguments': {k: _plain(k, v) for k, v in self._given.items()},
            'state': self.state_dict(),
        }
        write_tensors(content, path)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device = 'cpu') -> Any:
        r"""Return a model that :meth:`save` wrote, in evaluation mode.

        Args:
            path (str or pathlib.Path): The file.
            device (str or torch.device, optional): The device.
                (default: :obj:`"cpu"`)

        Raises:
            OSError: If the file holds no model, or is damaged.
            ValueError: If it is a model of another class, or of another version.
        """
        content = read_tensors(path, 'saved model', device)
        if content.keys() != {'class', 'arguments', 'state'}:
            raise OSError(f"'{path}' holds no saved model (got {sorted(content)})")
        known = {kind.__name__: kind for kind in _concrete(cls)}
        kind = known.get(content['class'])
        if kind is None:
            raise ValueError(
                f"'{path}' holds a {content['class']}, not one of {sorted(known)}"
            )
        try:
            model = kind(**content['arguments'])
            # Assigned, so that the types of the weights are those that were written.
            model.to(device).load_state_dict(content['state'], assign=True)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"'{path}' holds a {kind.__name__} of another form: {error}"
            ) from error
        return model.eval()


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that notes its arguments, unless one below it has."""

    @functools.wraps(init)
    def note_and_init(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__.setdefault('_given', _arguments(init, args, kwargs))
        init(self, *args, **kwargs)

    return note_and_init


def _arguments(init: Callable[..., None], args: Any, kwargs: Any) -> dict[str, Any]:
    """Return all arguments of a constructor by their names, its defaults too."""
    signature = inspect.signature(init)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}  # The constructor says what is wrong.
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    given: dict[str, Any] = {}
    for name, value in named:
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        given |= value if is_rest else {name: value}
    return given


def _plain(name: str, value: Any) -> Any:
    """Return a value that a file may hold; raise if it may not."""
    value = plain_value(value)
    if isinstance(value, tuple):  # A named one would refer to its class.
        value = tuple(value)
    items = [value]
    if isinstance(value, dict):
        items = [*value.keys(), *value.values()]
    elif isinstance(value, tuple | list):
        items = [*value]
    for item in items:
        if item is not value and isinstance(item, dict | tuple | list):
            _plain(name, item)
        elif not isinstance(item, (*_PLAIN, dict, tuple, list)):
            raise TypeError(
                f"'{name}' must be a plain value to be saved: a name, a number, a "
                f'tuple or a dict of them (got {type(value).__name__})'
            )
    return value


def _concrete(cls: Any) -> Iterator[Any]:
    """Yield a class and all below it that can be made."""
    if not inspect.isabstract(cls):
        yield cls
    for below in cls.__subclasses__():
        yield from _concrete(below)
