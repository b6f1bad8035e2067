"""Search settings by validation accuracy alone, and compare the best ones.

    python paper/search.py --dataset CiteSeer --trials 40
    python paper/search.py --dataset CiteSeer --compare

Each method gets the same number of trials, controls included. The score of a trial is
the mean validation accuracy over three splits. A trial below the median of the others
is not run on the next split: it counts, but cannot be the best. The same holds for a
trial without a score on a split, such as a run out of memory. Runs are stored as those
of `run.py`, the study in `<results>/search.journal`: a restarted search continues after
the last finished trial. Two commands at the same time share the trials. A clone has the
journal compressed, and continues from it.

The best of the first `--trials` is written to `<results>/tuned.json`. `--compare` then
runs the best settings on ten other splits. All splits have the same nodes: test nodes
of one may be validation nodes of those that selected the setting.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, Trial, TrialState

from reproduction import command
from reproduction.experiments import (
    COMPARED,
    Choice,
    RunConfig,
    data_key,
    store_setting,
    tuned_settings,
)
from reproduction.files import read_bytes, write_bytes, write_text
from reproduction.record import positive
from reproduction.run import work
from reproduction.store import Store

#: The trials of all searches, one entry per line.
JOURNAL = 'search.journal'
SEARCHED = ('neural_gau_sim', 'mlp', 'knn_gcn_root')
#: Seeds of the splits that score a trial.
SPLITS = (0, 1, 2)
#: Time limit of a run in seconds; a run that reaches it keeps its score.
TIME_LIMIT = 300.0
#: States of trials that count, with a score or without.
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
#: Trials before the sampler learns from them, and before the first pruning.
STARTUP = 12
STARTUP_WHOLE = 5


def common(trial: Trial) -> dict[str, Any]:
    return {
        'lr': trial.suggest_float('lr', 1e-3, 3e-2, log=True),
        'weight_decay': trial.suggest_float('weight_decay', 1e-6, 1e-2, log=True),
        'dropout': trial.suggest_float('dropout', 0.2, 0.8, step=0.1),
        'hidden_channels': trial.suggest_categorical('hidden_channels', [32, 64, 128]),
    }


def knn(trial: Trial) -> dict[str, Any]:
    return common(trial) | {'k': trial.suggest_int('k', 3, 30, log=True)}


def ours(trial: Trial) -> dict[str, Any]:
    # From 3 nearest neighbours, as few as the control may have.
    candidates = trial.suggest_categorical('candidates', [None, 3, 5, 10, 20, 40])
    setting = common(trial) | {
        'candidates': candidates,
        # The control has self-loops.
        'add_self_loops': trial.suggest_categorical('add_self_loops', [False, True]),
    }
    if candidates is None:
        # At the paper's temperature: sharper or warmer graphs of all nodes compute all
        # pairs, which takes seconds per epoch on a CPU.
        return setting | {'scale': trial.suggest_float('scale', 1.0, 2.0, log=True)}
    return setting | {
        'tau': trial.suggest_categorical('tau', [0.25, 0.5, 1.0]),
        'k': trial.suggest_categorical('k', [5, 10, 20]),
        'scale': trial.suggest_float('scale', 1.0, 30.0, log=True),
    }


SPACES: dict[str, Callable[[Trial], dict[str, Any]]] = {
    'neural_gau_sim': ours,
    'mlp': common,
    'knn_gcn_root': knn,
}
#: Increased when a space changes: trials in another space are another study.
REVISIONS = {'neural_gau_sim': 3}


def open_journal(path: Path) -> JournalStorage:
    """Open a journal; cut off an incomplete last line.

    A missing journal is restored from the file of :func:`pack_journal`.

    Raises:
        ValueError: If the file is damaged elsewhere.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock is a link to the path; its age shows that its holder was killed. A
    # relative link would be broken.
    path = path.resolve()
    lock = JournalFileSymlinkLock(str(path))
    packed = _packed(path)
    if path.exists() or packed.exists():
        lock.acquire()
        try:
            if not path.exists():
                write_bytes(path, read_bytes(packed))
            _repair(path)
        finally:
            lock.release()
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def pack_journal(path: Path) -> None:
    """Compress a journal into the file that is committed and shared."""
    write_text(_packed(path), path.read_text(encoding='utf-8'))


def _packed(path: Path) -> Path:
    return path.with_name(f'{path.name}.gz')


def _repair(path: Path) -> None:
    content = path.read_bytes()
    size = content.rfind(b'\n') + 1
    for line_number, line in enumerate(content[:size].splitlines(), start=1):
        try:
            json.loads(line)
        except (ValueError, RecursionError) as error:  # noqa: PERF203
            raise ValueError(
                f"'{path}' is damaged in line {line_number}: restore it, or delete it "
                'to search again'
            ) from error
    if size < len(content):
        os.truncate(path, size)


def study_of(
    root: Path, dataset: str, label: str | None, method: str, preset: str
) -> optuna.Study:
    revision = REVISIONS.get(method)
    suffix = '' if revision is None else f'/{revision}'
    return optuna.create_study(
        storage=open_journal(root / JOURNAL),
        study_name=f'{data_key(dataset, label)}/{method}/{preset}{suffix}',
        direction='maximize',
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_WHOLE),
        load_if_exists=True,
    )


def search(store: Store, dataset: str, method: str, args: argparse.Namespace) -> None:
    """Add trials until there are enough, and store the best."""
    study = study_of(store.root, dataset, args.label, method, args.preset)
    choice = Choice((dataset,), (method,), SPLITS, args.preset, args.label, store.root)
    before = len(study.trials)
    while (trial := next_trial(study, store.root, args.trials)) is not None:
        setting = SPACES[method](trial) | {'time_limit': TIME_LIMIT}
        configs = [choice.config(dataset, method, seed, **setting) for seed in SPLITS]
        value = judge(trial, configs, store, args)
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        study.tell(trial, value, state)
    if len(study.trials) > before:
        pack_journal(store.root / JOURNAL)
    best = best_of(study, args.trials)
    if best is None:
        print(f'{study.study_name}: none of {args.trials} trials has a score')
        return
    print(f'{study.study_name}: {best.value:.4f} with {best.params}')
    best_setting = {
        'setting': best.params,
        'validation': best.value,
        'splits': list(SPLITS),
        'trials': args.trials,
        'preset': args.preset,
    }
    store_setting(store.root, dataset, args.label, method, best_setting)


def judge(
    trial: Trial, configs: list[RunConfig], store: Store, args: argparse.Namespace
) -> float | None:
    """Score a trial split by split; return :obj:`None` if it is pruned."""
    value = None
    for count, config in enumerate(configs, start=1):
        if work('search', [config], store, args):
            trial.study.tell(trial, state=TrialState.FAIL)
            raise SystemExit(command.FAILED)
        value = validation(store, configs[:count])
        if value is None:
            return None
        trial.report(value, count)
        if count < len(configs) and trial.should_prune():
            return None
    return value


def next_trial(study: optuna.Study, root: Path, trials: int) -> Trial | None:
    """Return one more trial, unless enough have finished, here or elsewhere."""
    with FileLock(root / '.search.lock'):
        if len(study.get_trials(states=FINISHED)) >= trials:
            return None
        # Each trial has its own seed, also after a restart.
        study.sampler = optuna.samplers.TPESampler(
            seed=len(study.trials), n_startup_trials=STARTUP
        )
        return study.ask()


def validation(store: Store, configs: list[RunConfig]) -> float | None:
    """Return the mean validation accuracy; :obj:`None` if a run has none."""
    outcomes = [(store.record(c) or {'outcome': {}})['outcome'] for c in configs]
    accuracies = [outcome.get('val') for outcome in outcomes]
    return None if None in accuracies else statistics.mean(accuracies)


def best_of(study: optuna.Study, trials: int) -> FrozenTrial | None:
    """Return the best of the first trials: shared searches may run some more."""
    finished = study.get_trials(states=FINISHED)[:trials]
    # The value of a pruned trial is that of its first splits.
    scored = [trial for trial in finished if trial.state == TrialState.COMPLETE]
    return max(scored, key=lambda trial: trial.value or 0.0, default=None)


def compare(store: Store, dataset: str, args: argparse.Namespace) -> None:
    """Run the best setting of each method on splits that did not select it."""
    settings = tuned_settings(store.root, dataset, args.label)
    if missing := [method for method in args.methods if method not in settings]:
        raise SystemExit(
            f'no setting was found yet of {", ".join(missing)} on {dataset}: search '
            'without --compare first'
        )
    tuned = Choice((dataset,), args.methods, (), 'tuned', args.label, store.root)
    pairs = product(COMPARED, args.methods)
    configs = [tuned.config(dataset, method, seed) for seed, method in pairs]
    if work('tuned', configs, store, args):
        raise SystemExit(command.FAILED)


@command.told_plainly()
def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--methods', nargs='+', default=SEARCHED, choices=SPACES)
    parser.add_argument('--trials', type=positive, default=40)
    parser.add_argument('--compare', action='store_true')
    command.add_choice(parser)
    command.add_arguments(parser)
    args = parser.parse_args()
    command.prepare(args)
    command.check_files([args.dataset], args.label)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings('ignore', category=optuna.exceptions.ExperimentalWarning)
    store = Store(args.results)
    if args.compare:
        compare(store, args.dataset, args)
        return
    for method in args.methods:
        search(store, args.dataset, method, args)
