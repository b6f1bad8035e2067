"""Searches settings by validation accuracy alone, and compares the best ones.

    python examples/paper/search.py --dataset CiteSeer --trials 40
    python examples/paper/search.py --dataset CiteSeer --compare

Each method gets the same number of trials, the controls as well. A trial is the mean
validation accuracy over the splits of some seeds. Its runs stand in the store of
`run.py`, the study in `<results>/search.journal`: killed and started again, it goes on.
What was found is written to `tuned.json`; `--compare` then runs the best settings on
ten splits.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from config import RunConfig
from experiments import Choice
from filelock import FileLock
from files import read_json, write_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState
from run import add_arguments, positive, prepare, work
from settings import PRESETS, TUNED, make_config
from store import Store

SEARCHED = ('neural_gau_sim', 'mlp', 'knn_gcn_root')
#: Seeds of the splits that a trial is judged on.
SPLITS = (0, 1, 2)
#: Seeds of the splits on which the best settings are compared.
COMPARED = 10


def common(trial: Trial) -> dict[str, Any]:
    return {
        'lr': trial.suggest_float('lr', 1e-3, 3e-2, log=True),
        'weight_decay': trial.suggest_float('weight_decay', 1e-6, 1e-2, log=True),
        'dropout': trial.suggest_float('dropout', 0.2, 0.8, step=0.1),
        'hidden_channels': trial.suggest_categorical('hidden_channels', [32, 64, 128]),
    }


def mlp(trial: Trial) -> dict[str, Any]:
    return common(trial)


def knn(trial: Trial) -> dict[str, Any]:
    return common(trial) | {'k': trial.suggest_int('k', 3, 30, log=True)}


def ours(trial: Trial) -> dict[str, Any]:
    return common(trial) | {
        'k': trial.suggest_categorical('k', [5, 10, 20]),
        'tau': trial.suggest_categorical('tau', [0.25, 0.5, 1.0]),
        'scale': trial.suggest_float('scale', 1.0, 30.0, log=True),
        'candidates': trial.suggest_categorical('candidates', [None, 10, 20, 40]),
    }


SPACES: dict[str, Callable[[Trial], dict[str, Any]]] = {
    'neural_gau_sim': ours,
    'mlp': mlp,
    'knn_gcn_root': knn,
}


def study_of(root: Path, dataset: str, method: str) -> optuna.Study:
    root.mkdir(parents=True, exist_ok=True)
    backend = JournalFileBackend(str(root / 'search.journal'))
    return optuna.create_study(
        storage=JournalStorage(backend),
        study_name=f'{dataset}/{method}',
        direction='maximize',
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=12),
        load_if_exists=True,
    )


def search(store: Store, dataset: str, method: str, args: argparse.Namespace) -> None:
    """Adds trials until there are enough, and writes down the best."""
    study = study_of(store.root, dataset, method)

    def objective(trial: Trial) -> float:
        setting = SPACES[method](trial)
        configs = [
            make_config(dataset, method, seed, args.preset, args.label, **setting)
            for seed in SPLITS
        ]
        work('search', configs, store, args)
        return validation(store, configs)

    done = len(study.get_trials(states=(TrialState.COMPLETE,)))
    study.optimize(objective, n_trials=max(0, args.trials - done))
    record_best(study, dataset, method, args.trials)


def validation(store: Store, configs: list[RunConfig]) -> float:
    """The mean validation accuracy; a setting that fails on a split is out."""
    found = []
    for config in configs:
        record = store.record(config)
        value = None if record is None else record['outcome'].get('val')
        if value is None:
            raise optuna.TrialPruned
        found.append(value)
    return statistics.mean(found)


def record_best(study: optuna.Study, dataset: str, method: str, trials: int) -> None:
    """Writes the best setting into the file of tuned settings."""
    with FileLock(TUNED.with_name(f'.{TUNED.name}.lock')):
        content = read_json(TUNED) or {}
        content.setdefault(dataset, {})[method] = {
            'setting': study.best_params,
            'validation': study.best_value,
            'splits': list(SPLITS),
            'trials': trials,
        }
        write_json(TUNED, content)
    print(f'{study.study_name}: {study.best_value:.4f} with {study.best_params}')


def compare(store: Store, dataset: str, args: argparse.Namespace) -> None:
    """Runs the best setting of each method on ten splits."""
    choice = Choice((dataset,), SEARCHED, range(COMPARED), 'tuned', args.label)
    configs = [
        make_config(dataset, method, seed, 'tuned', args.label)
        for seed in choice.seeds
        for method in choice.methods
    ]
    work('tuned', configs, store, args)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--methods', nargs='+', default=SEARCHED, choices=SPACES)
    parser.add_argument('--trials', type=positive, default=40)
    parser.add_argument('--preset', choices=PRESETS[:3], default=PRESETS[0])
    parser.add_argument('--compare', action='store_true')
    add_arguments(parser)
    args = parser.parse_args()
    prepare(args)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings('ignore', category=optuna.exceptions.ExperimentalWarning)
    store = Store(args.results)
    if args.compare:
        compare(store, args.dataset, args)
        return
    for method in args.methods:
        search(store, args.dataset, method, args)


if __name__ == '__main__':
    main()
