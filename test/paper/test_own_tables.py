"""Cells and tests of runs, and tables of our own experiments."""

import math

import pytest
from scipy import stats

from reproduction import half_tables, labels_tables, noisy_tables, relation_tables
from reproduction.experiments import RunConfig
from reproduction.files import write_json
from reproduction.own_tables import compare_ours, compared_grid
from reproduction.pays_tables import Setting, pays_grid
from reproduction.relations import METHODS as HIDDEN_METHODS
from reproduction.store import Store
from reproduction.summary import Cell, Comparison, compare, holm, make_cell
from reproduction.training import GIVEN

TITLES = {'one': 'One', 'two': 'Two', 'ours': 'Ours'}


def write(root, file, methods, *names):
    """Write a result of each method and seed under each name."""
    runs = {
        name.format(method=method, seed=seed): {'val': 0.5, 'test': test}
        for name in names
        for method, tests in methods.items()
        for seed, test in enumerate(tests)
    }
    write_json(root / file, {'digests': {}, 'runs': runs})


def rows_of(found, pairs=None, **options):
    columns = {('set', 0): 'none', ('set', 5): 'five'}
    grid = compared_grid(found, columns, TITLES, pairs or {}, str, **options)
    assert grid.head == ['', 'none', 'five']
    return dict(grid.rows), grid.notes


def test_the_best_is_one_of_most_runs():
    found = {
        ('set', 0, 'one'): Cell({0: 80.0, 1: 82.0, 2: 81.0}),
        ('set', 0, 'two'): Cell({0: 79.96, 1: 81.04, 2: 81.96}),
        ('set', 0, 'ours'): Cell({0: 99.0, 1: 99.0}),
        ('set', 5, 'one'): Cell({0: 80.0, 1: 82.0}),
    }
    rows, _ = rows_of(found)
    assert [entry.ours for entry in rows['One']] == ['81.0 ± 1.0 (3)', '81.0 ± 1.4 (2)']
    # Equal as printed; two runs are too few in either column.
    best = {name: [entry.is_best for entry in row] for name, row in rows.items()}
    assert best == {'One': [True, False], 'Two': [True, False], 'Ours': [False, False]}


def test_differences_stand_below():
    found = {('set', 0, name): Cell({0: 80.0}) for name in TITLES}
    pairs = {
        ('set', 0, 'one'): Comparison(1.26, 1.0, 0.024, 3),
        ('set', 0, 'two'): Comparison(-0.5, 1.0, 0.051, 3),
    }
    rows, notes = rows_of(found, pairs)
    assert [rows[name][0].paper for name in rows] == ['ours +1.3*', 'ours -0.5', '']
    assert notes == ['2']
    # One test alone is not corrected; what is not tested has no star.
    pairs['set', 0, 'one'] = Comparison(1.26, 1.0, 0.026, 3)
    assert rows_of(found, pairs)[0]['One'][0].paper == 'ours +1.3'
    rows, notes = rows_of(found, pairs, untested={'two'})
    assert rows['One'][0].paper == 'ours +1.3*'
    assert notes == ['1']


def test_ours_is_compared_within_its_column():
    found = {
        ('set', 0, 'one'): Cell({0: 1.0, 1: 2.0, 2: 4.0}),
        ('set', 0, 'ours'): Cell({0: 3.0, 1: 3.0, 2: 3.0, 3: 9.0}),
        ('set', 5, 'one'): Cell({0: 1.0}),
    }
    pairs = compare_ours(found, 'ours')
    assert list(pairs) == [('set', 0, 'one')]
    assert pairs['set', 0, 'one'].difference == pytest.approx(2 / 3)
    plain = compare_ours(found, 'ours', overlap=0.0)['set', 0, 'one']
    assert plain.p_value < pairs['set', 0, 'one'].p_value
    # The same gain in each run is no sign of a spread of zero.
    found['set', 0, 'one'] = Cell({0: 2.0, 1: 2.0, 2: 2.0})
    assert math.isnan(compare_ours(found, 'ours')['set', 0, 'one'].p_value)


def test_validation_chooses_between_the_rows_of_ours(tmp_path):
    pairs = {
        'ours': [(0.7, 0.60), (0.8, 0.61), (0.7, 0.62), (0.7, 0.6)],
        # The third split of this one has not run, and the fourth predicted nothing.
        'ours_null': [(0.8, 0.50), (0.7, 0.52), None, (None, None)],
    }
    runs = {
        f'CS/{method}/{seed}': dict(zip(('val', 'test'), pair, strict=True))
        for method, found in pairs.items()
        for seed, pair in enumerate(found)
        if pair is not None
    }
    write_json(tmp_path / half_tables.HALF, {'digests': {}, 'runs': runs})
    chosen = {('CS', 'either'): Cell({0: 50.0, 1: 61.0})}
    assert half_tables.read_either(tmp_path) == chosen


def test_labels(tmp_path):
    tests = {'logreg': [0.5, 0.51, 0.52, 0.5], 'mlp': [0.6, 0.62, 0.61, 0.6]}
    tests |= {'ours': [0.7] * 4, 'nearest': [0.68, 0.73, 0.69, 0.7]}
    tests |= {'encoder': [0.9, 0.91, 0.92, 0.9], 'idgl': [0.6] * 4}
    names = 'wine/5/{method}/{seed}', 'CiteSeer/public/{method}/{seed}'
    write(tmp_path, labels_tables.LABELS_FILE, tests, *names)
    rows = dict(labels_tables.labels_grid('wine', tmp_path).rows)
    assert rows['MLP'][0][:2] == ('60.8 ± 1.0 (4)', 'ours +9.2*')
    pairs = labels_tables.compare_controls(labels_tables.read_cells(tmp_path))
    expected = stats.ttest_rel([70.0] * 4, [60, 62, 61, 60]).pvalue
    assert pairs['wine', '5', 'mlp'].p_value == pytest.approx(expected)
    # Of a single split nothing is tested.
    public = dict(labels_tables.labels_grid('CiteSeer', tmp_path).rows)
    assert public['MLP'][0].paper == 'ours +9.2'
    grid = labels_tables.labels_paired(tmp_path)
    found = {title: [entry.ours for entry in row] for title, row in grid.rows}
    # Wins, ties and losses; no test is made of the same gain in each run.
    assert found == {
        'logistic regression': ['1', '0', '0'],
        'MLP': ['1', '0', '0'],
        'encoder (DGI)': ['0', '0', '1'],
        'nearest nodes, consistency': ['0', '1', '0'],
    }


def test_hidden_relations(tmp_path):
    errors = {name: [0.05] * 3 for name in HIDDEN_METHODS}
    errors['bell'] = [0.5, 0.505, 0.51]
    write(tmp_path, relation_tables.HIDDEN, errors, '40/{method}/{seed}')
    rows = dict(relation_tables.hidden_grid(tmp_path).rows)
    assert rows['bell'][0].ours == '0.505 ± 0.005'
    rows = dict(relation_tables.hidden_paired(tmp_path).rows)
    assert rows['bell'][0].ours == '10.10*'
    assert rows['cosine'][0].ours == '1.00'  # Without any spread there is no test.


@pytest.fixture
def finished(tmp_path):
    accuracies = {
        'mlp': [0.70, 0.72, 0.71],
        'uniform': [0.71, 0.73, 0.74],
        'ours': [0.80, 0.83, 0.81],
    }
    errors = {'mlp': [0.9, 1.0, 1.1, 9.0], 'uniform': [1.0, 1.1, 1.2]}
    errors['tanh'] = [0.1, 0.3, 0.2, 9.0]
    write(tmp_path, relation_tables.HIDDEN, errors, '120/{method}/{seed}')
    noisy = {noisy_tables.OURS if k == 'ours' else k: v for k, v in accuracies.items()}
    write(tmp_path, noisy_tables.NOISE, noisy, 'CiteSeer/+300/{method}/{seed}')
    names = 'wine/5/{method}/{seed}', 'CiteSeer/public/{method}/{seed}'
    write(tmp_path, labels_tables.LABELS_FILE, accuracies, *names)
    write(tmp_path, half_tables.HALF, accuracies, 'CS/{method}/{seed}')
    return tmp_path


def test_p_values_of_all_settings_are_corrected_together(finished):
    rows = dict(pays_grid(finished).rows)
    ours, best = Cell({0: 80.0, 1: 83.0, 2: 81.0}), Cell({0: 71.0, 1: 73.0, 2: 74.0})
    plain = float(stats.ttest_rel([80, 83, 81], [71, 73, 74]).pvalue)
    ratios = [math.log(0.9 / 0.1), math.log(1.0 / 0.3), math.log(1.1 / 0.2)]
    error = float(stats.ttest_1samp(ratios, 0.0).pvalue)
    overlap = compare(ours, best).p_value
    assert plain < overlap
    found = holm({'hidden': error, 'wine': plain, 'noise': overlap, 'half': overlap})
    titles = {
        'hidden': 'hidden relation at 120°, error',
        'wine': 'wine, no graph, 5 labels a class',
        'noise': 'CiteSeer, +300 % random edges',
        'half': 'CS, no graph, half labelled',
    }
    for name, title in titles.items():
        assert rows[title][-1].paper == f'p = {found[name]:.3f}'
    # One split has no test.
    public = rows["CiteSeer, no graph, Planetoid's split"]
    assert public[-1] == ('+8.7', '', False)
    # Of the three seeds that all methods have.
    hidden = rows[titles['hidden']]
    assert [entry.ours for entry in hidden[:-1]] == ['1.000', '', '1.100', '0.200', '3']
    assert [entry.is_best for entry in hidden[:4]] == [False, False, False, True]


def test_errors_are_compared_by_their_ratios():
    ours, other = Cell({0: -0.1, 1: -0.2, 2: -0.4}), Cell({0: -0.2, 1: -0.6, 2: -1.6})
    row = Setting('', (other, None, None, ours), 'error')
    ratios = [math.log(0.2 / 0.1), math.log(0.6 / 0.2), math.log(1.6 / 0.4)]
    assert row.p_value() == pytest.approx(stats.ttest_1samp(ratios, 0).pvalue)


def test_holm():
    found = holm({'a': 0.01, 'b': 0.04, 'c': 0.03, 'd': math.nan})
    assert found == pytest.approx({'a': 0.03, 'c': 0.06, 'b': 0.06})
    assert holm({'a': 0.9, 'b': 0.8}) == {'b': 1.0, 'a': 1.0}


def test_cell():
    cell = Cell({0: 70.0, 1: 72.0, 2: 71.0})
    assert str(cell) == '71.0 ± 1.0 (3)'
    assert str(Cell({0: 70.0}, marks='†')) == '70.0† (1)'
    assert str(Cell({}, 'OOM at 24 GB')) == 'OOM at 24 GB'
    assert str(Cell({})) == ''
    assert str(Cell({}, marks='†')) == '†'
    assert str(Cell({0: 70.0}, 'OOM at 24 GB')) == '70.0 (1, OOM at 24 GB)'


def test_make_cell(tmp_path):
    store = Store(tmp_path)
    configs = [RunConfig('wine', 'mlp', seed) for seed in range(5)]
    outcomes = [
        {'status': 'done', 'test': 0.5},
        {'status': 'timeout', 'test': 0.25},
        {'status': 'oom', 'detail': 'OOM at 24 GB'},
        {'status': 'diverged', 'test': None},
    ]
    for config, outcome in zip(configs, outcomes, strict=False):
        store.finish(config, outcome, {'starts': [{}]})
    assert make_cell(store, configs) == Cell({0: 50.0, 1: 25.0}, 'OOM at 24 GB', '†‡')
    assert make_cell(store, configs[4:]) == Cell({})


def test_compare_is_the_paired_t_test_for_splits_that_overlap():
    first = Cell({0: 70.0, 1: 72.5, 2: 71.0, 3: 69.0, 9: 1.0})
    second = Cell({3: 68.5, 2: 70.0, 1: 70.0, 0: 70.5, 8: 1.0})
    found = compare(first, second)
    pairs = [70.0, 72.5, 71.0, 69.0], [70.5, 70.0, 70.0, 68.5]
    plain = stats.ttest_rel(*pairs)
    # The variance of the mean is 1/4 + 1/2 times that of a difference, not 1/4.
    corrected = 2 * stats.t.sf(abs(plain.statistic) / 3**0.5, 3)
    assert found.p_value == pytest.approx(corrected)
    assert found.difference == pytest.approx(0.875)
    assert found.num_splits == 4
    assert str(found) == f'+0.9 ± 1.2, p = {found.p_value:.3f} (4)'


def test_compare_few():
    assert compare(Cell({0: 1.0}), Cell({1: 1.0})) is None
    one = compare(Cell({0: 2.0}), Cell({0: 1.0}))
    assert str(one) == '+1.0 (1)'
    same = compare(Cell({0: 2.0, 1: 3.0}), Cell({0: 1.0, 1: 2.0}))
    assert math.isnan(same.p_value)
    # Nor do equal differences have a spread where they are rounded: 1 of 45 nodes.
    hits = ((43, 42), (41, 40), (44, 43))
    cells = [
        Cell({s: 100 * (hits[s][i] / 45) for s in range(len(hits))}) for i in (0, 1)
    ]
    assert str(compare(*cells)) == '+2.2 (3)'
    # Two splits are no sample.
    two = compare(Cell({0: 2.0, 1: 4.0}), Cell({0: 1.0, 1: 2.0}))
    assert str(two) == '+1.5 (2)'


def test_one_split_is_not_tested(tmp_path):
    store, found = Store(tmp_path), []
    for method, scores in (('mlp', (0.5, 0.6, 0.8)), ('gcn_knn', (0.4, 0.55, 0.6))):
        configs = [RunConfig('my.pt', method, s, digest='a') for s in range(3)]
        for config, test in zip(configs, scores, strict=True):
            outcome = {'status': 'done', 'test': test, 'split': GIVEN}
            store.finish(config, outcome, {'starts': [{}]})
        found.append(make_cell(store, configs))
    assert str(compare(*found)) == '+11.7 (3)'
    free = [cell._replace(is_one_split=False) for cell in found]
    assert 'p = ' in str(compare(*free))
