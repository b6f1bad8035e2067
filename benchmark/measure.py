"""Measure time and peak memory of a step, and run it in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import re
import sys
import time
import warnings
from collections.abc import Callable, Hashable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from workloads import Workload

TASKS = ('forward', 'forward+backward', 'evaluation')
LEAST_ROUNDS = 3
M_MMAP_THRESHOLD = -3  # From malloc.h.
Step = Callable[[], None]
Key = TypeVar('Key', bound=Hashable)


def make_step(model: torch.nn.Module, workload: Workload, task: str) -> Step:
    """Return a training step without the optimizer, or an evaluation."""

    def step() -> None:
        is_training = task != 'evaluation'
        model.train(is_training)
        with torch.set_grad_enabled(is_training):
            out = model(workload.x)
            if not is_training:
                return
            loss = F.cross_entropy(out, workload.y)
            if task == 'forward+backward':
                loss.backward()
                model.zero_grad(set_to_none=True)

    return step


def interleave(
    steps: dict[Key, Step], repeats: int, limit: float, *, is_warm: bool = False
) -> dict[Key, list[float]]:
    """Time each step in each round, after an uncounted round unless `is_warm`.

    A round runs every step once and starts one step later than the previous round, so
    that a slow phase of the machine affects all steps. Of a step below a second the
    second of two runs counts, as in training, where it follows its like. After
    :obj:`limit` seconds no further round starts, once there are three.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in steps}
    keys, begin = list(steps), time.perf_counter()
    for turn in range(int(is_warm), repeats + 1):
        if turn > LEAST_ROUNDS and time.perf_counter() - begin > limit:
            break
        start = turn % max(1, len(keys))
        for key in keys[start:] + keys[:start]:
            gc.collect()
            taken = seconds_of(steps[key])
            if taken < 1:
                taken = seconds_of(steps[key])
            if turn > 0:
                seconds[key].append(taken)
    return seconds


def seconds_of(step: Callable[[], object]) -> float:
    """Return the seconds of a step; with one thread, processor time, which other
    processes do not lengthen.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    step()
    return clock() - start


def peak_memory(step: Step, warm_up: Step | None = None) -> float | None:
    """Return the peak megabytes of a step above the memory in use before it.

    The step runs twice: permanent allocations of the first call, such as compiled code,
    do not count. A shorter step may serve as the warm-up.

    The Linux kernel records the largest resident size of a process exactly and resets
    it on request; on other systems the result is :obj:`None`.
    """
    if not sys.platform.startswith('linux'):
        return None
    libc = ctypes.CDLL(None)
    # Freed memory that the allocator keeps would hide memory of the step, so every
    # tensor of at least 64 kB is returned to the system as soon as it is freed.
    libc.mallopt(M_MMAP_THRESHOLD, 2**16)
    (warm_up or step)()
    gc.collect()
    libc.malloc_trim(0)
    before = _resident('VmRSS')
    Path('/proc/self/clear_refs').write_text('5')
    step()
    return (_resident('VmHWM') - before) / 1e6


def _resident(field: str) -> int:
    status = Path('/proc/self/status').read_text()
    if (match := re.search(rf'^{field}:\s*(\d+)', status, re.M)) is None:
        raise OSError(f"'/proc/self/status' must hold a field {field} (got none)")
    return 1024 * int(match[1])


def answer(
    function: Callable[[dict[str, Any]], Any],
    request: dict[str, Any],
    connection: Connection,
) -> None:
    """Run one request and send its result."""
    warnings.filterwarnings('ignore', 'Sparse (CSR|invariant)')
    torch.set_num_threads(request['threads'])
    connection.send(function(request))


def ask(
    function: Callable[[dict[str, Any]], Any], request: dict[str, Any]
) -> tuple[Any | None, int]:
    """Run a request in a fresh process; return its result, if any, and exit status."""
    context = multiprocessing.get_context('forkserver')
    # Imported once, by the server process from which all others are forked. Not our
    # package: the server would search for it in the working directory first.
    context.set_forkserver_preload(['torch_geometric'])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(function, request, sender))
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:  # The process ended without a result.
        result = None
    process.join()
    return result, process.exitcode or 0
