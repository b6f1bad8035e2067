"""Measure time and peak memory of a step, and the memory speed of the machine."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from models import HIDDEN, K
from workloads import Workload

from torch_geometric_gsl import GSLNet, LatentGraphConv
from torch_geometric_gsl.nn.sampler import SamplingPlan

TASKS = ('forward', 'forward+backward', 'evaluation')
LEAST_ROUNDS = 3
M_MMAP_THRESHOLD = -3  # From malloc.h.
COPIED_BYTES = 2**28
GATHERED_ROWS = 2**20
ROWS_PER_BAG = 16
# Passes over a kept row: its inner product and sum, then in the backward pass an inner
# product, a sum and two transposed sums.
KEPT_PASSES = 6
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
    for number in range(int(is_warm), repeats + 1):
        if number > LEAST_ROUNDS and time.perf_counter() - begin > limit:
            break
        first = number % max(1, len(keys))
        for key in keys[first:] + keys[:first]:
            gc.collect()
            taken = seconds_of(steps[key])
            if taken < 1:
                taken = seconds_of(steps[key])
            if number > 0:
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
    if (found := re.search(rf'^{field}:\s*(\d+)', status, re.M)) is None:
        raise OSError(f"'/proc/self/status' must hold a field {field} (got none)")
    return 1024 * int(found[1])


def speeds(num_nodes: int) -> dict[str, float]:
    """Measure bytes per second of a large copy, and gathered rows per second."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    return {
        # Read and written.
        'copy_bytes_per_second': 2 * COPIED_BYTES / _best(lambda: target.copy_(source)),
        'gather_rows_per_second': gather_rate(num_nodes, HIDDEN),
    }


def gather_rate(num_nodes: int, width: int) -> float:
    """Return the rows per second of sums over random rows of a table [N, width]."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(num_nodes, width, generator=generator)
    shape = (GATHERED_ROWS // ROWS_PER_BAG, ROWS_PER_BAG)
    index = torch.randint(num_nodes, shape, generator=generator)
    return index.numel() / _best(lambda: F.embedding_bag(index, table, mode='sum'))


def gathered_rows(plan: SamplingPlan, num_nodes: int) -> float:
    """Return the number of rows that a step gathers: of proposals and of arrivals."""
    if plan.num_proposals is None or plan.num_arrivals is None:
        raise ValueError(f"'plan' must be that of a race (got {plan.method!r})")
    return num_nodes * K * (plan.num_proposals + KEPT_PASSES * plan.num_arrivals)


def traffic(model: GSLNet, num_nodes: int) -> dict[str, float]:
    """Return the bytes of all rows that a step gathers, and the seconds to sum them.

    A layer gathers the rows of P proposals and of M arrivals of each draw.
    """
    moved, seconds = 0.0, 0.0
    for conv in model.modules():
        if not isinstance(conv, LatentGraphConv):
            continue
        width = conv.out_channels
        rows = gathered_rows(conv.sampler.plan(torch.ones(num_nodes, width)), num_nodes)
        moved += 4 * width * rows
        seconds += rows / gather_rate(num_nodes, width)
    return {'moved_bytes': moved, 'gather_seconds': seconds}


def _best(step: Callable[[], object]) -> float:
    return min([seconds_of(step) for _ in range(6)][1:])
