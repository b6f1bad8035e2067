"""What the commands have in common: arguments, limits, and plain messages."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from execute import limit_memory
from settings import BROUGHT
from torch_geometric.data import Data
from tuned import RESULTS

from torch_geometric_gsl.datasets import DATASETS, load_dataset

FAILED = 'runs failed: error.txt in their folders says why'
#: Where Linux tells how many bytes the processes of a container may use.
CONTAINER_LIMITS = (
    Path('/sys/fs/cgroup/memory.max'),
    Path('/sys/fs/cgroup/memory/memory.limit_in_bytes'),
)

#: Data sets that could not be read or downloaded, which no run tries again.
_UNREADABLE: dict[tuple[str, str | None], OSError] = {}


@functools.lru_cache(maxsize=1)
def load(dataset: str, label: str | None) -> Data:
    key = dataset, label
    if key in _UNREADABLE:
        raise _UNREADABLE[key]
    try:
        return load_dataset(dataset, **({} if label is None else {'label': label}))
    except OSError as error:
        _UNREADABLE[key] = error
        raise


def check_files(datasets: Iterable[str], label: str | None) -> None:
    """Reads files that the user brings, before any run is begun."""
    files = [name for name in dict.fromkeys(datasets) if name not in DATASETS]
    if label is not None and not files:
        raise ValueError(f"'label' is the column of a file (got {label!r} without one)")
    for file in files:
        load(file, label)
    if BROUGHT in datasets:
        load(BROUGHT, None)


def told_plainly(main: Callable[[], None]) -> Callable[[], None]:
    """Ends the program with the text of what does not fit, instead of a traceback."""

    @functools.wraps(main)
    def call() -> None:
        try:
            main()
        except (MemoryError, OSError, TypeError, ValueError) as error:
            text = str(error) or 'too little memory'
            raise SystemExit(f'{type(error).__name__}: {text}') from error

    return call


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'must be a positive integer (got {text!r})')
    return int(text)


def amount(text: str, least: float = math.ulp(0.0)) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        kind = 'positive' if least > 0 else 'non-negative'
        raise argparse.ArgumentTypeError(f'must be a {kind} number (got {text!r})')
    return number


def usable_device(text: str) -> str:
    try:
        # With the number of the device, which not every function of PyTorch fills in.
        return str(torch.empty(1, device=text).device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f'{text!r} cannot be used: {reason}') from None


def memory_of(device: str) -> float:
    """Gigabytes."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.get_device_properties(device).total_memory / 1e9
    total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    for path in CONTAINER_LIMITS:
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            total = min(total, int(text))
    return 0.9 * total / 1e9


def add_threads(parser: argparse.ArgumentParser) -> None:
    threads, add = torch.get_num_threads(), parser.add_argument
    add('--threads', type=positive, default=threads, help=f'of the CPU ({threads})')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command that runs something can be told."""
    add = parser.add_argument
    add('--label', help='column of the labels, for files')
    add('--results', type=Path, default=RESULTS, help='folder (that of this program)')
    add('--device', type=usable_device, default='cpu', help='such as cuda:0 (cpu)')
    add_threads(parser)
    add(
        '--memory-limit',
        type=amount,
        metavar='GB',
        help='beyond which a run counts as out of memory (90 %% of all, all of a GPU)',
    )
    add(
        '--checkpoint-seconds',
        type=functools.partial(amount, least=0.0),
        default=30.0,
        metavar='SECONDS',
        help='least time between two checkpoints of a run (30)',
    )
    add('--tensorboard', action='store_true', help='write logs into run folders')


def prepare(args: argparse.Namespace) -> None:
    """Sets threads and limits of this process."""
    warnings.filterwarnings('ignore', 'Sparse CSR')
    torch.set_num_threads(args.threads)
    if args.tensorboard and importlib.util.find_spec('tensorboard') is None:
        raise SystemExit('--tensorboard needs: pip install tensorboard')
    if args.memory_limit is None:
        args.memory_limit = memory_of(args.device)
    if torch.device(args.device).type == 'cuda':
        share = min(1.0, args.memory_limit / memory_of(args.device))
        torch.cuda.set_per_process_memory_fraction(share, args.device)
    else:
        limit_memory(args.memory_limit)
