"""Data, methods, runs and the report of the experiment on tables."""

import itertools
import math

import numpy as np
import pytest
from scipy import sparse, stats

from reproduction import (
    tables_methods,
    tables_runs,
    tables_store,
)
from reproduction.files import read_json
from reproduction.summary import holm
from reproduction.tables_data import SOURCES, Source, Table, problem, split
from reproduction.tables_grids import (
    paired_grid,
    panel_grid,
    table_grid,
)
from reproduction.tables_methods import METHODS, SETTING, fit, search
from reproduction.tables_neighbours import (
    Described,
    Options,
)
from reproduction.tables_report import read_units
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
    found = {
        'numbers': Source(made, unit='m', place=(1, 2), time=(3,)),
        'classes': Source(lambda: made(3), is_regression=False),
    }
    for name in [*SOURCES]:
        monkeypatch.delitem(SOURCES, name)
    for name, source in found.items():
        monkeypatch.setitem(SOURCES, name, source)
    return found


@pytest.fixture
def at_once(monkeypatch):
    """Units run in this process, which knows the small tables."""

    def run(task, unit):
        return task(unit), ''

    monkeypatch.setattr(tables_store, 'in_own_process', run)
    monkeypatch.setattr(tables_store, 'start_server', lambda threads: None)


def seen(num_classes=0, place=(1, 2)):
    source = Source(lambda: made(num_classes), not num_classes, place=place)
    table = source.read()
    return problem(table, source, split(table, source, '0'))


def units(root, table):
    return read_json(root / 'tables' / f'{table}.json')['runs']


def test_places_are_held_out_whole():
    rng = np.random.default_rng(1)
    centres = np.stack([np.arange(10) % 5, np.arange(10) // 5], axis=1) * 100.0
    region = np.arange(200) % 10
    x = centres[region] + rng.normal(size=(200, 2))
    parts = split(Table(x, np.zeros(200)), Source(made, place=(0, 1)), 'place')
    regions = [{*region[part].tolist()} for part in parts]
    assert [len(found) for found in regions] == [7, 1, 2]
    assert sorted(itertools.chain(*regions)) == [*range(10)]


def test_words_are_reduced_by_training_rows_alone():
    x = sparse.random(60, 30, 0.3, 'csr', random_state=0)
    source = Source(made, False, reduce=3)
    rows = split(Table(x, np.arange(60) % 2, 2), source, '0')
    found, _ = problem(Table(x, np.arange(60) % 2, 2), source, rows)
    changed = x.tolil()
    changed[rows[2]] = 0
    again, _ = problem(Table(changed.tocsr(), np.arange(60) % 2, 2), source, rows)
    assert [part.shape[1] for part in found.x] == [3, 3, 3]
    assert np.array_equal(found.x[1], again.x[1])


@pytest.mark.parametrize('num_classes', [0, 3])
def test_no_row_is_told_its_own_target(num_classes):
    known, _ = seen(num_classes)
    before = Described(known, ('columns', 'place'), OPTIONS)
    shift = np.roll(np.arange(3), 1)[known.y[0][7]] if num_classes else 99.0
    y = known.y[0].copy()
    y[7] = shift
    after = Described(known._replace(y=(y, known.y[1])), before.by, OPTIONS)
    assert np.array_equal(before.train[7], after.train[7])
    assert not np.array_equal(before.train, after.train)
    # Those of validation rows reach new rows alone.
    y_val = known.y[1][::-1].copy()
    after = Described(known._replace(y=(known.y[0], y_val)), before.by, OPTIONS)
    assert np.array_equal(before.train, after.train)
    assert np.array_equal(before.val, after.val)
    assert not np.array_equal(before.new(known.x[2]), after.new(known.x[2]))


@pytest.mark.parametrize('num_classes', [0, 3])
@pytest.mark.parametrize('library', LIBRARIES)
def test_trees(library, num_classes):
    if library != 'hist_boosting':
        pytest.importorskip(library)
    known, _ = seen(num_classes)
    choice = draw_choice(known, METHODS[f'{library}_tuned'], 0, 1)
    first, again = (fit(known, METHODS[library], choice, OPTIONS) for _ in range(2))
    found = first.predict(known.x[2])
    assert found.shape == (12, num_classes)[: 1 + bool(num_classes)]
    assert np.isfinite(found).all()
    assert np.array_equal(found, again.predict(known.x[2]))
    if num_classes:
        assert found.sum(axis=1) == pytest.approx(1)


def test_a_search_goes_on(tmp_path, monkeypatch):
    known, _ = seen()
    method, path = METHODS['hist_boosting_tuned'], tmp_path / 'trials.json'
    undisturbed = search(known, method, OPTIONS, 4, tmp_path / 'other.json')
    done = []

    def killed(*args):
        done.append(args[2])
        if len(done) == 3:
            raise KeyboardInterrupt
        return fit(*args)

    monkeypatch.setattr(tables_methods, 'fit', killed)
    with pytest.raises(KeyboardInterrupt):
        search(known, method, OPTIONS, 4, path)
    assert search(known, method, OPTIONS, 4, path) == undisturbed
    assert len(done) == 3 + 3
    assert done[2] == done[3]
    # Of all settings the one with the lowest error on validation rows.
    trials = read_json(path)['trials']
    best = min(trials, key=lambda trial: trial['val']['rmse'])
    assert best['choice'] == undisturbed
    search(known, method, OPTIONS._replace(seed=1), 0, path)
    assert len(done) == 7


@pytest.mark.parametrize('method', ['knn', 'hist_boosting_tuned'])
def test_targets_of_test_rows_are_scored_only(method, sources, tmp_path, monkeypatch):
    run = Run('numbers', method, '1')
    first = execute(run, TINY, 2, 1, tmp_path)
    table = made()
    _, _, test = split(table, sources['numbers'], '1')
    table.y[test] += 1e6
    changed = sources['numbers']._replace(read=lambda: table)
    monkeypatch.setitem(SOURCES, 'numbers', changed)
    again = execute(run, TINY, 2, 1, tmp_path / 'again')
    assert again['val'] == first['val']
    assert again['choice'] == first['choice']
    assert again['test']['rmse'] > 1e5 > first['test']['rmse']


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
    first = units(tmp_path, 'numbers')
    assert [*first] == ['numbers/hist_boosting/0', 'numbers/knn/0', 'numbers/knn/time']
    main(words, TINY)
    assert done[6] == 'numbers/hist_boosting/time'
    assert {**units(tmp_path, 'numbers'), **first} == units(tmp_path, 'numbers')
    main(words, TINY)
    assert len(done) == 6 + 5
    assert 'tables: 10 units, 10 finished' in capsys.readouterr().out
    # Of another setting nothing is finished.
    assert not TableResults(tmp_path, 'numbers', TINY | {'trees': 6}, METHODS).runs


def result(value, measure='rmse', **more):
    cost = {'search': 1.0, 'fit': 2.0, 'predict': 0.5}
    scores = {'rmse': value} if measure == 'rmse' else {'error': value, 'log_loss': 1.0}
    about = {'val': None, 'choice': {}, 'trials': None, 'seconds': cost}
    about |= {'megabytes': {'before': 90.0, 'peak': 100.0}}
    return {'test': scores, 'deviation': 2.0, **about, **more}


@pytest.fixture
def finished(sources, tmp_path):
    """Errors of four splits: ours is better than one control, and like another."""
    errors = {
        'ours': [0.50, 0.52, 0.51, 0.53],
        'ours_4': [0.49, 0.51, 0.50, 0.52],
        'lightgbm': [0.80, 0.83, 0.81, 0.84],
        'knn': [0.60, 0.42, 0.61, 0.45],
        'cosine': [0.60, 0.63, 0.61, 0.62],
    }
    for table, measure in {'numbers': 'rmse', 'classes': 'error'}.items():
        kept = TableResults(tmp_path, table, SETTING, METHODS)
        for method, values in errors.items():
            for number, value in enumerate(values):
                kept.finish(Run(table, method, str(number)), result(value, measure))
    kept = TableResults(tmp_path, 'numbers', SETTING, METHODS)
    kept.finish(Run('numbers', 'knn', 'place'), result(1.25))
    kept.finish(Run('numbers', 'ours', 'place'), result(1.0))
    return tmp_path, errors


def corrected(ours, other, scale):
    """The test of Nadeau and Bengio, written out."""
    d = scale * (np.array(ours) - np.array(other))
    error = math.sqrt(d.var(ddof=1) * (1 / len(d) + 0.2 / 0.64))
    return 2 * stats.t.sf(abs(d.mean()) / error, len(d) - 1)


def test_the_table_of_a_table(finished):
    root, _ = finished
    grid = table_grid('numbers', root)
    first = 'RMSE, m (deviation of the target: 2)'
    assert grid.head == ['numbers', first, 'RMSE, m, by place']
    rows = dict(grid.rows)
    ours, knn = rows['learned graph, one member'], rows['nearest rows, tuned']
    assert [entry.ours for entry in ours] == ['0.515 ± 0.013 (4)', '1.00']
    assert [entry.is_best for entry in ours] == [False, True]
    assert [entry.ours for entry in knn] == ['0.520 ± 0.099 (4)', '1.25']
    assert rows['learned graph, four members'][0].is_best
    grid = table_grid('classes', root)
    assert grid.head == ['classes', 'errors, %', 'log loss']
    assert dict(grid.rows)['learned graph, one member'][0].ours == '51.5 ± 1.3 (4)'


def test_wins_ties_and_losses(finished):
    root, errors = finished
    grid, none = paired_grid(root), [('', '', False)]  # `auto` has no units.
    assert grid.rows == [
        ('nearest rows, tuned', [('0 / 2 / 0', 'lower on 2 of 2', False)] * 2 + none),
        ('LightGBM, default', [('2 / 0 / 0', 'lower on 2 of 2', False)] * 2 + none),
    ]
    assert 'for all 8 tests' in grid.notes[0]
    pairs = itertools.product(('ours', 'ours_4'), ('knn', 'lightgbm'), (50, 100))
    p_values = {
        (own, name, scale): corrected(errors[own], errors[name], scale)
        for own, name, scale in pairs
    }
    found = holm(p_values)
    assert all((p < 0.05) == (key[1] == 'lightgbm') for key, p in found.items())
    rows = dict(panel_grid(root).rows)
    entry = rows['LightGBM, default'][0]
    assert entry[:2] == ('41.00 ± 0.91 (4)', 'ours -15.25*')
    assert rows['nearest rows, tuned'][1].paper == 'ours -0.50'


def test_the_graph_that_validation_chooses(sources, tmp_path):
    kept = TableResults(tmp_path, 'numbers', SETTING, METHODS)
    units = {
        'ours': ('learned', 0.3),
        'nearest': ('nearest', 0.2),
        'mlp': ('none', 0.4),
    }
    for name in '012':
        for number, (method, (graph, loss)) in enumerate(units.items()):
            loss = loss if name != '1' else -loss
            choice = {'graph': graph, 'losses': {graph: loss}}
            if (name, method) != ('2', 'mlp'):
                found = result(1.0 + number, choice=choice)
                kept.finish(Run('numbers', method, name), found)
    found = read_units(tmp_path, 'numbers')
    assert found['auto', '0']['test'] == {'rmse': 2.0}
    assert found['auto', '0']['choice'] == {
        'graph': 'nearest',
        'losses': {'learned': 0.3, 'nearest': 0.2, 'none': 0.4},
    }
    assert found['auto', '0']['seconds'] == {'search': 3.0, 'fit': 6.0, 'predict': 0.5}
    assert found['auto', '1']['test'] == {'rmse': 3.0}
    assert ('auto', '2') not in found
    kept.finish(Run('numbers', 'auto', '0'), result(7.0))
    assert read_units(tmp_path, 'numbers')['auto', '0']['test'] == {'rmse': 7.0}
