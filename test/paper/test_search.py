import argparse
import gzip

import optuna
import pytest

from reproduction import search
from reproduction.experiments import (
    RunConfig,
    tuned_settings,
)
from reproduction.search import open_journal, pack_journal
from reproduction.store import Store

pytestmark = pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / 'results')


def test_trials_are_judged_by_validation(store):
    configs = [RunConfig('wine', 'mlp', seed) for seed in range(2)]
    for config, (val, test) in zip(configs, ((0.5, 0.875), (0.75, 0.125)), strict=True):
        assert search.validation(store, configs) is None
        outcome = {'status': 'done', 'val': val, 'test': test}
        store.finish(config, outcome, {'starts': [{}]})
    assert search.validation(store, configs) == 0.625


def test_two_processes_share_the_trials(store, monkeypatch):
    """While the first one works on its second trial, the other one does the rest."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    options = {'label': None, 'preset': 'quick', 'tensorboard': False, 'trials': 3}
    limits = {'memory_limit': 8.0, 'checkpoint_seconds': 30.0, 'threads': 1}
    args = argparse.Namespace(device='cpu', **limits, **options)
    rates = []

    def score(store, configs):
        rate = configs[0].lr
        if rate not in rates:
            rates.append(rate)
            if len(rates) == 2:
                search.search(store, 'wine', 'mlp', args)
        return (0.1, 0.1, 0.3, 0.4)[rates.index(rate)]

    monkeypatch.setattr(search, 'work', lambda *args: 0)
    monkeypatch.setattr(search, 'validation', score)
    search.search(store, 'wine', 'mlp', args)
    # The other one did two; the first one found its own to be one more than asked for.
    study = search.study_of(store.root, 'wine', None, 'mlp', 'quick')
    assert [trial.value for trial in study.trials] == [0.1, 0.1, 0.3, 0.4]
    tuned = tuned_settings(store.root, 'wine')['mlp']
    assert (tuned['validation'], tuned['setting']) == (0.3, study.trials[2].params)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / 'found' / search.JOURNAL
    study = journal_study(path)
    for value in (1.0, 2.0):
        study.tell(study.ask(), value)
    return path


def journal_study(path):
    storage = open_journal(path)
    return optuna.create_study(storage=storage, study_name='s', load_if_exists=True)


def values(path):
    return [trial.value for trial in journal_study(path).trials]


def test_a_journal_is_packed_and_taken_up(path):
    before = path.read_bytes()
    pack_journal(path)
    packed = path.with_name(f'{path.name}.gz')
    assert gzip.decompress(packed.read_bytes()) == before
    path.unlink()  # As in a clone.
    open_journal(path)
    assert path.read_bytes() == before
    study = journal_study(path)
    study.tell(study.ask(), 3.0)
    # What goes on is not what was packed.
    assert values(path) == [1.0, 2.0, 3.0]
    path.unlink()
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(OSError, match=r"search\.journal\.gz' is damaged"):
        open_journal(path)
    assert not path.exists()


def test_a_torn_line_is_cut_off(path):
    journal = path.read_bytes()
    path.write_bytes(journal[:-15])
    open_journal(path)
    assert path.read_bytes() == journal[: journal.rstrip().rfind(b'\n') + 1]
    assert values(path) == [1.0, None]
    study = journal_study(path)
    study.tell(study.ask(), 3.0)
    assert values(path) == [1.0, None, 3.0]
