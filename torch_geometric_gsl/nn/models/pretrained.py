"""Models in folders, and on the model hub."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.nn import model_hub
from torch_geometric.nn.dense.linear import is_uninitialized_parameter
from torch_geometric.nn.model_hub import (
    CONFIG_NAME,
    MODEL_WEIGHTS_NAME,
    PyGModelHubMixin,
)

from torch_geometric_gsl._files import (
    plain_value,
    read_tensors,
    replacing,
    write_tensors,
)

#: What the files of a folder look like; another number is another form.
FORMAT = 1
_KEYS = {'format', 'class', 'arguments', 'sha256'}


class Pretrained(PyGModelHubMixin):  # type: ignore[misc, unused-ignore]
    r"""Save a model to a folder and load it from there, as
    :class:`torch_geometric.nn.model_hub.PyGModelHubMixin` does, whose place it takes.

    A folder holds :obj:`config.json`, the arguments of the constructor, and
    :obj:`model.pth`, the :obj:`state_dict`. They are read without executing anything:
    classes are found by their names among those that Python knows already, weights by
    :obj:`torch.load(..., weights_only=True)`. Folders need no other library; the model
    hub needs :obj:`huggingface_hub`.

    Example:
        >>> import tempfile
        >>> from torch_geometric_gsl import GSLNet
        >>> x, model = torch.randn(50, 16), GSLNet(16, 32, 2, 7).eval()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_pretrained(folder)
        ...     again = GSLNet.from_pretrained(folder)
        >>> torch.equal(again(x), model(x))
        True
    """

    _given: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if '__init__' in cls.__dict__:
            # Wrapped, so that the class keeps the signature of its constructor.
            cls.__init__ = _noting(cls.__init__)  # type: ignore[method-assign]

    def save_pretrained(  # type: ignore[override, unused-ignore]
        self,
        save_directory: str | Path,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        r"""Write the model to a folder.

        What was set on a module after its construction, beside its :obj:`state_dict`,
        is not written.

        Args:
            save_directory (str or pathlib.Path): The folder, which is made if there is
                none. Each file is replaced as a whole.
            push_to_hub (bool, optional): Whether the model goes to the model hub, too.
                (default: :obj:`False`)
            repo_id (str, optional): Its name there; by default that of the folder.
                (default: :obj:`None`)
            **kwargs (optional): Arguments of :meth:`push_to_hub`.

        Raises:
            TypeError: If an argument of the model's constructor is no plain value, such
                as a module.
            ValueError: If the model does not know its :obj:`in_channels` yet.
            ImportError: If :obj:`push_to_hub` is set without huggingface_hub.
        """
        if push_to_hub:
            _check_hub()
        elif unknown := kwargs.keys() - {'config', 'model_card_kwargs'}:
            # These two come from `push_to_hub`, and say what is written in any case.
            raise TypeError(f"'push_to_hub' must be set (got {sorted(unknown)})")
        model: Any = self
        config = {
            'format': FORMAT,
            'class': type(self).__name__,
            'arguments': {k: _encoded(k, v) for k, v in self._given.items()},
        }
        if any(map(is_uninitialized_parameter, model.parameters())):
            raise ValueError(
                "'in_channels' must be known before a model is saved (got -1): call "
                'the model once'
            )
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(model.state_dict(), folder / MODEL_WEIGHTS_NAME)
        # Last, because it tells whether the weights are those that belong to it.
        config['sha256'] = _digest(folder / MODEL_WEIGHTS_NAME)
        with replacing(folder / CONFIG_NAME) as draft:
            draft.write_text(json.dumps(config, indent=2) + '\n', encoding='utf-8')
        if not push_to_hub:
            return None
        return self.push_to_hub(repo_id or folder.resolve().name, **kwargs)

    @classmethod
    def from_pretrained(  # type: ignore[override, unused-ignore]
        cls,
        pretrained_model_name_or_path: str | Path,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | None = None,
        local_files_only: bool = False,
        *,
        revision: str | None = None,
        map_location: str | torch.device = 'cpu',
    ) -> Any:
        r"""Return a model that :meth:`save_pretrained` wrote, in evaluation mode.

        Args:
            pretrained_model_name_or_path (str or pathlib.Path): The folder, or the name
                of a model on the model hub.
            force_download (bool, optional): Whether to download a model of the hub that
                is at hand. (default: :obj:`False`)
            token (str or bool, optional): The token for the hub.
                (default: :obj:`None`)
            cache_dir (str, optional): Where downloads are kept. (default: :obj:`None`)
            local_files_only (bool, optional): Whether to download nothing.
                (default: :obj:`False`)
            revision (str, optional): The revision of a model of the hub.
                (default: :obj:`None`)
            map_location (str or torch.device, optional): The device.
                (default: :obj:`"cpu"`)

        Raises:
            OSError: If there is no such model, or a file is damaged.
            ValueError: If it is a model of another class, or of another form.
            ImportError: If it is not a folder, and huggingface_hub is missing.
        """
        if Path(pretrained_model_name_or_path).is_dir():
            names = (CONFIG_NAME, MODEL_WEIGHTS_NAME)
            files = [Path(pretrained_model_name_or_path) / name for name in names]
        elif (
            isinstance(pretrained_model_name_or_path, Path)
            or Path(pretrained_model_name_or_path).is_absolute()
        ):
            raise FileNotFoundError(
                f"'{pretrained_model_name_or_path}' is not a folder with a saved model"
            )
        else:
            _check_hub(pretrained_model_name_or_path)
            files = [
                Path(
                    model_hub.hf_hub_download(
                        repo_id=pretrained_model_name_or_path,
                        filename=name,
                        revision=revision,
                        cache_dir=cache_dir,
                        force_download=force_download,
                        token=token,
                        local_files_only=local_files_only,
                    )
                )
                for name in (CONFIG_NAME, MODEL_WEIGHTS_NAME)
            ]
        config, weights = files
        return _load(cls, config, weights, map_location)


def _load(cls: Any, config: Path, weights: Path, device: Any) -> Any:
    content = _read_config(config)
    known = {kind.__name__: kind for kind in _concrete(cls)}
    kind = known.get(content['class'])
    if kind is None:
        raise ValueError(
            f"'{config}' holds a {content['class']}, not one of {sorted(known)}"
        )
    if _digest(weights) != content['sha256']:
        raise OSError(f"'{weights}' is damaged, or does not belong to '{config}'")
    state = read_tensors(weights, 'saved weights', device)
    try:
        model = kind(**_decoded(content['arguments']))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"'{config}' has arguments that {kind.__name__} does not take: {error}"
        ) from error
    try:
        # Assigned, so that the types of the weights are those that were written.
        model.to(device).load_state_dict(state, assign=True)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"'{weights}' holds the weights of another {kind.__name__}: {error}"
        ) from error
    return model.eval()


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content: Any = json.loads(path.read_text(encoding='utf-8'))
    except ValueError as error:
        raise OSError(f"'{path}' is damaged: {error}") from error
    form = content.get('format') if isinstance(content, dict) else None
    if form is None:
        raise OSError(f"'{path}' was not written by 'save_pretrained'")
    if form != FORMAT:
        raise ValueError(
            f"'{path}' must have the format {FORMAT}, another version of the package "
            f'wrote it (got {form!r})'
        )
    is_whole = content.keys() >= _KEYS and isinstance(content['class'], str)
    if not is_whole or not isinstance(content['arguments'], dict):
        raise OSError(f"'{path}' is damaged: it must have {sorted(_KEYS)}")
    found: dict[str, Any] = content
    return found


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


def _encoded(name: str, value: Any) -> Any:
    """Return a value that JSON gives back as it was."""
    value = plain_value(value)
    try:
        again = _decoded(json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError):
        again = None
    if value is not None and (again is None or again != value):
        raise TypeError(
            f"'{name}' must be a plain value to be saved: a name, a number, a tuple or "
            f'a dict of them (got {type(value).__name__})'
        )
    return value


def _decoded(value: Any) -> Any:
    """Return what was written, where tuples have become lists."""
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    return tuple(map(_decoded, value)) if isinstance(value, list) else value


def _concrete(cls: Any) -> Iterator[Any]:
    """Yield a class and all below it that can be made."""
    if not inspect.isabstract(cls):
        yield cls
    for below in cls.__subclasses__():
        yield from _concrete(below)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _check_hub(name: str | None = None) -> None:
    """Raise unless the library of the model hub is there."""
    if model_hub.hf_hub_download is None:
        where = '' if name is None else f"'{name}' is not a folder, and "
        raise ImportError(
            f"{where}the model hub needs huggingface_hub: pip install 'huggingface_hub'"
        )
