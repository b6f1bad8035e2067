"""The table of all settings."""

import math

import pytest
from scipy import stats

from reproduction import half_tables, labels_tables, noisy_tables, relation_tables
from reproduction.files import write_json
from reproduction.pays_tables import Setting, pays_grid
from reproduction.summary import Cell, compare, holm


def results(methods, names):
    """Make results of so many seeds of each method."""
    return {
        name.format(method=method, seed=seed): {'val': 0.5, 'test': test}
        for name in names
        for method, tests in methods.items()
        for seed, test in enumerate(tests)
    }


def write(root, file, methods, *names):
    runs = results(methods, names)
    write_json(root / file, {'digests': {}, 'runs': runs})


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
    name = 'CiteSeer/+300/{method}/{seed}'
    noisy = {noisy_tables.OURS if k == 'ours' else k: v for k, v in accuracies.items()}
    write(tmp_path, noisy_tables.NOISE, noisy, name)
    names = 'wine/5/{method}/{seed}', 'CiteSeer/public/{method}/{seed}'
    write(tmp_path, labels_tables.LABELS_FILE, accuracies, *names)
    write(tmp_path, half_tables.HALF, accuracies, 'CS/{method}/{seed}')
    return tmp_path


def test_rows(finished):
    grid = pays_grid(finished)
    titles = [title for title, _ in grid.rows]
    assert titles == [
        'hidden relation at 120°, error',
        'CiteSeer, +300 % random edges',
        "CiteSeer, no graph, Planetoid's split",
        'wine, no graph, 5 labels a class',
        'CS, no graph, half labelled',
    ]
    rows = dict(grid.rows)
    hidden = rows[titles[0]]
    # Of the three seeds that all of its methods have.
    assert [entry.ours for entry in hidden[:-1]] == ['1.000', '', '1.100', '0.200', '3']
    assert [entry.is_best for entry in hidden[:4]] == [False, False, False, True]
    assert hidden[-1].ours == '-0.800'
    wine = rows[titles[3]]
    assert [entry.ours for entry in wine[:-1]] == ['71.0', '', '72.7', '81.3', '3']
    assert wine[-1].ours == '+8.7'
    # One split has no test.
    assert rows[titles[2]][-1] == ('+8.7', '', False)


def test_a_given_graph_shows_its_best_layer(tmp_path):
    """One of fewer runs is not the best, however high."""
    tests = {name: [0.5, 0.5, 0.6] for name in ('mlp', 'uniform', noisy_tables.OURS)}
    tests |= {'gcn': [0.7, 0.7, 0.8], 'gcn_root': [0.6, 0.6, 0.7], 'mean': [0.9]}
    write(tmp_path, noisy_tables.NOISE, tests, 'CiteSeer/0/{method}/{seed}')
    ((title, row),) = pays_grid(tmp_path).rows
    assert title == 'CiteSeer, its own graph'
    assert (row[1].ours, row[4].ours) == ('73.3', '3')


def test_p_values_are_corrected_for_all_rows(finished):
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


def test_errors_are_compared_by_their_ratios():
    ours, other = Cell({0: -0.1, 1: -0.2, 2: -0.4}), Cell({0: -0.2, 1: -0.6, 2: -1.6})
    row = Setting('', (other, None, None, ours), 'error')
    ratios = [math.log(0.2 / 0.1), math.log(0.6 / 0.2), math.log(1.6 / 0.4)]
    assert row.p_value() == pytest.approx(stats.ttest_1samp(ratios, 0).pvalue)
