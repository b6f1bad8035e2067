"""Run functions of a test file on several ranks, processes that gloo joins."""

import importlib.util
import os
import sys
import traceback
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from server import CONTEXT, ensure_running

#: After so many seconds without an answer of the others a rank gives up.
TIMEOUT = 60


@contextmanager
def group_of_one(folder):
    """Make a group of this process alone, whose messages go to itself."""
    store = f'file://{folder}/store'
    dist.init_process_group('gloo', init_method=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def blocks(total, world_size, split='uneven'):
    """Return the number of rows of each rank."""
    even = [total // world_size + (r < total % world_size) for r in range(world_size)]
    if split == 'even':
        return even
    if split == 'uneven':
        return [even[0] - 3, *even[1:-1], even[-1] + 3]
    return [0, *even[1:-1], even[-1] + even[0]]  # 'empty'


def run_ranks(job, world_size, folder, *args):
    """Call `job(rank, *args)` on ranks, and return what each of them returns.

    The job is a function at the level of its module. What it raises is returned as its
    text, after the name of its class.
    """
    ensure_running()
    path = job.__code__.co_filename
    processes = [
        CONTEXT.Process(
            target=_work, args=(path, job.__name__, rank, world_size, str(folder), args)
        )
        for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [_result(folder / f'{rank}.pt') for rank in range(world_size)]


def _result(path):
    return torch.load(path, weights_only=False) if path.exists() else None


def _work(path, name, rank, world_size, folder, args):
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, 'w')  # noqa: SIM115
    spec = importlib.util.spec_from_file_location('job', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dist.init_process_group(
        'gloo',
        init_method=f'file://{folder}/store',
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=TIMEOUT),
    )
    torch.manual_seed(12345)
    try:
        result = getattr(module, name)(rank, *args)
    except Exception as error:
        result = f'{type(error).__name__}: {error}'
        Path(f'{folder}/{rank}.txt').write_text(traceback.format_exc())
    torch.save(result, f'{folder}/{rank}.part')
    os.replace(f'{folder}/{rank}.part', f'{folder}/{rank}.pt')
    if not isinstance(result, str):
        dist.destroy_process_group()
