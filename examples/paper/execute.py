"""Executes one run from start or checkpoint to its result."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from config import RunConfig
from files import read_json, remove_drafts, write_json, write_tensors
from shared import environment
from store import Record, Store
from torch_geometric.data import Data
from training import Outcome, Run, Watcher

# The seed whose trained model is kept: figures show it.
KEPT_SEED = 0
# What PyTorch says when the operating system gives no memory.
NO_MEMORY = (
    *("can't allocate memory", 'not enough memory', 'Cannot allocate memory'),
    *('bad_alloc', "can't start new thread"),
)


def execute(
    config: RunConfig,
    read: Callable[[], Data],
    store: Store,
    watch: Watcher,
    *,
    resumed: Callable[[int], None] = lambda epochs: None,
    device: str = 'cpu',
    memory_limit: float | None = None,
    checkpoint_seconds: float = 30.0,
    is_alone: bool = True,
) -> Record:
    """Runs, and writes the result last: without it the run is not finished.

    Args:
        config: The run, which this process has claimed.
        read: Reads its data.
        store: Where its folder is.
        watch: Called after each epoch.
        resumed: Called with the number of epochs of the checkpoint, if there is one.
        device: Where the model runs.
        memory_limit: The memory there is, in GB, for a run that needs more.
        checkpoint_seconds: Least time between two checkpoints.
        is_alone: Whether it is the only run of this process. Lack of memory is then
            its result.

    Raises:
        MemoryError: If there is too little memory, and others may have used some.
    """
    folder = store.folder(config)
    remove_drafts(folder)
    write_json(folder / 'config.json', config.to_dict())
    about = read_json(folder / 'about.json') or {'starts': []}
    about['starts'].append(environment(device=device, time=time.strftime('%F %T')))
    write_json(folder / 'about.json', about)
    try:
        data = read()
        run = Run(config, data, folder, device, checkpoint_seconds)
        if run.resume():
            resumed(run.epoch)
        outcome, cost = _train(run, data, watch)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        if not is_alone:
            raise MemoryError(str(error)) from None
        outcome = {'status': 'oom', 'detail': 'OOM'}
        if memory_limit is not None:
            digits = '.0f' if memory_limit >= 10 else '.2g'
            outcome['detail'] += f' at {memory_limit:{digits}} GB'
            outcome['memory_limit'] = memory_limit
        cost = {}
        gc.collect()
    write_json(folder / 'about.json', about | cost)
    write_json(folder / 'result.json', {'config': config.to_dict(), **outcome})
    (folder / 'checkpoint.pt').unlink(missing_ok=True)
    record = store.record(config)
    assert record is not None
    return record


def _train(run: Run, data: Data, watch: Watcher) -> tuple[Outcome, dict[str, Any]]:
    status = run.train(watch)
    run.save()
    if run.config.seed == KEPT_SEED:
        write_tensors(run.folder / 'model.pt', run.best_state)
    cost: dict[str, Any] = {
        'seconds': round(run.seconds, 3),
        'parameters': sum(p.numel() for p in run.model.parameters()),
        'threads': torch.get_num_threads(),
    }
    if run.x.is_cuda:
        cost['peak_megabytes'] = torch.cuda.max_memory_allocated(run.x.device) / 1e6
    return {'status': status, **run.score(data)}, cost


def _is_out_of_memory(error: Exception) -> bool:
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(text in str(error) for text in NO_MEMORY)


def limit_memory(gigabytes: float) -> None:
    """Makes allocations beyond a limit fail, instead of the system killing us.

    An infinite one is as before.
    """
    if not sys.platform.startswith('linux'):
        return
    import resource

    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = most if math.isinf(gigabytes) else int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, most))
