"""Execute the missing runs of a table or figure of the paper.

    python paper/run.py table1
    python paper/run.py table1 --datasets CiteSeer --seeds 3
    python paper/run.py table1 --quick --results runs/quick
    python paper/run.py table1 --datasets flowers.csv --label species
    python paper/run.py hidden --help
    python paper/run.py noise --help
    python paper/run.py labels --help
    python paper/run.py half --help
    python paper/run.py tables --help
    python paper/run.py groups --help
    python paper/run.py attacked --help
    python paper/run.py adaptive --help
    python paper/run.py sensors --help

A killed command can be started again and continues from the last complete checkpoint.
Two commands at the same time share the work; give each half of the memory with
`--memory-limit`. Finished runs are stored in `<results>/<data set>.runs.json.gz`, all
other files of runs in `<results>/runs/`.
"""

from __future__ import annotations

import argparse
import functools
import gc
import math
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch_geometric.data import Data

from reproduction import (
    adaptive,
    attacked,
    command,
    groups,
    half,
    hidden,
    labels,
    noisy,
    sensors,
    tables_runs,
)
from reproduction.experiments import EXPERIMENTS, MAX_SEEDS, RunConfig
from reproduction.files import (
    read_json,
    remove_checkpoints,
    remove_drafts,
    write_json,
    write_tensors,
    write_text,
)
from reproduction.record import environment, positive
from reproduction.scales import ScaleRun, make_run
from reproduction.settings import METHODS, PRESETS
from reproduction.store import AGAIN, Store
from reproduction.training import Outcome, Run, Watcher

#: The seed whose trained model is stored for figures.
MODEL_SEED = 0
#: Errors of PyTorch when the operating system has no memory left.
NO_MEMORY = (
    *("can't allocate memory", 'not enough memory', 'Cannot allocate memory'),
    *('bad_alloc', "can't start new thread"),
)
#: Seconds between two checks of runs that other processes work on.
PAUSE = 2.0
CROWDED = 'too little memory, again in a process of its own'
#: The message of a run whose process was killed.
KILLED = (
    'killed by signal {}: if by the system, for lack of memory, then give a lower '
    '--memory-limit'
)


def execute(
    config: RunConfig,
    read: Callable[[], Data],
    store: Store,
    watch: Watcher = lambda metrics: None,
    *,
    resumed: Callable[[int], None] = lambda epochs: None,
    device: str = 'cpu',
    memory_limit: float = math.inf,
    checkpoint_seconds: float = 30.0,
    is_alone: bool = True,
) -> Outcome:
    """Execute a claimed run from its start or checkpoint to its result.

    `resumed` receives the epochs of the checkpoint, if there is one. If the run is the
    only one of its process, lack of memory is its result.

    Raises:
        MemoryError: If there is too little memory, and other runs may hold some.
    """
    folder = store.folder(config)
    remove_drafts(folder)
    write_json(folder / 'config.json', config.to_dict())
    about = read_json(folder / 'about.json') or {'starts': []}
    about['starts'].append(environment(device=device, time=time.strftime('%F %T')))
    write_json(folder / 'about.json', about)
    try:
        data = read()
        run = make_run(config, data, folder, device, checkpoint_seconds)
        if run.resume():
            resumed(run.epoch)
        outcome, cost = _train(run, data, watch)
    except (MemoryError, RuntimeError) as error:
        is_known = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not is_known and all(text not in str(error) for text in NO_MEMORY):
            raise
        if not is_alone:
            raise MemoryError(str(error)) from None
        digits = '.0f' if memory_limit >= 10 else '.2g'
        detail = f'OOM at {memory_limit:{digits}} GB'
        outcome = {'status': 'oom', 'detail': detail, 'memory_limit': memory_limit}
        cost = {}
        gc.collect()
    store.finish(config, outcome, about | cost)
    remove_checkpoints(folder)
    return outcome


def _train(
    run: Run | ScaleRun, data: Data, watch: Watcher
) -> tuple[Outcome, dict[str, Any]]:
    status = run.train(watch)
    run.save()
    if run.config.seed == MODEL_SEED:
        write_tensors(run.folder / 'model.pt', run.best_state)
    cost: dict[str, Any] = {
        'seconds': round(run.seconds, 3),
        'parameters': sum(p.numel() for p in run.model.parameters()),
        'threads': torch.get_num_threads(),
    }
    if run.x.is_cuda:
        cost['peak_megabytes'] = torch.cuda.max_memory_allocated(run.x.device) / 1e6
    return {'status': status, **run.score(data)}, cost


def work(
    name: str,
    configs: list[RunConfig],
    store: Store,
    args: argparse.Namespace,
    *,
    is_alone: bool = False,
) -> int:
    """Execute runs until all are finished, by this process or by another.

    A run that raises an error is reported and left unfinished; the next run follows.
    A run that lacks memory is repeated in its own process, unless it has one already.

    Returns:
        int: The number of runs that raised an error.
    """
    pending = store.missing(configs, args.memory_limit)
    done = len(configs) - len(pending)
    print(f'{name}: {len(configs)} runs, {done} finished, {len(pending)} to do')
    progress = command.Progress(pending)
    failures = 0
    while pending:
        busy, crowded = [], []
        for config in pending:
            with store.claim(config) as is_ours:
                if not is_ours:
                    busy.append(config)
                elif store.is_finished(config, args.memory_limit):
                    progress.ended(config)
                else:
                    try:
                        failures += not _execute_claimed(
                            config, store, args, progress, is_alone
                        )
                    except MemoryError:
                        crowded.append(config)
                        progress.ended(config, CROWDED)
        failures += sum(not _execute_alone(config, store, args) for config in crowded)
        if len(busy) == len(pending):
            time.sleep(PAUSE)
        pending = busy
    progress.bar.close()
    # Also runs that a killed process has finished but not collected.
    with _unlimited(args):
        store.collect(configs)
    store.remove_leftovers(configs)
    return failures


@contextmanager
def _unlimited(args: argparse.Namespace) -> Iterator[None]:
    """Lift the memory limit, which applies to runs only."""
    command.limit_memory(math.inf)
    try:
        yield
    finally:
        command.prepare(args)


def _execute_claimed(
    config: RunConfig,
    store: Store,
    args: argparse.Namespace,
    progress: command.Progress,
    is_alone: bool,
) -> bool:
    """Execute a run, report how it ended, and return whether it finished."""
    folder = store.folder(config)
    log = folder / 'tensorboard' if args.tensorboard else None
    try:
        outcome = execute(
            config,
            functools.partial(command.load, config.dataset, config.label),
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
        write_text(folder / 'error.txt', traceback.format_exc())
        progress.ended(config, f'FAILED, {type(error).__name__}: {error}')
        return False
    (folder / 'error.txt').unlink(missing_ok=True)
    with _unlimited(args):
        store.collect([config])
    text = str(outcome.get('detail', outcome['status']))
    if outcome.get('val') is not None:
        text += f', validation {100 * outcome["val"]:.1f}'
    progress.ended(config, text, outcome.get('epochs', 0))
    gc.collect()
    return True


def _execute_alone(config: RunConfig, store: Store, args: argparse.Namespace) -> bool:
    """Execute a run in a fresh process; return whether it finished."""
    command.load.cache_clear()
    gc.collect()
    # A forked process would start with the memory of this one.
    context = multiprocessing.get_context('spawn')
    process = context.Process(target=_work_alone, args=(config, args))
    if torch.device(args.device).type == 'cuda':
        torch.cuda.empty_cache()
    with _unlimited(args):  # It must not inherit a limit while it imports.
        process.start()
    process.join()
    code = process.exitcode or 0
    if code < 0:
        text = KILLED.format(-code)
        write_text(store.folder(config) / 'error.txt', text)
        print(f'{config}: FAILED, {text}')
    return code == 0


def _work_alone(config: RunConfig, args: argparse.Namespace) -> None:
    command.prepare(args)
    if work('alone', [config], Store(args.results), args, is_alone=True):
        raise SystemExit(1)


def parse_args() -> argparse.Namespace:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    names = f'some of {", ".join(METHODS)}'
    add('experiment', choices=EXPERIMENTS)
    add('--datasets', nargs='+', default=[], metavar='DATASET', help='names or files')
    add('--methods', nargs='+', default=[], choices=METHODS, metavar='M', help=names)
    add('--seeds', type=positive, help='number of seeds (5, quick: 2)')
    add('--quick', action='store_true', help='--preset quick, on wine')
    add('--again', choices=AGAIN, help='repeat runs that ended so')
    command.add_choice(parser, PRESETS)
    command.add_arguments(parser)
    args = parser.parse_args()
    if args.quick:
        args.preset = 'quick'
        args.datasets = args.datasets or ['wine']
    args.seeds = args.seeds or (2 if args.quick else 5)
    if args.seeds > MAX_SEEDS:
        parser.error(f'--seeds must be at most {MAX_SEEDS} (got {args.seeds})')
    return args


@command.told_plainly()
def main() -> None:
    # Experiments with their own graphs and results file.
    studies = {
        'hidden': hidden.main,
        'noise': noisy.main,
        'labels': labels.main,
        'half': half.main,
        'groups': groups.main,
        'tables': tables_runs.main,
        'attacked': attacked.main,
        'adaptive': adaptive.main,
        'sensors': sensors.main,
    }
    if (name := ' '.join(sys.argv[1:2])) in studies:
        studies[name](sys.argv[2:])
        return
    args = parse_args()
    command.prepare(args)
    command.check_files(args.datasets, args.label)
    choice = command.choice_of(args, range(args.seeds))
    store = Store(args.results)
    configs = EXPERIMENTS[args.experiment].configs(choice)
    if args.again:
        store.forget(configs, args.again)
    if failures := work(args.experiment, configs, store, args):
        raise SystemExit(f'{failures} {command.FAILED}')
