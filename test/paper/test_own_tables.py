"""The rows of accuracies of our own experiments."""

import math

import pytest

from reproduction.own_tables import compare_ours, compared_grid
from reproduction.summary import Cell, Comparison

TITLES = {'one': 'One', 'two': 'Two', 'ours': 'Ours'}


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
    assert list(rows) == ['One', 'Two', 'Ours']
    assert [entry.ours for entry in rows['One']] == ['81.0 ± 1.0 (3)', '81.0 ± 1.4 (2)']
    assert [entry.ours for entry in rows['Ours']] == ['99.0 ± 0.0 (2)', '']
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
    assert [rows[name][1].paper for name in rows] == ['', '', '']
    assert rows['One'][0].ours == '80.0 (1)'
    assert notes == ['2']
    # One test alone is not corrected; what is not tested has no star.
    pairs['set', 0, 'one'] = Comparison(1.26, 1.0, 0.026, 3)
    assert rows_of(found, pairs)[0]['One'][0].paper == 'ours +1.3'
    rows, notes = rows_of(found, pairs, untested={'two'})
    assert rows['One'][0].paper == 'ours +1.3*'
    assert rows['Two'][0].paper == 'ours -0.5'
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
