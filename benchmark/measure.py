"""Measure time and peak memory of a step."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from workloads import Workload

TASKS = ('forward', 'forward+backward', 'evaluation')
LEAST_ROUNDS = 3
M_MMAP_THRESHOLD = -3  # Of malloc.h.
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
    steps: dict[Key, Step], repeats: int, limit: float
) -> dict[Key, list[float]]:
    """Time each step in each round, after one round that is not counted.

    A round runs every step once and starts one step later than the round before, so
    that a slow spell of the machine meets all of them. After :obj:`limit` seconds no
    further round begins, once there are three.
    """
    seconds: dict[Key, list[float]] = {key: [] for key in steps}
    keys, begin = list(steps), time.perf_counter()
    for number in range(repeats + 1):
        if number > LEAST_ROUNDS and time.perf_counter() - begin > limit:
            break
        first = number % max(1, len(keys))
        for key in keys[first:] + keys[:first]:
            gc.collect()
            start = time.perf_counter()
            steps[key]()
            if number > 0:
                seconds[key].append(time.perf_counter() - start)
    return seconds


def peak_memory(
    step: Step, warm_up: Step | None = None, setup: Step | None = None
) -> float | None:
    """Return the megabytes that a step takes above what was allocated before it.

    The step runs twice: what its first call allocates for good, such as compiled code,
    belongs to no step. A shorter one may do as the warm-up. What :obj:`setup` leaves,
    such as a model, counts as well, but not what it takes on its way.

    The kernel keeps the largest resident size of a process exactly, and forgets it on
    request; other systems than Linux do not, and give :obj:`None`.
    """
    if not sys.platform.startswith('linux'):
        return None
    libc = ctypes.CDLL(None)
    # Freed memory that the allocator holds would hide what the step takes, so every
    # tensor from 64 kB on is returned to the system as soon as it is freed.
    libc.mallopt(M_MMAP_THRESHOLD, 2**16)
    (warm_up or step)()
    gc.collect()
    libc.malloc_trim(0)
    before = _resident('VmRSS')
    if setup is not None:
        setup()
        gc.collect()
        libc.malloc_trim(0)
    Path('/proc/self/clear_refs').write_text('5')
    step()
    return (_resident('VmHWM') - before) / 1e6


def _resident(field: str) -> int:
    for line in Path('/proc/self/status').read_text().splitlines():
        name, _, value = line.partition(':')
        if name == field:
            return 1024 * int(value.split()[0])
    raise OSError(f"'/proc/self/status' must hold a field {field} (got none)")
