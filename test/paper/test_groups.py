"""New groups and later rows: folds, validation rows, runs and their table."""

from functools import partial

import numpy as np
import pytest

from reproduction import groups
from reproduction.groups import CASES, GROUPS_SETTING, METHODS, Run
from torch_geometric_gsl.sklearn import GSLRegressor

SMALL = GROUPS_SETTING | {'most_rows': 300}


@pytest.fixture(autouse=True)
def _one_small_network(monkeypatch):
    small = {'n_members': 1, 'hidden_channels': 16, 'max_iter': 20}
    monkeypatch.setattr(groups, 'GSLRegressor', partial(GSLRegressor, **small))


@pytest.mark.parametrize('fold', range(5))
def test_folds_hold_out_whole_groups(fold):
    x, y, group = groups.load(CASES['patients'])
    assert len(x) == len(y) == len(group) == 4000
    train, test = groups.rows_of(CASES['patients'], group, fold, 4000)
    assert not np.isin(group[test], group[train]).any()
    assert len(train) + len(test) == 4000
    assert len(groups.rows_of(CASES['patients'], group, fold, 300)[0]) == 300


def test_each_group_is_held_out_once():
    group = groups.load(CASES['patients'])[2]
    tests = [groups.rows_of(CASES['patients'], group, i, 9)[1] for i in range(5)]
    assert np.sort(np.concatenate(tests)).tolist() == [*range(4000)]


def test_later_rows_are_held_out():
    order = np.random.RandomState(0).permutation(100) // 2
    train, test = groups.rows_of(CASES['later'], order, 0, 100)
    assert order[train].max() <= order[test].min()
    assert (len(train), len(test)) == (80, 20)


@pytest.mark.parametrize('is_told', [False, True])
def test_validation_rows(is_told):
    group = np.arange(400) // 8
    is_val = groups.held_out(CASES['patients'], group, is_told, 0.2, 0)
    assert is_val.sum() == 80
    assert np.isin(group[is_val], group[~is_val]).any() != is_told
    is_val = groups.held_out(CASES['later'], group, is_told, 0.2, 0)
    assert is_val.sum() == 80
    assert (group[is_val].min() > group[~is_val].max()) == is_told


@pytest.mark.filterwarnings('ignore')
def test_runs_and_their_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(METHODS, 'blend', METHODS['blend']._replace(graph='none'))
    folder = ['--results', str(tmp_path), '--seeds', '1', '--cases', 'patients']
    groups.main([*folder, '--methods', 'blend'], SMALL)
    grid = groups.groups_grid(tmp_path)
    assert grid.head[1:] == [case.title for case in CASES.values()]
    entries = dict(grid.rows)['blend']
    shown = [entry.ours for entry in entries]
    assert [text != '' for text in shown] == [False, False, True, False, False]
    # The deviation of the target is 1.8.
    assert 0.5 < float(shown[2]) < 1.8
    groups.main([*folder, '--methods', 'blend'], SMALL)
    assert 'groups: 1 runs, 1 finished' in capsys.readouterr().out


@pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')
def test_a_run_that_is_told_the_groups():
    name, result = groups.execute(Run('patients', 'learned_told', 0), SMALL)
    assert name == 'patients/learned_told/0'
    assert 0.5 < result['test'] < 1.8
    assert result['weights'] == {'learned graph, robust': 1.0}
