"""Runs what a table or figure of the paper is made of, and only what is missing.

    python examples/paper/run.py table1
    python examples/paper/run.py table1 --datasets CiteSeer --seeds 3
    python examples/paper/run.py table1 --quick --results runs/quick
    python examples/paper/run.py table1 --datasets flowers.csv --label species

Killed at any moment and started again, it goes on from the last whole checkpoint. Start
it twice, and the two processes share the work; give each half of the memory then, by
`--memory-limit`. Finished runs stand in `<results>/<data set>.runs.json`, everything
else about them in `<results>/runs/`.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from config import RunConfig
from execute import execute, limit_memory
from experiments import EXPERIMENTS, MAX_SEEDS, Choice
from files import write_text
from methods import METHODS
from settings import PRESETS
from store import Record, Store
from torch_geometric.data import Data
from tqdm import tqdm
from training import Metrics, Watcher

from torch_geometric_gsl.datasets import DATASETS, load_dataset

RESULTS = Path(__file__).resolve().parent / 'results'
# Seconds before looking again at runs that other processes work on.
PAUSE = 2.0


@functools.lru_cache(maxsize=1)
def load(dataset: str, label: str | None) -> Data:
    return (
        load_dataset(dataset) if label is None else load_dataset(dataset, label=label)
    )


class Progress:
    """One bar over the epochs of all runs, which a run that ends early cuts short."""

    def __init__(self, configs: list[RunConfig]) -> None:
        self.bar = tqdm(total=sum(c.epochs for c in configs), unit='epoch', smoothing=0)
        self._writer: Any = None

    def watcher(self, config: RunConfig, log: Path | None) -> Watcher:
        """Shows the metrics of a run, and writes them for TensorBoard if asked."""
        name = Path(config.dataset).name
        self.bar.set_description(f'{name} {config.method} {config.seed}')

        def watch(metrics: Metrics) -> None:
            self.bar.update()
            epoch = int(metrics['epoch'])
            named = {name: v for name, v in metrics.items() if name != 'epoch'}
            shown = {name: f'{value:.3f}' for name, value in named.items()}
            self.bar.set_postfix(shown, refresh=False)
            if log is None:
                return
            if self._writer is None:
                # A resumed run repeats the epochs after its checkpoint.
                self._writer = summary_writer(log, purge_step=epoch)
            for name, value in named.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

        return watch

    def resumed(self, config: RunConfig, epochs: int) -> None:
        # Done already, but not in the time that tells the rate.
        self.bar.initial += epochs
        self.bar.n += epochs
        self.bar.refresh()
        self.bar.write(f'{config}: goes on after {epochs} epochs')

    def finished(self, config: RunConfig, record: Record) -> None:
        """Takes off what the run did not need and tells how it ended."""
        outcome = record['outcome']
        self.bar.total -= config.epochs - outcome.get('epochs', 0)
        self.bar.refresh()
        text = outcome.get('detail', outcome['status'])
        if outcome.get('val') is not None:
            text += f', validation {100 * outcome["val"]:.1f}'
        self.bar.write(f'{config}: {text}')
        self._close_log()

    def failed(self, config: RunConfig, error: Exception) -> None:
        self.bar.write(f'{config}: FAILED, {type(error).__name__}: {error}')
        self.skipped(config)

    def skipped(self, config: RunConfig) -> None:
        self.bar.total -= config.epochs
        self.bar.refresh()
        self._close_log()

    def _close_log(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def summary_writer(log: Path, purge_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SystemExit('--tensorboard needs: pip install tensorboard') from error
    return SummaryWriter(str(log), purge_step=purge_step)


def work(
    name: str, configs: list[RunConfig], store: Store, args: argparse.Namespace
) -> int:
    """Takes run after run until all are finished, by this process or by another.

    A run that raises an error is told, left unfinished, and the next one taken.

    Returns:
        int: How many runs raised an error.
    """
    pending = store.missing(configs, args.memory_limit)
    done = len(configs) - len(pending)
    print(f'{name}: {len(configs)} runs, {done} finished, {len(pending)} to do')
    progress = Progress(pending)
    failures = 0
    while pending:
        busy = []
        for config in pending:
            with store.claim(config) as is_ours:
                if not is_ours:
                    busy.append(config)
                elif store.is_finished(config, args.memory_limit):
                    progress.skipped(config)
                else:
                    failures += not _one(config, store, args, progress)
        if len(busy) == len(pending):
            time.sleep(PAUSE)
        pending = busy
    progress.bar.close()
    # Also what was finished, but not collected, when a process was killed.
    store.collect(configs)
    store.remove_leftovers(configs)
    return failures


def _one(
    config: RunConfig,
    store: Store,
    args: argparse.Namespace,
    progress: Progress,
) -> bool:
    log = store.folder(config) / 'tensorboard' if args.tensorboard else None
    try:
        record = execute(
            config,
            load(config.dataset, config.label),
            store,
            progress.watcher(config, log),
            resumed=functools.partial(progress.resumed, config),
            device=args.device,
            memory_limit=args.memory_limit,
            checkpoint_seconds=args.checkpoint_seconds,
        )
    except Exception as error:
        text = traceback.format_exc()
        write_text(store.folder(config) / 'error.txt', text)
        progress.failed(config, error)
        return False
    store.collect([config])
    progress.finished(config, record)
    gc.collect()
    return True


def check_files(configs: list[RunConfig]) -> None:
    """Ends the program if a user's file does not fit, before any run is begun."""
    files = {(c.dataset, c.label) for c in configs if c.dataset not in DATASETS}
    try:
        for dataset, label in sorted(files, key=str):
            load(dataset, label)
    except (OSError, TypeError, ValueError) as error:
        raise SystemExit(f'{type(error).__name__}: {error}') from error


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'must be a positive integer (got {text!r})')
    return int(text)


def memory_of(device: str) -> float:
    """Gigabytes."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.get_device_properties(device).total_memory / 1e9
    return 0.9 * os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command that runs something can be told."""
    parser.add_argument('--label', help='column of the labels, for files')
    parser.add_argument('--results', type=Path, default=RESULTS)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--threads', type=positive, default=torch.get_num_threads())
    parser.add_argument(
        '--memory-limit',
        type=float,
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


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('experiment', choices=EXPERIMENTS)
    parser.add_argument('--datasets', nargs='+', default=[], help='names or files')
    parser.add_argument('--methods', nargs='+', default=[], choices=METHODS)
    parser.add_argument('--seeds', type=positive, help='number of seeds (5, quick: 2)')
    parser.add_argument('--preset', choices=PRESETS, default='standard')
    parser.add_argument('--quick', action='store_true', help='--preset quick, wine')
    add_arguments(parser)
    args = parser.parse_args()
    if args.quick:
        args.preset = 'quick'
        args.datasets = args.datasets or ['wine']
    args.seeds = args.seeds or (2 if args.quick else 5)
    if args.seeds > MAX_SEEDS:
        parser.error(f'--seeds must be at most {MAX_SEEDS} (got {args.seeds})')
    return args


def main() -> None:
    args = parse_args()
    prepare(args)
    choice = Choice(
        tuple(args.datasets),
        tuple(args.methods),
        range(args.seeds),
        args.preset,
        args.label,
    )
    configs = EXPERIMENTS[args.experiment].configs(choice)
    check_files(configs)
    failures = work(args.experiment, configs, Store(args.results), args)
    if failures:
        raise SystemExit(f'{failures} runs failed: error.txt in their folders says why')


if __name__ == '__main__':
    main()
