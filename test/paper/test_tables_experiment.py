"""Data, methods, runs and the report of the experiment on tables."""

import itertools

import numpy as np
import pytest
import torch
from scipy import sparse

from reproduction import tables_methods, tables_runs, tables_store
from reproduction.files import read_json
from reproduction.tables_data import SOURCES, Source, Table, problem, split
from reproduction.tables_methods import METHODS, SETTING, fit, obstacle, search
from reproduction.tables_neighbours import Described, Options
from reproduction.tables_ours import make_estimator
from reproduction.tables_runs import execute, main
from reproduction.tables_store import Run, TableResults
from reproduction.tables_trees import LIBRARIES, draw_choice

TINY = SETTING | {'trees': 5, 'patience': 2, 'near': [1, 3], 'neighbours': [1, 3]}
OPTIONS = Options(0, 1, TINY)


def made(num_classes=0, rows=60):
    """A table whose target follows its columns, two of them places, one the time."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4))
    x[:, 3] = rng.permutation(rows)
    y = x[:, 0] + 0.1 * rng.normal(size=rows)
    if num_classes:
        y = np.argsort(np.argsort(y)) * num_classes // rows
    return Table(x, y, num_classes)


@pytest.fixture
def sources(monkeypatch):
    """Two small tables in place of all."""
    small_tables = {
        'numbers': Source(made, unit='m', coordinates=(1, 2), time=(3,)),
        'classes': Source(lambda: made(3), is_regression=False),
    }
    for name in reversed([*SOURCES]):  # They come back in their order.
        monkeypatch.delitem(SOURCES, name)
    for name, source in small_tables.items():
        monkeypatch.setitem(SOURCES, name, source)
    return small_tables


@pytest.fixture
def at_once(monkeypatch):
    """Units run in this process, which knows the small tables."""

    def run(task, unit):
        return task(unit), ''

    monkeypatch.setattr(tables_store, 'in_own_process', run)
    monkeypatch.setattr(tables_store, 'start_server', lambda threads: None)


def seen(num_classes=0, coordinates=(1, 2), rows=60):
    source = Source(
        lambda: made(num_classes, rows), not num_classes, coordinates=coordinates
    )
    table = source.read()
    return problem(table, source, split(table, source, '0'))


def units(root, table):
    return read_json(root / 'tables' / f'{table}.json')['runs']


def test_places_are_held_out_whole():
    rng = np.random.default_rng(1)
    centres = np.stack([np.arange(10) % 5, np.arange(10) // 5], axis=1) * 100.0
    region = np.arange(200) % 10
    x = centres[region] + rng.normal(size=(200, 2))
    splits = split(Table(x, np.zeros(200)), Source(made, coordinates=(0, 1)), 'place')
    regions = [{*region[rows].tolist()} for rows in splits]
    assert [len(numbers) for numbers in regions] == [7, 1, 2]
    assert sorted(itertools.chain(*regions)) == [*range(10)]


def test_words_are_reduced_by_training_rows_alone():
    x = sparse.random(60, 30, 0.3, 'csr', random_state=0)
    source = Source(made, False, reduce=3)
    rows = split(Table(x, np.arange(60) % 2, 2), source, '0')
    reduced, _ = problem(Table(x, np.arange(60) % 2, 2), source, rows)
    changed = x.tolil()
    changed[rows[2]] = 0
    again, _ = problem(Table(changed.tocsr(), np.arange(60) % 2, 2), source, rows)
    assert [x_split.shape[1] for x_split in reduced.x] == [3, 3, 3]
    assert np.array_equal(reduced.x[1], again.x[1])


@pytest.mark.parametrize('num_classes', [0, 3])
def test_no_row_is_told_its_own_target(num_classes):
    table, _ = seen(num_classes)
    before = Described(table, ('columns', 'place'), OPTIONS)
    shift = np.roll(np.arange(3), 1)[table.y[0][7]] if num_classes else 99.0
    y = table.y[0].copy()
    y[7] = shift
    after = Described(table._replace(y=(y, table.y[1])), before.by, OPTIONS)
    assert np.array_equal(before.train[7], after.train[7])
    assert not np.array_equal(before.train, after.train)
    # Those of validation rows reach new rows alone.
    y_val = table.y[1][::-1].copy()
    after = Described(table._replace(y=(table.y[0], y_val)), before.by, OPTIONS)
    assert np.array_equal(before.train, after.train)
    assert np.array_equal(before.val, after.val)
    assert not np.array_equal(before.new(table.x[2]), after.new(table.x[2]))


@pytest.mark.parametrize('num_classes', [0, 3])
@pytest.mark.parametrize('library', LIBRARIES)
def test_trees(library, num_classes):
    if library != 'hist_boosting':
        pytest.importorskip(library)
    table, _ = seen(num_classes)
    choice = draw_choice(table, METHODS[f'{library}_tuned'], 0, 1)
    model, again = (fit(table, METHODS[library], choice, OPTIONS) for _ in range(2))
    predictions = model.predict(table.x[2])
    assert predictions.shape == (12, num_classes)[: 1 + bool(num_classes)]
    assert np.isfinite(predictions).all()
    assert np.array_equal(predictions, again.predict(table.x[2]))
    if num_classes:
        assert predictions.sum(axis=1) == pytest.approx(1)


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
@pytest.mark.parametrize('num_classes', [0, 3])
@pytest.mark.parametrize('network', ['no_labels', 'frozen'])
def test_networks_with_one_part_changed(network, num_classes):
    table, _ = seen(num_classes, rows=100)
    options = {'n_members': 1, 'max_iter': 2, 'network': network}
    method = METHODS[network]._replace(options=options | {'graph': 'learned'})
    fitted = fit(table, method, {}, OPTIONS)
    assert np.isfinite(fitted.predict(table.x[2])).all()
    assert [*fitted.choice['weights'].values()] == [1.0]
    # The labels of training rows do not reach predictions by the graph.
    model = make_estimator(table, method, OPTIONS)
    net = model._network_class(4, 8, max(1, num_classes), num_frequencies=0)
    y = torch.arange(6) % 3 if num_classes else torch.randn(6)
    x = torch.randn(6, 4)
    out, flipped = net.eval()(x, y), net(x, y.flip(0))
    assert torch.equal(out, flipped) == (network == 'no_labels')
    net.train()(x, y).sum().backward()
    assert (net.lin_key.weight.grad is None) == (network == 'frozen')


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
def test_members_are_removed_from_a_blend():
    table, _ = seen(rows=100)
    for removed, names in {
        'no_boosting': ('boosting', 'slow boosting'),
        'no_linear': ('linear model',),
        'no_graph': ('learned graph, robust',),
    }.items():
        method = METHODS[removed]
        options = method.options | {'n_members': 1, 'max_iter': 2}
        fitted = fit(table, method._replace(options=options), {}, OPTIONS)
        every = {'boosting', 'slow boosting', 'linear model', 'no graph, robust'}
        every |= {'learned graph, robust'}
        assert {*fitted.choice['weights']} == every - {*names}


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
def test_snapshots_average_the_last_two_cycles():
    table, _ = seen(rows=100)
    method = METHODS['snapshots']
    options = method.options | {'max_iter': 300}
    model = make_estimator(table, method._replace(options=options), OPTIONS)
    model.fit(table.x[0], table.y[0])
    (member,) = model._blend.members
    assert len(member.models) == 2
    before_last, last = (net.head.weight for net in member.models)
    assert not torch.equal(before_last, last)
    mean = member.outputs(table.x[2])
    models = member.models
    outputs = []
    for net in models:
        member.models = [net]
        outputs.append(member.outputs(table.x[2]))
    np.testing.assert_allclose(mean, np.mean(outputs, axis=0), rtol=1e-6)


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
def test_a_logarithm_of_the_target():
    table, _ = seen(rows=100)
    table = table._replace(y=tuple(np.exp(y) - 1 for y in table.y))
    method = METHODS['log_target']
    options = method.options | {'graph': 'none', 'n_members': 1, 'max_iter': 2}
    fitted = fit(table, method._replace(options=options), {}, OPTIONS)
    model = make_estimator(table, method._replace(options=options), OPTIONS)
    x, y = (np.concatenate(rows[:2]) for rows in (table.x, table.y))
    mask = np.arange(len(y)) >= len(table.y[0])
    model.regressor.fit(x, np.log1p(y), validation_mask=mask)
    expected = np.expm1(model.regressor.predict(table.x[2]))
    np.testing.assert_allclose(fitted.predict(table.x[2]), expected, rtol=1e-6)


def test_methods_of_earlier_versions_do_not_run():
    assert 'earlier version' in obstacle('california', 'ours_0_2')
    assert obstacle('california', 'ours') is None


def test_a_search_goes_on(tmp_path, monkeypatch):
    table, _ = seen()
    method, path = METHODS['hist_boosting_tuned'], tmp_path / 'trials.json'
    undisturbed = search(table, method, OPTIONS, 4, tmp_path / 'other.json')
    done = []

    def killed(*args):
        done.append(args[2])
        if len(done) == 3:
            raise KeyboardInterrupt
        return fit(*args)

    monkeypatch.setattr(tables_methods, 'fit', killed)
    with pytest.raises(KeyboardInterrupt):
        search(table, method, OPTIONS, 4, path)
    assert search(table, method, OPTIONS, 4, path) == undisturbed
    assert len(done) == 3 + 3
    assert done[2] == done[3]
    # Of all settings the one with the lowest error on validation rows.
    trials = read_json(path)['trials']
    best = min(trials, key=lambda trial: trial['val']['rmse'])
    assert best['choice'] == undisturbed
    search(table, method, OPTIONS._replace(seed=1), 0, path)
    assert len(done) == 7


@pytest.mark.parametrize('method', ['knn', 'hist_boosting_tuned'])
def test_targets_of_test_rows_are_scored_only(method, sources, tmp_path, monkeypatch):
    run = Run('numbers', method, '1')
    result = execute(run, TINY, 2, 1, tmp_path)
    table = made()
    _, _, test = split(table, sources['numbers'], '1')
    table.y[test] += 1e6
    changed = sources['numbers']._replace(read=lambda: table)
    monkeypatch.setitem(SOURCES, 'numbers', changed)
    again = execute(run, TINY, 2, 1, tmp_path / 'again')
    assert again['val'] == result['val']
    assert again['choice'] == result['choice']
    assert again['test']['rmse'] > 1e5 > result['test']['rmse']


def test_goes_on_where_it_was_ended(sources, at_once, tmp_path, monkeypatch, capsys):
    words = ['--methods', 'knn', 'hist_boosting', '--splits', '0', 'time', '1']
    words += ['--results', str(tmp_path)]
    done = []

    def spy(run, *args, **kwargs):
        done.append(str(run))
        if len(done) == 6:
            raise KeyboardInterrupt
        return execute(run, *args, **kwargs)

    monkeypatch.setattr(tables_runs, 'execute', spy)
    with pytest.raises(KeyboardInterrupt):
        main(words, TINY)
    # All methods of a split come before the next one; classes have no time.
    starts = [run.rpartition('/')[2] for run in done]
    assert starts == ['0', '0', '0', '0', 'time', 'time']
    finished = units(tmp_path, 'numbers')
    assert [*finished] == [
        'numbers/hist_boosting/0',
        'numbers/knn/0',
        'numbers/knn/time',
    ]
    main(words, TINY)
    assert done[6] == 'numbers/hist_boosting/time'
    assert {**units(tmp_path, 'numbers'), **finished} == units(tmp_path, 'numbers')
    main(words, TINY)
    assert len(done) == 6 + 5
    assert 'tables: 10 units, 10 finished' in capsys.readouterr().out
    # Of another setting nothing is finished.
    assert not TableResults(tmp_path, 'numbers', TINY | {'trees': 6}, METHODS).runs
