"""What the commands have in common: arguments, limits, and plain messages."""

from __future__ import annotations

import argparse
import functools
import math
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from execute import limit_memory
from torch_geometric.data import Data
from tuned import RESULTS

from torch_geometric_gsl.datasets import DATASETS, load_dataset

FAILED = 'runs failed: error.txt in their folders says why'


@functools.lru_cache(maxsize=1)
def load(dataset: str, label: str | None) -> Data:
    return (
        load_dataset(dataset) if label is None else load_dataset(dataset, label=label)
    )


def check_files(files: Iterable[tuple[str, str | None]]) -> None:
    """Reads a user's files with their labels, before any run is begun."""
    for dataset, label in sorted(set(files), key=str):
        if dataset not in DATASETS:
            load(dataset, label)


def told_plainly(main: Callable[[], None]) -> Callable[[], None]:
    """Ends the program with the text of what does not fit, instead of a traceback."""

    @functools.wraps(main)
    def call() -> None:
        try:
            main()
        except (OSError, TypeError, ValueError) as error:
            raise SystemExit(f'{type(error).__name__}: {error}') from error

    return call


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'must be a positive integer (got {text!r})')
    return int(text)


def amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f'must be a positive number (got {text!r})')
    return number


def usable_device(text: str) -> str:
    try:
        torch.empty(1, device=text)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f'{text!r} cannot be used: {reason}') from None
    return text


def memory_of(device: str) -> float:
    """Gigabytes."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.get_device_properties(device).total_memory / 1e9
    return 0.9 * os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command that runs something can be told."""
    parser.add_argument('--label', help='column of the labels, for files')
    parser.add_argument('--results', type=Path, default=RESULTS)
    parser.add_argument('--device', type=usable_device, default='cpu')
    parser.add_argument('--threads', type=positive, default=torch.get_num_threads())
    parser.add_argument(
        '--memory-limit',
        type=amount,
        help='GB, beyond which a run counts as out of memory (CPU: 90 %% of all)',
    )
    parser.add_argument('--checkpoint-seconds', type=float, default=30.0)
    parser.add_argument('--tensorboard', action='store_true')


def prepare(args: argparse.Namespace) -> None:
    """Sets threads and limits of this process."""
    warnings.filterwarnings('ignore', 'Sparse CSR')
    torch.set_num_threads(args.threads)
    if args.memory_limit is None:
        args.memory_limit = memory_of(args.device)
    if args.device == 'cpu':
        limit_memory(args.memory_limit)
