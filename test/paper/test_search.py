from __future__ import annotations

import argparse
from pathlib import Path

import optuna
import pytest
import search
import settings
from files import read_json
from store import Store


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    for module in (search, settings):
        monkeypatch.setattr(module, 'TUNED', tmp_path / 'tuned.json')
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    monkeypatch.chdir(tmp_path)
    return argparse.Namespace(
        label=None,
        preset='quick',
        trials=3,
        tensorboard=False,
        device='cpu',
        memory_limit=8.0,
        checkpoint_seconds=30.0,
    )


@pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')
def test_search_goes_on_and_writes_the_best(
    tmp_path: Path, args: argparse.Namespace
) -> None:
    store = Store(tmp_path / 'results')
    args.trials = 2
    search.search(store, 'wine', 'mlp', args)
    first = search.study_of(store.root, 'wine', 'mlp').trials
    args.trials = 3
    search.search(store, 'wine', 'mlp', args)
    study = search.study_of(store.root, 'wine', 'mlp')
    assert [t.params for t in study.trials[:2]] == [t.params for t in first]
    assert len(study.trials) == 3

    found = (read_json(tmp_path / 'tuned.json') or {})['wine']['mlp']
    assert found['setting'] == study.best_params
    assert found['validation'] == max(trial.value or 0.0 for trial in study.trials)
    config = settings.make_config('wine', 'mlp', 0, 'tuned')
    assert config.lr == study.best_params['lr']
    # A trial is judged by validation accuracy, over the runs of its splits.
    configs = [
        settings.make_config('wine', 'mlp', seed, 'quick', **study.best_params)
        for seed in search.SPLITS
    ]
    assert search.validation(store, configs) == pytest.approx(study.best_value)


def test_every_space_gives_a_setting() -> None:
    assert set(search.SEARCHED) == set(search.SPACES)
    for method, space in search.SPACES.items():
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for _ in range(5):
            config = settings.make_config('wine', method, 0, **space(study.ask()))
            assert config.options['hidden_channels'] in (32, 64, 128)


def test_a_run_without_a_score_is_out(tmp_path: Path, args: argparse.Namespace) -> None:
    config = settings.make_config('wine', 'mlp', 0, 'quick')
    with pytest.raises(optuna.TrialPruned):
        search.validation(Store(tmp_path), [config])
