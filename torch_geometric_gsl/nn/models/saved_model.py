"""Base class of models that are saved to a file and loaded again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from torch_geometric_gsl._files import SaveMixin, plain_value
from torch_geometric_gsl.nn.sampler.options import PASSED_ON, PLAIN, Budget


class SavedModel(SaveMixin, torch.nn.Module):
    r"""Save a model to a file and load it again.

    A file holds the arguments of the constructor, which must be plain values, the
    options of samplers, also if set later, and the :obj:`state_dict`. Loading executes
    no code: classes are looked up among those already imported, and the file is read by
    :obj:`torch.load(..., weights_only=True)`. A loaded model is in evaluation mode.

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

    _init_arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if '__init__' in cls.__dict__:
            # Wrapped, so that the class keeps the signature of its constructor.
            cls.__init__ = _record_arguments(cls.__init__)  # type: ignore[method-assign]

    def _save_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if any(map(is_uninitialized_parameter, self.parameters())):
            raise ValueError(
                "'in_channels' must be known before a model is saved: call the model "
                'once (got -1)'
            )
        samplers = {
            path: {k: _plain(k, v) for k, v in vars(module).items() if k in PASSED_ON}
            for path, module in self.named_modules()
        }
        options = {k: _plain(k, v) for k, v in self._init_arguments.items()}
        return options, {'samplers': samplers, 'parameters': self.state_dict()}

    @classmethod
    def _from_state(cls, options: Any, state: Any, device: torch.device | None) -> Any:
        model = cls(**options)
        for path, values in state['samplers'].items():
            sampler: Any = model.get_submodule(path)
            if 'budget' in values:
                # The new model's may not suit the saved options, and is set last.
                sampler.budget = Budget()
            for name in sorted(values, key='budget'.__eq__):
                setattr(sampler, name, values[name])
        # Assigned, to keep the dtypes of the saved weights.
        model.load_state_dict(state['parameters'], assign=True)
        return model.to(device or 'cpu').eval()


def _record_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor to record all its arguments by name."""
    signature = inspect.signature(init)
    parameters = signature.parameters.values()
    options_name = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), '')

    @functools.wraps(init)
    def init_and_record(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *items = bound.arguments.items()
        arguments = dict(items)
        options = arguments.pop(options_name, {})
        # A subclass's replace those of its base.
        self._init_arguments = arguments | options

    return init_and_record


def _plain(name: str, value: Any) -> Any:
    """Convert a value to plain types; raise if that is not possible."""
    value = plain_value(value)
    if isinstance(value, tuple):  # A named tuple would refer to its class.
        value = tuple(value)
    if isinstance(value, dict | tuple | list):
        items = [*value, *value.values()] if isinstance(value, dict) else value
        for item in items:
            _plain(name, item)
    elif not isinstance(value, PLAIN):
        raise TypeError(
            f"'{name}' must be a plain value to be saved: a str, a number, a tuple or "
            f'a dict of them (got {type(value).__name__})'
        )
    return value
