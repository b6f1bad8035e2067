"""Checkpoints of training, for any number of processes.

Unlike in :mod:`torch.distributed.checkpoint`, loading needs no pickle.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torch_geometric_gsl._checks import check_count, check_flag
from torch_geometric_gsl._files import read_file, restore_errors, write_file
from torch_geometric_gsl.distributed.collective import is_joined


def save_checkpoint(
    path: str | Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    step: int = 0,
    *,
    generator: torch.Generator | None = None,
    group: Any = None,
    **stateful: Any,
) -> None:
    r"""Save the state of training and of the global random generators to a file.

    The first rank writes the file, and any number of ranks can resume from it. It is
    replaced atomically: if the process is killed, the previous file remains. The other
    ranks wait for the first.

    Args:
        path (str or pathlib.Path): The file, in a folder that all ranks can read.
        model (torch.nn.Module): The model.
        optimizer (torch.optim.Optimizer, optional): The optimizer.
            (default: :obj:`None`)
        step (int, optional): The number of completed steps. (default: :obj:`0`)
        generator (torch.Generator, optional): Another source of randomness.
            (default: :obj:`None`)
        group (torch.distributed.ProcessGroup, optional): The ranks; all processes if
            :obj:`None`. (default: :obj:`None`)
        **stateful (optional): More objects with a :obj:`state_dict`, such as a
            :obj:`scheduler`.

    Raises:
        TypeError: If an object has no state.
        ValueError: If a state holds anything other than tensors and plain values, such
            as a NumPy learning rate.
        OSError: If the first rank cannot write the file.

    Example:
        >>> import tempfile
        >>> model = torch.nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f'{folder}/last.pt', model, step=7)
        ...     load_checkpoint(f'{folder}/last.pt', model)
        7
    """
    check_count(step, 'step', minimum=0)
    objects = _stateful_objects(model, optimizer, stateful)
    if not is_joined() or dist.get_rank(group) == 0:
        random = {'cpu': torch.get_rng_state()}
        if torch.cuda.is_available():
            random['cuda'] = torch.cuda.get_rng_state()
        if generator is not None:
            random['generator'] = generator.get_state()
        states = {name: object_.state_dict() for name, object_ in objects.items()}
        state = {'parts': states, 'random': random}
        write_file(path, 'checkpoint', {'step': int(step)}, state)
    _wait(group)


def load_checkpoint(
    path: str | Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    generator: torch.Generator | None = None,
    group: Any = None,
    missing_ok: bool = False,
    **stateful: Any,
) -> int:
    r"""Load a file of :func:`save_checkpoint`, which each rank reads.

    No code is executed (:obj:`torch.load(..., weights_only=True)`), and either
    everything is loaded or nothing. The arguments are those of
    :func:`save_checkpoint`; with :obj:`missing_ok`, a missing file changes nothing.

    Returns:
        int: The number of completed steps, 0 without a file.

    Raises:
        OSError: If the file is missing or damaged.
        ValueError: If it holds the state of other objects.
    """
    check_flag(missing_ok, 'missing_ok')
    objects = _stateful_objects(model, optimizer, stateful)
    step = 0
    if not missing_ok or Path(path).exists():
        content = read_file(path, ['checkpoint'])
        with restore_errors(path, content):
            states = content['state']['parts']
            random = content['state']['random']
            # All or nothing; copied together, as a scheduler refers to its optimizer.
            for name, twin in copy.deepcopy(objects).items():
                twin.load_state_dict(states[name])
            torch.Generator().set_state(random['cpu'])
            if generator is not None:
                torch.Generator(generator.device).set_state(random['generator'])
            step = int(content['options']['step'])
        for name, object_ in objects.items():
            object_.load_state_dict(states[name])
        torch.set_rng_state(random['cpu'])
        if 'cuda' in random and torch.cuda.is_available():
            torch.cuda.set_rng_state(random['cuda'])
        if generator is not None:
            generator.set_state(random['generator'])
    _wait(group)
    return step


def _stateful_objects(
    model: Any, optimizer: Any, stateful: dict[str, Any]
) -> dict[str, Any]:
    """Return the objects with a state, by name."""
    objects = {'model': model, **stateful}
    if optimizer is not None:
        objects['optimizer'] = optimizer
    for name, object_ in objects.items():
        if not hasattr(object_, 'state_dict'):
            raise TypeError(
                f"'{name}' must have a method 'state_dict' "
                f'(got {type(object_).__name__})'
            )
    return objects


def _wait(group: Any) -> None:
    """Wait until all ranks are here, so that none reads an older or a newer file."""
    if is_joined():
        dist.barrier(group)
