"""The blend of an estimator: its report, its parts, far rows, groups and orders."""

import re
import warnings
from functools import lru_cache

import numpy as np
import pandas
import pytest
import scipy.sparse
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score

from torch_geometric_gsl.nn.models import table_parts
from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLRegressor,
    _blend,
    _fitting,
    _members,
)
from torch_geometric_gsl.sklearn._blend import fit_blend, is_certain
from torch_geometric_gsl.sklearn._scaling import Scaling
from torch_geometric_gsl.sklearn._splits import RowSplit, Table

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
    pytest.mark.usefixtures('few_trees'),
]

MEMBERS = [
    *('learned graph, robust', 'no graph, robust'),
    *('linear model', 'boosting', 'slow boosting'),
]
PARTS = ['constant', 'trees', 'own columns', 'neighbours', 'prediction']


def draw(n=240, seed=0):
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, size=(n, 3))
    return x, np.sin(4 * x[:, 0]) + x[:, 1] + 0.1 * random.normal(size=n)


X, Y = draw()
NEW, OF_NEW = draw(60, seed=1)


KINDS = {
    'numbers': (GSLRegressor, Y),
    'targets': (GSLRegressor, np.stack([Y, 100 - 5 * Y], axis=1)),
    'classes': (GSLClassifier, np.digitize(Y, [-0.5, 0.5])),
}


@lru_cache
def fitted(target):
    """Returns a fitted blend with weights of all members; no test may change it."""
    cls, y = KINDS[target]
    options = {'n_members': 2, 'hidden_channels': 16, 'max_iter': 30}
    weights = np.array([0.3, 0.2, 0.1, 0.15, 0.25])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_blend, 'weights_above_constant', lambda *_, **__: weights)
        # Those of far rows are of the last four members, alike.
        patch.setattr(_blend, 'blend_weights', lambda *_, **__: np.full(4, 0.25))
        patch.setattr(_members, '_MAX_TREES', 30)
        return cls(random_state=0, learning_rate=0.01, **options).fit(X, y)


def test_auto_blends_all_kinds_of_members(few):
    model = GSLRegressor(**few).fit(X, Y)
    report = model.report_
    assert report.index.name == 'model'
    assert {*report.index} == {*MEMBERS, 'blend', 'constant', '10 nearest rows'}
    assert report['loss'].is_monotonic_increasing
    assert report['weight'][MEMBERS].sum() == pytest.approx(1)
    assert report['weight'].drop(MEMBERS).isna().all()
    # Targets have a variance of one.
    assert report['loss']['constant'] == pytest.approx(1, abs=0.3)
    assert report['loss']['blend'] < 0.3
    assert len(model._blend.members) == (report['weight'] > 0).sum()
    for graph, name in (('learned', MEMBERS[0]), ('none', MEMBERS[1])):
        single = GSLRegressor(graph, **few).fit(X, Y).report_
        assert single['weight'].dropna().to_dict() == {name: 1.0}


def test_quantiles_join_from_some_rows_on(few, monkeypatch):
    monkeypatch.setattr(_fitting, '_MIN_ROWS_OF_BOTH', 200)
    options = few | {'max_iter': 1}
    model = GSLRegressor(**options).fit(X, Y)
    quantiles = {'learned graph, quantile', 'no graph, quantile'}
    assert quantiles < {*model.report_.index}
    # But not for new groups, nor if a scaling or a graph is given.
    fits = [
        GSLRegressor(**options).fit(X, Y, groups=np.arange(240) % 12),
        GSLRegressor(**options, scaling='standard').fit(X, Y),
        GSLRegressor('learned', **options).fit(X, Y),
    ]
    for fit in fits:
        assert not quantiles & {*fit.report_.index}
    assert 'no graph, standard' in fits[1].report_.index


@pytest.mark.parametrize('target', ['numbers', 'classes'])
def test_losses_are_those_of_the_held_back_rows(target, few):
    y = Y if target == 'numbers' else np.digitize(Y, [-0.5, 0.5])
    cls = GSLRegressor if target == 'numbers' else GSLClassifier
    weight = 1.0 + np.arange(240) % 3
    is_val = np.arange(240) % 3 == 0
    options = few | {'max_iter': 1}
    model = cls('none', **options).fit(X, y, weight, is_val)
    report = model.report_['loss']
    if target == 'numbers':
        scaled = (y - model._center) / model._width
        mean = np.average(scaled[~is_val], weights=weight[~is_val])
        losses = (scaled - mean) ** 2
        out = (model._blend.members[0].outputs(X)[:, 0] - scaled) ** 2
    else:
        share = np.bincount(y[~is_val], weight[~is_val])
        losses = -np.log(share / share.sum())[y]
        out = -np.log(model._blend.members[0].outputs(X)[np.arange(240), y])
    expected = np.average(losses[is_val], weights=weight[is_val])
    assert report['constant'] == pytest.approx(expected, rel=1e-5)
    expected = np.average(out[is_val], weights=weight[is_val])
    assert report['blend'] == pytest.approx(expected, rel=1e-3)


def test_print_shows_the_report():
    model = fitted('numbers')
    lines = str(model).splitlines()
    text = repr(model).splitlines()
    assert lines[: len(text)] == text
    header, *rows = lines[len(text) :]
    assert header.split() == ['loss', 'weight']
    report = model.report_
    assert len(rows) == len(report)
    for row, (name, (loss, weight)) in zip(rows, report.iterrows(), strict=True):
        numbers = [f'{loss:.4g}'] + [f'{weight:.2f}'] * (weight == weight)
        assert re.split(r' {2,}', row) == [name, *numbers]
    new = GSLRegressor()
    assert str(new) == repr(new)


@pytest.mark.parametrize('target', ['numbers', 'targets', 'classes'])
def test_contributions_sum_to_the_prediction(target):
    model = fitted(target)
    table = model.contributions(NEW)
    assert len(table) == 60
    if target == 'targets':
        names = [f'{name} {i}' for name in PARTS for i in range(2)]
        assert sorted(table.columns) == sorted(names)
        tables = [table[[f'{name} {i}' for name in PARTS]] for i in range(2)]
        expected = [*model.predict(NEW).T]
    else:
        assert [*table.columns] == PARTS
        tables = [table]
        proba = getattr(model, 'predict_proba', None)
        expected = [model.predict(NEW) if proba is None else proba(NEW).max(axis=1)]
    for each, values in zip(tables, expected, strict=True):
        components = each.set_axis(PARTS, axis=1)
        np.testing.assert_allclose(components['prediction'], values)
        np.testing.assert_allclose(components[PARTS[:4]].sum(axis=1), values)
        assert (components[['trees', 'own columns', 'neighbours']].std() > 1e-3).all()
    if target == 'numbers':
        assert table['constant'].nunique() == 1
        constant = model._blend.constant[0] * model._width[0] + model._center[0]
        assert table['constant'][0] == pytest.approx(constant)


def test_each_part_is_what_its_members_change():
    model = fitted('numbers')
    near = ~model.is_far(NEW)
    rows = NEW[near]
    table = model.contributions(rows)
    outputs = {m.name: m.outputs(rows)[:, 0] for m in model._blend.members}
    learned = model._blend.members[0]
    alone = learned.without_neighbours(rows)[:, 0]
    constant = model._blend.constant[0]
    weight = dict(zip(MEMBERS, [0.3, 0.2, 0.1, 0.15, 0.25], strict=True))
    trees = sum(weight[n] * (outputs[n] - constant) for n in MEMBERS[3:])
    columns = sum(weight[n] * (outputs[n] - constant) for n in MEMBERS[1:3])
    columns = columns + weight[MEMBERS[0]] * (alone - constant)
    neighbours = weight[MEMBERS[0]] * (outputs[MEMBERS[0]] - alone)
    for name, change in zip(PARTS[1:4], (trees, columns, neighbours), strict=True):
        np.testing.assert_allclose(table[name], change * model._width, atol=1e-9)


def test_without_neighbours_they_tell_nothing(few):
    model = GSLRegressor('none', **few).fit(X, Y)
    table = model.contributions(NEW)
    np.testing.assert_allclose(table[['trees', 'neighbours']], 0, atol=1e-12)
    assert not model.is_far(100 + NEW).any()
    assert model.graph_.nnz == 0


@pytest.mark.filterwarnings('ignore:.* rows are far')
def test_far_rows_lean_on_members_that_need_no_near_ones():
    model = fitted('numbers')
    assert model.is_far(X).mean() == 0  # Each is its own nearest row.
    assert model.is_far(NEW).mean() < 0.2
    # Columns are bent: no row is farther than this.
    far = np.array([[40.0, -40.0, 40.0], [-40.0, 40.0, 40.0]])
    assert model.is_far(far).all()
    # Of all members but that with a learned graph, alike.
    far_outputs = [
        m.outputs(far) for m in model._blend.members if m.name in MEMBERS[1:]
    ]
    assert len(far_outputs) == 4
    of_others = np.mean(far_outputs, axis=0)
    every = np.average(
        [m.outputs(far) for m in model._blend.members],
        axis=0,
        weights=[model._blend.weights[m.name] for m in model._blend.members],
    )
    share = (model._blend.limit / model._blend.members[0].distances(far)) ** 2
    assert (share < 1).all()
    assert share.min() < 0.3
    expected = share * every[:, 0] + (1 - share) * of_others[:, 0]
    scaled = (model.predict(far) - model._center) / model._width
    np.testing.assert_allclose(scaled, expected)
    table = model.contributions(far)
    np.testing.assert_allclose(table['prediction'], model.predict(far))


def test_many_far_rows_are_told(recwarn):
    model = fitted('numbers')
    near = NEW[~model.is_far(NEW)][:40]
    far = np.full((9, 3), [40.0, -40.0, 40.0])
    model.predict(np.r_[near, far[:5]])  # Less than a tenth and one.
    model.predict(far[:1])
    assert [str(w.message) for w in recwarn] == []
    with pytest.warns(UserWarning, match='2 of 2 rows are far'):
        model.predict(far[:2])
    text = r'9 of 19 rows are far from all training rows, where 1 % of those held back'
    with pytest.warns(UserWarning, match=text) as caught:
        model.predict(np.r_[near[:10], far])
    assert caught[0].filename == __file__


# Groups and orders

GROUP = np.arange(240) % 16


@pytest.mark.parametrize('name', ['groups', 'order'])
def test_rows_see_neither_their_group_nor_later_ones(name, few, tmp_path):
    values = GROUP if name == 'groups' else np.arange(240) // 10
    model = GSLRegressor('learned', **few | {'max_iter': 4})
    model.fit(X, Y, **{name: values})
    edges = model.graph_.tocoo()
    source, target = values[edges.col], values[edges.row]
    assert edges.nnz > 1000
    assert (source != target).all() if name == 'groups' else (source < target).all()
    # The rest of the weight goes to the null neighbour.
    share = np.asarray(model.graph_.sum(axis=1))
    assert (share < 1).all()
    assert share.max() > 0
    # Training rows are predicted so, also after a file; new rows see all rows.
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt')
    assert (again.graph_ != model.graph_).nnz == 0
    np.testing.assert_array_equal(again.transduction_, model.transduction_)
    assert not np.allclose(model.transduction_, model.predict(X))
    rows = model.kneighbors(X, 3)[1]
    assert (rows[:, 0] == np.arange(240)).mean() > 0.9


def test_labels_of_the_own_group_are_not_used(few):
    model = GSLRegressor('learned', **few | {'max_iter': 4})
    model.fit(X, Y, groups=GROUP)
    (nets,) = model._blend.members
    expected = nets.own_outputs(model._rows.x)
    known_y = nets.known_y
    known_y[GROUP == 3] += 5
    moved = (nets.own_outputs(model._rows.x) != expected).any(axis=1)
    assert not moved[GROUP == 3].any()
    assert moved[GROUP != 3].all()


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures('routing')
@pytest.mark.parametrize('name', ['groups', 'order'])
def test_groups_are_routed_through_scikit_learn(name, few, monkeypatch):
    seen = []

    class Noting(GSLRegressor):
        def fit(self, X, y, groups=None, order=None):
            seen.append(groups if name == 'groups' else order)
            return super().fit(X, y, groups=groups, order=order)

    model = Noting('none', **few | {'max_iter': 1})
    model.set_fit_request(**{'groups': False} | {name: True})
    params = {name: GROUP} | {'groups': GROUP}
    scores = cross_val_score(model, X, Y, params=params, cv=GroupKFold(4))
    assert len(scores) == len(seen) == 4
    assert all(len(set(groups)) == 12 for groups in seen)
    seen.clear()
    search = GridSearchCV(model, {'weight_decay': [0.0, 0.1]}, cv=GroupKFold(2))
    search.fit(X, Y, **params)
    # Of two parameters in two folds, and of the best one on all rows.
    assert [len(set(groups)) for groups in seen] == [8] * 4 + [16]
    assert search.predict(NEW).shape == (60,)


def test_weighted_rows_of_a_blend(few):
    """Rows of weight 0 count for no member."""
    wrong = np.arange(240) % 4 == 0
    y = np.where(wrong, 50.0, Y)
    model = GSLRegressor(**few).fit(X, y, sample_weight=1.0 - wrong)
    assert np.abs(model.predict(NEW)).max() < 4
    assert np.abs(model._blend.members[-1].outputs(NEW)).max() < 4


@pytest.mark.parametrize('has_val', [True, False])
@pytest.mark.parametrize('num_classes', [0, 2])
def test_weights_count_for_members_of_scikit_learn(num_classes, has_val):
    """Of equal rows, they predict the weighted mean."""
    rows = np.arange(200)
    y, weight = rows % 2, np.where(rows % 2, 3.0, 1.0)
    target = torch.from_numpy(y if num_classes else y[:, None].astype(np.float32))
    table = Table(None, target, None, torch.from_numpy(weight))
    val = rows[150:] if has_val else rows[:0]
    split = RowSplit(rows[:150], rows[:150], val)
    args = np.zeros((200, 1)), table, split, num_classes
    for name in (_members.LINEAR, *_members.BOOSTINGS):
        models = _members.fit_sklearn(name, *args, 0)
        out = _members.sklearn_outputs(models, np.zeros((1, 1)), num_classes)
        assert out[0, -1] == pytest.approx(0.75, abs=1e-3)


def test_classes_that_no_split_trains(few):
    """Whole groups may be all rows of a class."""
    y = np.array(['a', 'b', 'c', 'd'])[np.arange(240) % 4]
    model = GSLClassifier(**few | {'max_iter': 2})
    proba = model.fit(X, y, groups=np.arange(240) % 4).predict_proba(NEW)
    assert proba.shape == (60, 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    pairs = np.where(np.arange(240) % 2, 'a', 'b')
    model = clone(model)
    with pytest.warns(UserWarning, match="of two 'groups' one is held back, and rows"):
        model.fit(X, pairs, groups=np.arange(240) % 2)
    np.testing.assert_allclose(model.predict_proba(NEW).sum(axis=1), 1)


@pytest.mark.parametrize('name', ['order', 'validation_mask'])
def test_classes_of_held_back_rows_alone_are_told(name, few):
    row = np.arange(240)
    y = np.array(['low', 'mid', 'high'])[np.where(row < 200, row % 2, 2)]
    choice = {name: row if name == 'order' else row >= 200}
    text = r"no member learns to predict the classes \['high'\]: all"
    with pytest.warns(UserWarning, match=text):
        GSLClassifier(**few | {'max_iter': 2}).fit(X, y, **choice)


def test_members_without_signal_hide_none(monkeypatch):
    model = fitted('numbers')
    y = Y[:, None] / Y.std()
    split = RowSplit(np.arange(200), np.arange(200), np.arange(200, 240))
    table = Table(None, *map(torch.from_numpy, (y, y, np.ones(240))))
    val_outputs = np.stack([y[200:] + 0.9, *(y[200:] * -9 for _ in range(4))])
    blend = fit_blend(model._blend.members, val_outputs, X, table, [split])
    # Even weights, as of few rows, would give a larger loss than the mean target.
    assert np.square(val_outputs.mean(axis=0) - y[200:]).mean() > 1
    assert not blend.is_constant
    assert blend.weights == {
        member.name: float(i == 0) for i, member in enumerate(model._blend.members)
    }


def test_new_rows_are_searched_once_for_sums_and_distances(spy):
    model = fitted('numbers')
    learned = model._blend.learned[0]
    counted = spy(table_parts, 'best_sources')
    out, distance = learned.outputs_and_distances(NEW)
    assert len(counted) == len(learned.models)
    np.testing.assert_array_equal(out, learned.outputs(NEW))
    np.testing.assert_array_equal(distance, learned.distances(NEW))
    counted.clear()
    model.predict(NEW)
    assert len(counted) == len(learned.models)


@pytest.mark.parametrize('eval_k', [5, 240])
def test_few_and_all_neighbours_have_distances(eval_k, few):
    model = GSLRegressor('learned', **few | {'eval_k': eval_k}).fit(X, Y)
    out, distance = model._blend.learned[0].outputs_and_distances(NEW)
    np.testing.assert_allclose(out, model._blend.learned[0].outputs(NEW))
    np.testing.assert_allclose(distance, model._blend.learned[0].distances(NEW))


def test_contributions_have_the_index_of_a_frame():
    model = fitted('numbers')
    frame = pandas.DataFrame(NEW[:3], index=['a', 'b', 'c'])
    assert model.contributions(frame).index.tolist() == ['a', 'b', 'c']
    assert model.contributions(NEW[:3]).index.tolist() == [0, 1, 2]


def test_a_blend_of_sparse_rows_has_no_trees(few):
    x = scipy.sparse.random(240, 30, 0.3, random_state=0, format='csr')
    y = np.ravel(x[:, :3].sum(axis=1))
    model = GSLRegressor(**few | {'max_iter': 3}).fit(x, y)
    names = {'learned graph, unit norm', 'no graph, unit norm', 'linear model'}
    assert names == {*model.report_['weight'].dropna().index}
    assert model.predict(x[:7]).shape == (7,)
    assert isinstance(model.contributions(x[:7]), pandas.DataFrame)


@pytest.mark.filterwarnings('ignore:networks still improved')
def test_explain_shows_the_spread_of_weights_between_networks():
    x = np.random.RandomState(0).normal(size=(80, 3))
    y = x[:, 0] + x[:, 1]
    options = {'max_iter': 4, 'random_state': 0}
    single = GSLRegressor('learned', n_members=1, **options).fit(x, y)
    several = GSLRegressor('learned', n_members=3, **options).fit(x, y)
    assert 'spread' not in single.explain(x[:1] + 0.1)
    table = several.explain(x[:1] + 0.1, 4).iloc[1:]
    rows = table.index.tolist()
    networks = [
        model(
            torch.from_numpy(
                several._blend.learned[0].scaling.apply(x[:1] + 0.1)
            ).double(),
            return_graph=True,
        )[1]
        for model in several._blend.learned[0].models
    ]
    weight = torch.zeros(3, 80, dtype=torch.double)
    for i, graph in enumerate(networks):
        weight[i, graph.edge_index[0]] = graph.edge_weight.detach()
    expected = weight[:, rows].std(dim=0, correction=0)
    np.testing.assert_allclose(table['spread'], expected, atol=1e-6)
    np.testing.assert_allclose(table['weight'], weight[:, rows].mean(dim=0), atol=1e-6)
    assert (table['spread'] > 0).all()


@pytest.mark.parametrize('chosen', ['order', 'groups', 'validation_mask'])
def test_held_back_rows_of_new_classes_stop_no_trees(chosen):
    # A class of one row, and held-back rows of a class that is not trained.
    y = np.r_[np.zeros(110), np.ones(94), 2, np.full(35, 3)].astype(int)
    value = {
        'order': np.arange(240),
        'groups': np.arange(240) // 205,
        'validation_mask': np.arange(240) >= 205,
    }[chosen]
    model = GSLClassifier(n_members=1, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model.fit(X, y, **{chosen: value})
    assert model.predict_proba(NEW).shape == (len(NEW), 4)


@pytest.mark.filterwarnings('ignore:networks still improved')
@pytest.mark.parametrize(('noise', 'is_told'), [(0.1, False), (30.0, True)])
def test_a_gain_within_its_standard_error_is_told(noise, is_told):
    y = X[:, 0] + noise * np.random.RandomState(4).normal(size=240)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        GSLRegressor(n_members=1, max_iter=30, random_state=0).fit(X, y)
    told = [str(w.message) for w in caught if 'signal was found' in str(w.message)]
    assert bool(told) == is_told


def test_is_certain_compares_a_mean_with_its_standard_error():
    gain = np.array([1.0, -1.0, 1.0, 1.0])
    # The mean is 1/2, and its standard error the root of 3/16.
    assert is_certain(gain, np.ones(4))
    assert not is_certain(gain - 0.1, np.ones(4))
    # The weights of rows count: all but the second.
    assert is_certain(gain - 0.5, np.array([1.0, 0.0, 1.0, 1.0]))


@pytest.mark.filterwarnings('ignore:networks still improved')
def test_few_rows_are_held_back_in_turn():
    x, y = X[:30], 10 * X[:30, 0]
    model = GSLRegressor(max_iter=20, random_state=0).fit(x, y)
    # Four splits hold back 24 rows, and the linear model is the best of them.
    assert model.report_['loss'].drop('blend').idxmin() == 'linear model'
    assert model.report_['weight'].idxmax() == 'linear model'


def test_the_linear_model_is_linear_within_the_table():
    x = np.random.RandomState(0).normal(size=(300, 1))
    scaled = Scaling('linear').fit(x).apply(x, np.float64)
    slope = np.polyfit(x[:, 0], scaled[:, 0], 1)
    residual = scaled[:, 0] - np.polyval(slope, x[:, 0])
    assert residual.std() < 0.01 * scaled.std()
    far = Scaling('linear').fit(x).apply(np.array([[1e9]]), np.float64)
    assert far == pytest.approx(12)
