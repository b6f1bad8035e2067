import argparse
import functools
import gzip

import optuna
import pytest

from reproduction import documents, search
from reproduction.experiments import (
    Choice,
    RunConfig,
    found_settings,
    make_config,
)
from reproduction.files import write_json
from reproduction.search import open_journal, pack_journal
from reproduction.store import Store

pytestmark = pytest.mark.filterwarnings('ignore::optuna.exceptions.ExperimentalWarning')


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / 'results')


@pytest.fixture
def args():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    limits = {'memory_limit': 8.0, 'checkpoint_seconds': 30.0, 'threads': 1}
    options = {'label': None, 'preset': 'quick', 'tensorboard': False, 'trials': 3}
    return argparse.Namespace(device='cpu', **limits, **options)


@pytest.fixture
def look(store, args, monkeypatch):
    """Searches, with a function that scores a trial in place of its runs."""

    def look(trials, score=None, dataset='wine'):
        if score is not None:
            monkeypatch.setattr(search, 'work', lambda *args: 0)
            monkeypatch.setattr(search, 'validation', lambda store, c: score(c))
        args.trials = trials
        search.search(store, dataset, 'mlp', args)
        return study_of(store).trials

    return look


def study_of(store):
    return search.study_of(store.root, 'wine', None, 'mlp', 'quick')


def best(store):
    return found_settings(store.root, 'wine')['mlp']


@pytest.mark.slow
def test_search_goes_on_and_writes_the_best(store, look):
    first = look(2)
    trials = look(3)
    packed = store.root / f'{search.JOURNAL}.gz'
    before = packed.read_bytes()
    assert look(3) == trials  # There is nothing to add, nor to pack.
    assert packed.read_bytes() == before
    assert [t.params for t in trials[:2]] == [t.params for t in first]
    assert len(trials) == 3
    study, found = study_of(store), best(store)
    assert found['setting'] == study.best_params
    assert found['validation'] == max(trial.value or 0.0 for trial in trials)
    config = make_config('wine', 'mlp', 0, 'tuned', results=store.root)
    assert config.lr == study.best_params['lr']


def test_trials_are_judged_by_validation(store):
    configs = [RunConfig('wine', 'mlp', seed) for seed in range(2)]
    for config, (val, test) in zip(configs, ((0.5, 0.875), (0.75, 0.125)), strict=True):
        assert search.validation(store, configs) is None
        outcome = {'status': 'done', 'val': val, 'test': test}
        store.finish(config, outcome, {'starts': [{}]})
    assert search.validation(store, configs) == 0.625


def test_two_processes_share_the_trials(store, look):
    """While the first one works on its second trial, the other one does the rest."""
    rates = []

    def score(configs):
        rate = configs[0].lr
        if rate not in rates:
            rates.append(rate)
            if len(rates) == 2:
                look(3)
        return (0.1, 0.1, 0.3, 0.4)[rates.index(rate)]

    # The other one did two; the first one found its own to be one more than asked for.
    assert [trial.value for trial in look(3, score)] == [0.1, 0.1, 0.3, 0.4]
    assert best(store)['validation'] == 0.3


def test_bad_trials_are_cut_short(store, look):
    whole = search.STARTUP_WHOLE
    splits = []

    def score(configs):
        number = len(study_of(store).trials)
        splits.append(number)
        # The last of those that are run in any case, and the first that need not be.
        return 0.1 if number in (whole, whole + 1) else 0.5 + 0.01 * number

    trials = look(whole + 2, score)
    runs = [splits.count(number) for number in range(1, whole + 3)]
    assert runs == [3] * whole + [1, 3]
    states = [trial.state.name for trial in trials]
    assert states == ['COMPLETE'] * whole + ['PRUNED', 'COMPLETE']


def test_compared_on_other_splits(store, args, monkeypatch):
    args.methods = list(search.SEARCHED)
    with pytest.raises(SystemExit, match='neural_gau_sim, mlp, knn_gcn_root on wine'):
        search.compare(store, 'wine', args)
    found = {'setting': {'lr': 0.25}, 'preset': 'quick', 'trials': 4}
    write_json(store.root / 'tuned.json', {'wine': dict.fromkeys(args.methods, found)})
    runs = []

    def work(name, configs, *args):
        runs.extend(configs)
        return len(runs) - 30

    monkeypatch.setattr(search, 'work', work)
    search.compare(store, 'wine', args)
    assert len(runs) == 30
    with pytest.raises(SystemExit, match='runs failed'):
        search.compare(store, 'wine', args)
    assert not {config.seed for config in runs} & {*search.SPLITS}
    make = functools.partial(make_config, 'wine', results=store.root)
    assert runs[0] == make(runs[0].method, 3, 'tuned')
    # Under the preset that the search ran with.
    assert {config.epochs for config in runs} == {20}
    # The table shows these, and not what the search ran.
    for seed in range(5):
        outcome = {'status': 'done', 'test': 0.6 + 0.1 * (seed < 3)}
        store.finish(make('mlp', seed, 'tuned'), outcome, {'starts': [{}]})
    choice = Choice(('wine',), (), range(20), results=store.root)
    table = documents.render('tuned', 'markdown', store, choice)
    assert '| MLP | 60.0 ± 0.0 (2) |' in table
    assert 'MLP on wine: lr 0.25 (the best of 4 trials).' in table


def test_every_space_gives_a_setting():
    assert set(search.SEARCHED) == set(search.SPACES)
    for method, space in search.SPACES.items():
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        for _ in range(5):
            config = make_config('wine', method, 0, **space(study.ask()))
            assert config.options['hidden_channels'] in (32, 64, 128)


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
    whole = path.read_bytes()
    path.write_bytes(whole[:-15])
    open_journal(path)
    assert path.read_bytes() == whole[: whole.rstrip().rfind(b'\n') + 1]
    assert values(path) == [1.0, None]
    study = journal_study(path)
    study.tell(study.ask(), 3.0)
    assert values(path) == [1.0, None, 3.0]
