"""Columns that identify groups of rows are named, and categories are not."""

import warnings

import numpy as np
import pandas
import pytest

from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor
from torch_geometric_gsl.sklearn._column_warnings import find_identifier

TEXT = "column '{}' may identify groups"
FEW = {'n_members': 1, 'max_iter': 30, 'random_state': 0}


def draw_groups(num_groups, size, seed=0):
    """Draw a group of each row, traits of groups, and a target with group effects."""
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(num_groups), size)
    traits = random.normal(size=(num_groups, 2))[group]
    traits = traits + 0.01 * random.normal(size=traits.shape)
    y = 3 * random.normal(size=num_groups)[group]
    return random, group, traits, y + 0.3 * random.normal(size=len(group))


@pytest.mark.filterwarnings('ignore:networks still improved')
def test_a_column_that_identifies_groups_is_named():
    _, group, traits, y = draw_groups(20, 20)
    table = pandas.DataFrame({'a': traits[:, 0], 'b': traits[:, 1], 'site': group})
    table['site'] = [f'site {g}' for g in table['site']]
    with pytest.warns(UserWarning, match=TEXT.format('site')):
        GSLRegressor('learned', **FEW).fit(table, y)


@pytest.mark.parametrize('name', ['brand', 'month', 'grade'])
def test_a_category_is_no_identifier(name):
    random = np.random.default_rng(0)
    value = random.integers(0, 12, 400)
    effects = {
        'brand': 5 * random.normal(size=12),
        'month': 5 * np.sin(np.arange(12) / 2),
        'grade': 5.0 * np.arange(12),
    }
    km = random.normal(size=400)
    table = pandas.DataFrame({name: value, 'km': km})
    if name == 'brand':
        table[name] = [f'brand {v}' for v in value]
    y = effects[name][value] - 2 * km + random.normal(size=400)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        GSLRegressor('learned', **FEW).fit(table, y)
    assert not any('identify' in str(warning.message) for warning in caught)


def graph_of(group):
    """Return a graph in which all rows of a group are neighbours."""
    import scipy.sparse

    same = (group[:, None] == group).astype(float)
    return scipy.sparse.csr_matrix(same / same.sum(axis=1, keepdims=True))


@pytest.mark.parametrize('case', ['few groups', 'lost class', 'rare class'])
def test_the_search_takes_any_labels(case):
    random, group, traits, _ = draw_groups(20, 15)
    y = random.permutation(np.arange(20) % 2)[group]
    labelled = np.arange(300)
    if case == 'few groups':
        labelled = labelled[group < 4]
    elif case == 'lost class':
        y[group == 5] = 2
        labelled = labelled[y != 1]
    else:
        y[7] = 2
    columns = {'a': traits[:, 0], 'site': group}
    rows = np.arange(300)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        identifier = find_identifier(
            columns, rows, graph_of(group), traits, y, labelled
        )
    assert identifier is None if case == 'few groups' else identifier[0] == 'site'


@pytest.mark.parametrize('case', ['quantity', 'text', 'number', 'regions'])
def test_a_smooth_quantity_is_no_identifier(case):
    random, group, traits, _ = draw_groups(40, 6)
    effect = 2 * random.normal(size=40)[group]
    if case in ('quantity', 'text'):  # An hour, and names with an effect of each.
        effect = 3 * np.sin(group / 5)
        traits = random.normal(size=(240, 2))
    elif case == 'regions':  # Numbers in the order of regions, with their effects.
        effect += 2 * random.normal(size=8)[group // 5]
    y = effect + 0.3 * random.normal(size=240)
    name = np.array([f'site {g}' for g in random.permutation(40)])[group]
    columns = {'a': traits[:, 0], 'site': name if case == 'text' else group}
    x = np.stack([traits[:, 0], np.unique(columns['site'], return_inverse=True)[1]], 1)
    rows = np.arange(240)
    identifier = find_identifier(columns, rows, graph_of(group), x, y[:, None], rows)
    assert (identifier is None) == (case == 'quantity')


def test_a_fit_with_labels_in_few_groups_ends():
    random, group, traits, _ = draw_groups(20, 15)
    y = np.where(group < 4, random.permutation(group) % 3, -1)
    table = pandas.DataFrame({'a': traits[:, 0], 'site': group})
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model = GSLClassifier('learned', **FEW).fit(table, y)
    assert model.predict(table).shape == (300,)
