"""Checkpoints of training, for any number of processes.

Unlike in :mod:`torch.distributed.checkpoint`, loading needs no pickle.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torch_geometric_gsl._checks import check_count, check_flag
from torch_geometric_gsl._files import load_tensors, write_tensors
from torch_geometric_gsl.distributed.collective import first_rank, is_joined


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
    r"""Save the state of training and of the global random generators to a file.

    The first rank writes the file, and any number of ranks can resume from it. It is
    replaced atomically: if the process is killed, the previous file remains.

    Args:
        path (str or pathlib.Path): The file, which the first rank reads to verify it.
        model (torch.nn.Module): The model.
        optimizer (torch.optim.Optimizer, optional): The optimizer.
            (default: :obj:`None`)
        step (int, optional): The number of completed steps. (default: :obj:`0`)
        generator (torch.Generator, optional): Another source of randomness.
            (default: :obj:`None`)
        group (torch.distributed.ProcessGroup, optional): The ranks; all processes if
            :obj:`None`. (default: :obj:`None`)
        **others (optional): More objects with a :obj:`state_dict`, such as a
            :obj:`scheduler`.

    Raises:
        TypeError: If an object has no state.
        ValueError: If a state holds anything other than tensors and plain values, such
            as a NumPy learning rate.
        OSError: If the first rank cannot write the file; raised on all ranks.

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
    random = {'cpu': torch.get_rng_state()}
    if torch.cuda.is_available():
        random['cuda'] = torch.cuda.get_rng_state()
    if generator is not None:
        random['generator'] = generator.get_state()

    def write() -> None:
        content = {
            'step': int(step),
            'kinds': {name: _kind(name, part) for name, part in parts.items()},
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
    r"""Load a file of :func:`save_checkpoint` on all ranks.

    The first rank reads the file and sends it to the others. No code is executed
    (:obj:`torch.load(..., weights_only=True)`), and either everything is loaded or
    nothing. The arguments are those of :func:`save_checkpoint`; with :obj:`missing_ok`,
    a missing file changes nothing.

    Returns:
        int: The number of completed steps, 0 without a file.

    Raises:
        OSError: If the file is missing or damaged, or the first rank cannot read it.
        ValueError: If it holds the state of other objects.
    """
    check_flag(missing_ok, 'missing_ok')
    path = Path(path)
    content = _on_first(lambda: path.read_bytes() if path.exists() else None, group)
    if content is None:
        if missing_ok:
            return 0
        raise FileNotFoundError(f"'{path}' must be a checkpoint (got no file)")
    found = load_tensors(io.BytesIO(content), path, 'checkpoint')
    parts = _parts(model, optimizer, others)
    try:
        for name, part in parts.items():
            kind, other = _kind(name, part), found['kinds'].get(name)
            if kind != other:
                raise ValueError(f"{kind} as '{name}' (got {other})")
        # All or nothing; copied together, as a scheduler refers to its optimizer.
        for name, twin in copy.deepcopy(parts).items():
            twin.load_state_dict(found['state'][name])
        random, step = found['random'], int(found['step'])
        torch.Generator().set_state(random['cpu'])
        if generator is not None:
            torch.Generator(generator.device).set_state(random['generator'])
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        text = f"'{path}' must hold the state of such objects: {error}"
        raise ValueError(text) from error
    for name, part in parts.items():
        part.load_state_dict(found['state'][name])
    torch.set_rng_state(random['cpu'])
    if 'cuda' in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random['cuda'])
    if generator is not None:
        generator.set_state(random['generator'])
    return step


def _parts(model: Any, optimizer: Any, others: dict[str, Any]) -> dict[str, Any]:
    """Return the objects with a state, by name."""
    parts = {'model': model, **others}
    if optimizer is not None:
        parts['optimizer'] = optimizer
    for name, part in parts.items():
        if not hasattr(part, 'state_dict'):
            raise TypeError(
                f"'{name}' must have a method 'state_dict' (got {type(part).__name__})"
            )
    return parts


def _kind(name: str, part: Any) -> str:
    """Return the class of an object, or of the model that it wraps."""
    return 'a model' if name == 'model' else type(part).__name__


def _on_first(job: Callable[[], Any], group: Any) -> Any:
    """Run a job on the first rank; return its result or raise its error on all."""
    if not is_joined():
        return job()
    box: list[Any] = [None, None]
    error = None
    if dist.get_rank(group) == 0:
        try:
            box[0] = job()
        except Exception as raised:
            # Any error: the others wait for it.
            error = raised
            box[1] = f'{type(raised).__name__}: {raised}'
    dist.broadcast_object_list(box, first_rank(group), group=group)
    if error is not None:
        raise error
    if box[1] is not None:
        raise OSError(f'the first rank failed: {box[1]}')
    return box[0]
