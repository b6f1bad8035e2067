"""Helpers of all commands: arguments, data, memory, progress, and plain errors."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from tqdm import tqdm

from reproduction.datasets import DATASETS, load_dataset
from reproduction.experiments import Choice, RunConfig, data_key
from reproduction.record import positive
from reproduction.settings import BROUGHT, PRESETS, RESULTS
from reproduction.training import Metrics, Watcher

FAILED = 'runs failed: error.txt in their folders says why'
#: Files in which Linux reports the memory limit of a container in bytes.
CONTAINER_LIMITS = (
    Path('/sys/fs/cgroup/memory.max'),
    Path('/sys/fs/cgroup/memory/memory.limit_in_bytes'),
)
#: Data sets that could not be read or downloaded; no run tries them again.
_UNREADABLE: dict[tuple[str, str | None], OSError] = {}


@functools.lru_cache(maxsize=1)
def load(dataset: str, label: str | None) -> Data:
    key = dataset, label
    if key in _UNREADABLE:
        raise _UNREADABLE[key]
    try:
        options: dict[str, Any] = {} if label is None else {'label': label}
        return load_dataset(dataset, **options)
    except OSError as error:
        _UNREADABLE[key] = error
        raise


def check_files(datasets: Iterable[str], label: str | None) -> None:
    """Read the files of the user before any run starts."""
    files = [name for name in dict.fromkeys(datasets) if name not in DATASETS]
    if label is not None and not files:
        raise ValueError(f"'label' is the column of a file (got {label!r} without one)")
    for file in files:
        load(file, label)
    if BROUGHT in datasets:
        load(BROUGHT, None)


@contextmanager
def told_plainly() -> Iterator[None]:
    """Exit with the message of an error instead of a traceback."""
    try:
        yield
    except (MemoryError, OSError, TypeError, ValueError) as error:
        text = str(error) or 'too little memory'
        raise SystemExit(f'{type(error).__name__}: {text}') from error


def make_parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def amount(text: str, least: float = math.ulp(0.0)) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        condition = 'positive' if least > 0 else 'non-negative'
        raise argparse.ArgumentTypeError(f'must be a {condition} number (got {text!r})')
    return value


def usable_device(text: str) -> str:
    try:
        # With the index of the device, which not every function of PyTorch adds.
        return str(torch.empty(1, device=text).device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f'{text!r} cannot be used: {reason}') from None


def add_threads(parser: argparse.ArgumentParser) -> None:
    threads = torch.get_num_threads()
    add = parser.add_argument
    add('--threads', type=positive, default=threads, help=f'CPU threads ({threads})')


def add_choice(
    parser: argparse.ArgumentParser, presets: Sequence[str] = PRESETS[:3]
) -> None:
    """Add the options that select runs, except data sets and methods."""
    add = parser.add_argument
    add('--label', help='column of the labels, for files')
    add('--preset', choices=presets, default=PRESETS[0], help=f'({PRESETS[0]})')
    add('--results', type=Path, default=RESULTS, help='folder (paper/results)')


def choice_of(args: argparse.Namespace, seeds: Sequence[int]) -> Choice:
    """Return the selected runs; duplicates count once."""
    name_of = {data_key(name, args.label): name for name in args.datasets}
    datasets, methods = tuple(name_of.values()), tuple(dict.fromkeys(args.methods))
    return Choice(datasets, methods, seeds, args.preset, args.label, args.results)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands share."""
    add = parser.add_argument
    add('--device', type=usable_device, default='cpu', help='such as cuda:0 (cpu)')
    add_threads(parser)
    limit_help = 'a run beyond it is out of memory (90 %% of all, all of a GPU)'
    add('--memory-limit', type=amount, metavar='GB', help=limit_help)
    non_negative = functools.partial(amount, least=0.0)
    least = 'shortest time between two checkpoints, in seconds (30)'
    add(
        '--checkpoint-seconds', type=non_negative, default=30.0, metavar='S', help=least
    )
    add('--tensorboard', action='store_true', help='write logs into run folders')


def prepare(args: argparse.Namespace) -> None:
    """Set threads and limits of this process."""
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


def memory_of(device: str) -> float:
    """Return the gigabytes that runs may use."""
    if torch.device(device).type == 'cuda':
        return float(torch.cuda.get_device_properties(device).total_memory / 1e9)
    total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    for path in CONTAINER_LIMITS:
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            total = min(total, int(text))
    return 0.9 * total / 1e9


def limit_memory(gigabytes: float) -> None:
    """Make allocations beyond a limit fail, so that the system does not kill us.

    An infinite limit restores the previous state.
    """
    if not sys.platform.startswith('linux'):
        return
    import resource

    hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    size = hard_limit if math.isinf(gigabytes) else int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard_limit))


class Progress:
    """Progress bar over the epochs of all runs; runs that end early shorten it."""

    def __init__(self, configs: list[RunConfig]) -> None:
        self.bar = tqdm(
            total=sum(c.total_epochs for c in configs), unit='epoch', smoothing=0
        )
        self._writer: Any = None

    def watcher(self, config: RunConfig, log: Path | None) -> Watcher:
        """Show the metrics of a run, and write them for TensorBoard if requested."""
        name = Path(config.dataset).name
        self.bar.set_description(f'{name} {config.method} {config.seed}')

        def watch(metrics: Metrics) -> None:
            self.bar.update()
            epoch = int(metrics['epoch'])
            scores = {name: v for name, v in metrics.items() if name != 'epoch'}
            shown = {name: f'{value:.3f}' for name, value in scores.items()}
            self.bar.set_postfix(shown, refresh=False)
            if log is None:
                return
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter

                # A resumed run repeats the epochs after its checkpoint.
                self._writer = SummaryWriter(str(log), purge_step=epoch)
            for name, value in scores.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

        return watch

    def resumed(self, config: RunConfig, epochs: int) -> None:
        # These epochs are done, but do not count in the rate.
        self.bar.initial += epochs
        self.bar.n += epochs
        self.bar.refresh()
        self.bar.write(f'{config}: goes on after {epochs} epochs')

    def ended(self, config: RunConfig, text: str = '', epochs: int = 0) -> None:
        """Remove the epochs that a run did not need, and report how it ended."""
        self.bar.total -= config.total_epochs - epochs
        self.bar.refresh()
        if text:
            self.bar.write(f'{config}: {text}')
        if self._writer is not None:
            self._writer.close()
            self._writer = None
