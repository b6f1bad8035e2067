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
import math
import multiprocessing
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from command import (
    FAILED,
    add_arguments,
    check_files,
    load,
    positive,
    prepare,
    told_plainly,
)
from config import RunConfig
from execute import execute, limit_memory
from experiments import EXPERIMENTS, MAX_SEEDS, Choice
from files import write_text
from methods import METHODS
from settings import PRESETS
from store import AGAIN, Record, Store
from tqdm import tqdm
from training import Metrics, Watcher

# Seconds before looking again at runs that other processes work on.
PAUSE = 2.0
# What is told of a process that had a run to itself.
KILLED = (
    'killed by signal {}: if by the system, for lack of memory, then give a lower '
    '--memory-limit'
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

    def crowded(self, config: RunConfig) -> None:
        self.bar.write(f'{config}: too little memory, again in a process of its own')
        self.skipped(config)

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
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(log), purge_step=purge_step)


def work(
    name: str,
    configs: list[RunConfig],
    store: Store,
    args: argparse.Namespace,
    *,
    is_alone: bool = False,
) -> int:
    """Takes run after run until all are finished, by this process or by another.

    A run that raises an error is told, left unfinished, and the next one taken. One
    that lacks memory is run again in a process of its own, unless this is that one.

    Returns:
        int: How many runs raised an error.
    """
    pending = store.missing(configs, args.memory_limit)
    done = len(configs) - len(pending)
    print(f'{name}: {len(configs)} runs, {done} finished, {len(pending)} to do')
    progress = Progress(pending)
    failures = 0
    while pending:
        busy, crowded = [], []
        for config in pending:
            with store.claim(config) as is_ours:
                if not is_ours:
                    busy.append(config)
                elif store.is_finished(config, args.memory_limit):
                    progress.skipped(config)
                else:
                    try:
                        failures += not _one(config, store, args, progress, is_alone)
                    except MemoryError:
                        crowded.append(config)
                        progress.crowded(config)
        failures += sum(not _alone(config, store, args) for config in crowded)
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
    is_alone: bool,
) -> bool:
    log = store.folder(config) / 'tensorboard' if args.tensorboard else None
    try:
        record = execute(
            config,
            functools.partial(load, config.dataset, config.label),
            store,
            progress.watcher(config, log),
            resumed=functools.partial(progress.resumed, config),
            device=args.device,
            memory_limit=args.memory_limit,
            checkpoint_seconds=args.checkpoint_seconds,
            is_alone=is_alone,
        )
    except MemoryError:
        raise
    except Exception as error:
        text = traceback.format_exc()
        write_text(store.folder(config) / 'error.txt', text)
        progress.failed(config, error)
        return False
    (store.folder(config) / 'error.txt').unlink(missing_ok=True)
    store.collect([config])
    progress.finished(config, record)
    gc.collect()
    return True


def _alone(config: RunConfig, store: Store, args: argparse.Namespace) -> bool:
    """Runs where no earlier run has left memory in use; tells whether it finished."""
    load.cache_clear()
    gc.collect()
    # Forked, it would begin with the memory of this process.
    context = multiprocessing.get_context('spawn')
    process = context.Process(target=_only, args=(config, args))
    if torch.device(args.device).type == 'cuda':
        torch.cuda.empty_cache()
    limit_memory(math.inf)  # Of what it loads before it begins.
    process.start()
    prepare(args)
    process.join()
    code = process.exitcode or 0
    if code < 0:
        write_text(store.folder(config) / 'error.txt', KILLED.format(-code))
        print(f'{config}: FAILED, {KILLED.format(-code)}')
    return code == 0


def _only(config: RunConfig, args: argparse.Namespace) -> None:
    prepare(args)
    if work('alone', [config], Store(args.results), args, is_alone=True):
        raise SystemExit(1)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('experiment', choices=EXPERIMENTS)
    add('--datasets', nargs='+', default=[], metavar='DATASET', help='names or files')
    add(
        '--methods',
        nargs='+',
        default=[],
        choices=METHODS,
        metavar='METHOD',
        help=f'some of {", ".join(METHODS)}',
    )
    add('--seeds', type=positive, help='number of seeds (5, quick: 2)')
    add('--preset', choices=PRESETS, default=PRESETS[0], help=f'({PRESETS[0]})')
    add('--quick', action='store_true', help='--preset quick, on wine')
    add('--again', choices=AGAIN, help='redo the runs that ended so')
    add_arguments(parser)
    args = parser.parse_args()
    args.datasets = list(dict.fromkeys(args.datasets))
    args.methods = list(dict.fromkeys(args.methods))
    if args.quick:
        args.preset = 'quick'
        args.datasets = args.datasets or ['wine']
    args.seeds = args.seeds or (2 if args.quick else 5)
    if args.seeds > MAX_SEEDS:
        parser.error(f'--seeds must be at most {MAX_SEEDS} (got {args.seeds})')
    return args


@told_plainly
def main() -> None:
    args = parse_args()
    prepare(args)
    choice = Choice(
        tuple(args.datasets),
        tuple(args.methods),
        range(args.seeds),
        args.preset,
        args.label,
        args.results,
    )
    check_files(args.datasets, args.label)
    configs, store = EXPERIMENTS[args.experiment].configs(choice), Store(args.results)
    if args.again:
        store.forget(configs, args.again)
    if failures := work(args.experiment, configs, store, args):
        raise SystemExit(f'{failures} {FAILED}')


if __name__ == '__main__':
    main()
