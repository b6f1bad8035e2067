"""Cells and tests of runs, and tables of our own experiments."""

import math

import pytest
from scipy import stats

from reproduction.experiments import RunConfig
from reproduction.pays import Setting
from reproduction.store import Store
from reproduction.summary import Cell, compare, holm, make_cell


def test_errors_are_compared_by_their_ratios():
    ours, control = Cell({0: -0.1, 1: -0.2, 2: -0.4}), Cell({0: -0.2, 1: -0.6, 2: -1.6})
    row = Setting('', (control, None, None, ours), 'error')
    ratios = [math.log(0.2 / 0.1), math.log(0.6 / 0.2), math.log(1.6 / 0.4)]
    assert row.p_value() == pytest.approx(stats.ttest_1samp(ratios, 0).pvalue)


def test_holm():
    corrected = holm({'a': 0.01, 'b': 0.04, 'c': 0.03, 'd': math.nan})
    assert corrected == pytest.approx({'a': 0.03, 'c': 0.06, 'b': 0.06})
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
    ours = Cell({0: 70.0, 1: 72.5, 2: 71.0, 3: 69.0, 9: 1.0})
    control = Cell({3: 68.5, 2: 70.0, 1: 70.0, 0: 70.5, 8: 1.0})
    comparison = compare(ours, control)
    pairs = [70.0, 72.5, 71.0, 69.0], [70.5, 70.0, 70.0, 68.5]
    plain = stats.ttest_rel(*pairs)
    # The variance of the mean is 1/4 + 1/2 times that of a difference, not 1/4.
    corrected = 2 * stats.t.sf(abs(plain.statistic) / 3**0.5, 3)
    assert comparison.p_value == pytest.approx(corrected)
    assert comparison.difference == pytest.approx(0.875)
    assert comparison.num_splits == 4
    assert str(comparison) == f'+0.9 ± 1.2, p = {comparison.p_value:.3f} (4)'


def test_compare_few():
    assert compare(Cell({0: 1.0}), Cell({1: 1.0})) is None
    single = compare(Cell({0: 2.0}), Cell({0: 1.0}))
    assert str(single) == '+1.0 (1)'
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
