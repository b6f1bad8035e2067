"""Checkpoints of a training on any number of processes.

All ranks hold the same state, so that one file holds it. Those of
:mod:`torch.distributed.checkpoint` are for states that are cut into parts, and are
unpickled, which executes what a file says.
"""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torch_geometric_gsl._checks import check_count, check_flag, check_type
from torch_geometric_gsl._files import load_tensors, write_tensors
from torch_geometric_gsl.ops.collective import first_rank, is_joined

#: What a checkpoint looks like; another number is another form.
FORMAT = 1


def save_checkpoint(
    path: str | Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    step: int = 0,
    *,
    generator: torch.Generator | None = None,
    group: Any = None,
    **others: Any,
) -> None:
    r"""Write the state of a training to a file, on the first rank.

    All ranks hold the same state, so it is written once, and any number of ranks can go
    on from it. The file is replaced as a whole: a process that is killed meanwhile
    leaves the former one. It holds the numbers of the global random generators, too.

    Args:
        path (str or pathlib.Path): The file; the first rank reads it again.
        model (torch.nn.Module): The model.
        optimizer (torch.optim.Optimizer, optional): The optimizer.
            (default: :obj:`None`)
        step (int, optional): The number of steps that are done. (default: :obj:`0`)
        generator (torch.Generator, optional): A source of randomness beside the global
            ones. (default: :obj:`None`)
        group (torch.distributed.ProcessGroup, optional): The ranks; all processes if
            :obj:`None`. (default: :obj:`None`)
        **others (optional): More objects with a :obj:`state_dict`, such as a
            :obj:`scheduler`.

    Raises:
        TypeError: If :obj:`step` is not an integer, or an object has no state.
        ValueError: If :obj:`step` is negative, or a state holds something else than
            tensors and plain values, such as a learning rate of NumPy's.
        OSError: If the first rank cannot write the file; all ranks raise it.

    Example:
        >>> import tempfile
        >>> model = torch.nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f'{folder}/last.pt', model, step=7)
        ...     load_checkpoint(f'{folder}/last.pt', model)
        7
    """
    check_count(step, 'step', minimum=0)
    parts = _parts(model, optimizer, others)

    def write() -> None:
        random = {'cpu': torch.get_rng_state()}
        if torch.cuda.is_available():
            random['cuda'] = torch.cuda.get_rng_state()
        if generator is not None:
            random['generator'] = generator.get_state()
        content = {
            'format': FORMAT,
            'step': int(step),
            'kinds': _kinds(parts),
            'state': {name: part.state_dict() for name, part in parts.items()},
            'random': random,
        }
        write_tensors(content, path)

    _on_first(write, group)


def load_checkpoint(
    path: str | Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    generator: torch.Generator | None = None,
    group: Any = None,
    missing_ok: bool = False,
    **others: Any,
) -> int:
    r"""Go on from a file that :func:`save_checkpoint` wrote, on all ranks.

    The first rank reads the file and sends it to the others. Nothing in it is executed
    (:obj:`torch.load(..., weights_only=True)`).

    Args:
        path (str or pathlib.Path): The file.
        model (torch.nn.Module): The model.
        optimizer (torch.optim.Optimizer, optional): The optimizer.
            (default: :obj:`None`)
        generator (torch.Generator, optional): A source of randomness beside the global
            ones, which are set as well. (default: :obj:`None`)
        group (torch.distributed.ProcessGroup, optional): The ranks; all processes if
            :obj:`None`. (default: :obj:`None`)
        missing_ok (bool, optional): If :obj:`True`, all is left as it is where there is
            no file yet. (default: :obj:`False`)
        **others (optional): More objects, by the names under which they were saved.

    Returns:
        int: The number of steps that were done, 0 without a file.

    Raises:
        OSError: If there is no such file, or it is damaged, or the first rank cannot
            read it.
        ValueError: If it holds the state of other objects, or has another form.
    """
    check_flag(missing_ok, 'missing_ok')
    path = Path(path)
    content = _on_first(lambda: path.read_bytes() if path.exists() else None, group)
    if content is None:
        if missing_ok:
            return 0
        raise FileNotFoundError(f"'{path}' does not exist: it should be a checkpoint")
    found = _checked(content, path)
    parts = _parts(model, optimizer, others)
    state, random, kinds = found['state'], found['random'], _kinds(parts)
    if missing := sorted(parts.keys() - state.keys()):
        raise ValueError(f"'{path}' must hold {missing} (got {sorted(state)})")
    if generator is not None and 'generator' not in random:
        raise ValueError(f"'{path}' must hold the state of a 'generator' (got none)")
    for name, kind in kinds.items():
        if (other := found['kinds'].get(name)) != kind:
            raise ValueError(f"'{path}' must hold the state of {kind} (got {other})")
    # All or nothing; together, as a scheduler keeps its optimizer.
    copies = copy.deepcopy(parts)
    try:
        for name, part in copies.items():
            part.load_state_dict(state[name])
        for numbers in random.values():
            check_type(numbers, torch.Tensor, 'random', 'a torch.Tensor')
        torch.Generator().set_state(random['cpu'])
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        text = f"'{path}' must hold the state of such objects: {error}"
        raise ValueError(text) from error
    for name, part in parts.items():
        part.load_state_dict(state[name])
    _set_random_numbers(random, generator)
    return int(found['step'])


def _checked(content: bytes, path: str | Path) -> dict[str, Any]:
    """Return what a file holds, which must be whole and of the known form."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            damaged = file.testzip()
    except zipfile.BadZipFile as error:
        raise OSError(f"'{path}' holds no checkpoint: {error}") from error
    if damaged is not None:
        raise OSError(f"'{path}' holds no checkpoint: '{damaged}' in it is damaged")
    found = load_tensors(io.BytesIO(content), path, 'checkpoint')
    if (form := found.get('format')) != FORMAT:
        raise ValueError(f"'{path}' must have the format {FORMAT} (got {form!r})")
    forms = {'step': int, 'kinds': dict, 'state': dict, 'random': dict}
    for name, kind in forms.items():
        if not isinstance(value := found.get(name), kind):
            raise ValueError(
                f"'{path}' must hold a {kind.__name__} as {name!r} "
                f'(got {type(value).__name__})'
            )
    check_count(found['step'], 'step', minimum=0)
    return found


def _parts(model: Any, optimizer: Any, others: dict[str, Any]) -> dict[str, Any]:
    """Return the objects whose state is kept, by their names."""
    parts = {'model': model, **others}
    if optimizer is not None:
        parts['optimizer'] = optimizer
    for name, part in parts.items():
        if not hasattr(part, 'state_dict'):
            raise TypeError(
                f"'{name}' must have a method 'state_dict' (got {type(part).__name__})"
            )
    return parts


def _kinds(parts: dict[str, Any]) -> dict[str, str]:
    """Return the names of the classes; a model may be wrapped in another."""
    return {
        name: type(part).__name__ for name, part in parts.items() if name != 'model'
    }


def _on_first(job: Callable[[], Any], group: Any) -> Any:
    """Return on all ranks what a job on the first returns; it raises on all as well."""
    if not is_joined():
        return job()
    box: list[Any] = [None, None]
    error = None
    if dist.get_rank(group) == 0:
        try:
            box[0] = job()
        except Exception as raised:
            # Whatever it is, the others must hear of it before it is raised here: files
            # fail in many ways, and objects of the caller are asked for their state.
            error = raised
            box[1] = f'{type(raised).__name__}: {raised}'
    dist.broadcast_object_list(box, first_rank(group), group=group)
    if error is not None:
        raise error
    if box[1] is not None:
        raise OSError(f'the first rank has failed: {box[1]}')
    return box[0]


def _set_random_numbers(
    random: dict[str, torch.Tensor], generator: torch.Generator | None
) -> None:
    torch.set_rng_state(random['cpu'])
    if 'cuda' in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random['cuda'])
    if generator is not None and 'generator' in random:
        generator.set_state(random['generator'])
