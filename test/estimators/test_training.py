"""How estimators draw, scale columns, find nearest rows, and go through a table."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLRegressor,
    _training,
)
from torch_geometric_gsl.sklearn._rows import Nearest, Scaling
from torch_geometric_gsl.sklearn._training import (
    Split,
    Table,
    _batches,
    constant_output,
    loss_of,
    sampled,
)

pytestmark = [
    pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning'),
    pytest.mark.filterwarnings('ignore:no signal was found'),
]


@pytest.mark.parametrize('scaling', ['auto', 'quantile', 'standard', 'none'])
def test_scaling(scaling):
    random = np.random.default_rng(0)
    x = np.stack([np.exp(random.normal(size=1200)), random.integers(0, 2, 1200)], 1)
    made = Scaling(scaling).fit(x)
    found = made.apply(x)
    assert made.varied.tolist() == [0]
    if scaling == 'none':
        assert np.array_equal(found, x)
        return
    np.testing.assert_allclose(found[:, 1].std(), 1)
    if scaling != 'standard':
        inner = abs(np.log(x[:, 0])) < 2
        np.testing.assert_allclose(found[inner, 0], np.log(x[inner, 0]), atol=0.2)


def test_nearest_rows_are_the_nearest():
    random = np.random.default_rng(0)
    x = random.integers(0, 3, size=(50, 2)).astype(float)  # With twins.
    candidates = torch.arange(10, 50)
    nearest = Nearest(x, candidates, 6)
    distance = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    for rows in (torch.arange(10, 50), torch.arange(50)):
        source, found = nearest.of_rows(rows)
        for row, sources, squares in zip(rows, source, found, strict=True):
            assert not (row == sources).any()
            assert sources.min() >= 10
            others = [j for j in range(10, 50) if j != row]
            expected = np.sort(distance[row][others])[:6]
            np.testing.assert_allclose(squares * nearest.unit, expected, atol=1e-6)
    source, found = nearest.of_new(x[:4])
    assert source.shape == (4, 6)


@pytest.mark.parametrize(('batch_size', 'pool_size'), [('auto', 99), (99, 99), (7, 20)])
@pytest.mark.parametrize('num_rows', [15, 60])
def test_each_step_has_candidates(
    monkeypatch, batch_size, pool_size, num_rows, few, places
):
    trained = []

    def noting(*args):
        for batch, pool in _batches(*args):
            rows = torch.cat([batch, pool])
            assert len(rows.unique()) == len(rows)  # No row is in its own pool.
            assert 0 < len(pool) <= pool_size
            assert len(rows) <= 2 * args[1].batch_size + 0.4 * len(args[0].candidates)
            trained.extend(batch.tolist())
            yield batch, pool

    monkeypatch.setattr('torch_geometric_gsl.sklearn._training._batches', noting)
    options = few | {'max_iter': 1, 'batch_size': batch_size, 'pool_size': pool_size}
    GSLRegressor('learned', **options).fit(*places(num_rows))
    assert len(set(trained)) == len(trained) > num_rows / 2


def test_validation_looks_at_a_random_sample(monkeypatch):
    every = Split(torch.arange(9), torch.arange(30), torch.arange(100, 200))
    assert all(map(torch.equal, sampled(every, 0), every))
    module = 'torch_geometric_gsl.sklearn._training'
    monkeypatch.setattr(f'{module}._MOST_VALIDATED', 20)
    monkeypatch.setattr(f'{module}._MOST_CANDIDATES', 10)
    found, again, other = (sampled(every, seed) for seed in (0, 0, 1))
    assert torch.equal(found.train, every.train)
    assert (len(found.val.unique()), len(found.candidates.unique())) == (20, 10)
    assert found.val.max() > 150
    assert torch.equal(found.val, again.val)
    assert not torch.equal(found.val, other.val)


TINY = {'n_members': 1, 'hidden_channels': 8, 'max_iter': 4, 'random_state': 0}
RANDOM = {
    'classifier': GSLClassifier('learned', dropout=0.3, **TINY),
    'regressor': GSLRegressor('learned', draws=2, **TINY),
}


def answers(model, x, y):
    """What a fit on a part of the rows says of all rows."""
    model = clone(model)
    model.fit(x[::3], y[::3])
    return model.predict_proba(x) if hasattr(model, 'classes_') else model.predict(x)


@pytest.mark.parametrize('name', RANDOM)
def test_a_fit_neither_reads_nor_changes_global_generators(wine, name):
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        of_numpy = check_random_state(None)
        of_numpy.seed(seed)
        state, words = torch.get_rng_state(), of_numpy.get_state()[1].copy()
        found.append(answers(RANDOM[name], *wine))
        assert torch.equal(torch.get_rng_state(), state)
        assert np.array_equal(of_numpy.get_state()[1], words)
    assert np.array_equal(*found)
    other = clone(RANDOM[name]).set_params(random_state=1)
    assert not np.array_equal(answers(other, *wine), found[0])


def test_without_a_state_the_seed_is_that_of_numpy(wine):
    model = clone(RANDOM['regressor']).set_params(random_state=None)
    found = []
    for seed in (0, 0, 1):
        check_random_state(None).seed(seed)
        state = torch.get_rng_state()
        found.append(answers(model, *wine))
        assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ('graph', 'n_members'), [('learned', 1), ('none', 3), ('auto', 1)]
)
def test_without_a_signal_the_constant_is_predicted(
    graph, n_members, few, recwarn, monkeypatch
):
    monkeypatch.setattr(_training, '_LEAST_STEPS', 20)
    random = np.random.RandomState(0)
    x, y = random.randn(200, 3), random.randn(200)  # No relation.
    options = few | {'max_iter': 200, 'n_members': n_members, 'learning_rate': 1e-9}
    options |= {'n_iter_no_change': 1}
    weight = random.rand(200)
    held = np.arange(200) < 100
    model = GSLRegressor(graph, **options).fit(x, y, weight, held)
    texts = [str(warning.message) for warning in recwarn]
    assert any(text.startswith('no signal was found: on held-back') for text in texts)
    assert not any('random_state' in text for text in texts)
    expected = np.average(y[~held], weights=weight[~held])
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-6)
    loss = np.average((y - expected)[held] ** 2, weights=weight[held])
    scale = np.average((y - y.mean()) ** 2)
    np.testing.assert_allclose(model.validation_loss_, loss / scale, rtol=1e-5)
    assert model.graph_choice_ == {'auto': 'none'}.get(graph, graph)
    classes = np.where(np.arange(200) % 10 == 0, 'a', 'b')
    model = GSLClassifier(graph, **options).fit(x, classes, validation_mask=held)
    share = (classes[~held] == 'a').mean()
    np.testing.assert_allclose(model.predict_proba(x)[:, 0], share, rtol=1e-5)


def test_members_without_a_signal_are_dropped(few, places):
    # Networks of one step are better or worse than a constant by chance.
    options = few | {'n_members': 8, 'max_iter': 6}
    model = GSLRegressor('none', **options).fit(*places(200))
    assert 1 <= model.n_members_ < 8
    assert len(set(model.predict(places(200)[0]))) > 100


def test_the_constant_of_the_least_loss():
    table = Table(None, torch.tensor([0, 0, 1, 1]), None, torch.tensor([1.0, 1, 1, 3]))
    rows = torch.arange(3)
    out = constant_output(table, rows)
    torch.testing.assert_close(out.exp(), torch.tensor([2 / 3, 1 / 3]))
    expected = -2 / 3 * np.log(2 / 3) - np.log(1 / 3) / 3
    assert loss_of(out.expand(3, 2), table, rows) == pytest.approx(expected)
    # A class of no training row remains possible.
    torch.testing.assert_close(
        constant_output(table, rows[:2]).exp(), torch.tensor([1, 0.25])
    )
    table = table._replace(y=torch.tensor([[1.0], [3.0], [9.0], [5.0]]))
    assert constant_output(table, torch.tensor([0, 3])).tolist() == [4]
    assert loss_of(torch.full((2, 1), 4.0), table, torch.tensor([0, 3])) == 3


def test_little_signal_is_told(few, recwarn):
    random = np.random.RandomState(0)
    x, y = random.randn(300, 3), random.randn(300)
    y += 0.15 * x[:, 0]
    options = few | {'max_iter': 400, 'learning_rate': 1e-3, 'n_iter_no_change': 40}
    GSLRegressor('none', **options, validation_fraction=0.5).fit(x, y)
    texts = [str(warning.message) for warning in recwarn]
    assert any('is hardly better than a constant' in text for text in texts), texts


def test_few_rows_do_not_tell_that_there_is_no_signal(few, places):
    x, y = places(80)
    held = np.zeros(80, dtype=bool)
    held[np.argsort(np.abs(y - y.mean()))[:4]] = True
    model = GSLRegressor('none', **few | {'max_iter': 60})
    model.fit(x, y, validation_mask=held)
    assert len(set(model.predict(x))) > 40


@pytest.mark.parametrize('name', ['kneighbors', 'explain', 'explore'])
def test_neighbours_of_a_constant_are_told(name, few, tmp_path):
    random = np.random.RandomState(0)
    options = few | {'max_iter': 1, 'learning_rate': 1e-9}
    x, y = random.randn(200, 3), random.randn(200)
    model = GSLRegressor('learned', **options).fit(x, y)
    assert len(set(model.predict(x))) == 1
    given = tmp_path / 'graph.html' if name == 'explore' else x[:1]
    with pytest.warns(UserWarning, match='no signal was found in training'):
        getattr(model, name)(given)
    model.save(tmp_path / 'model.pt')
    again = GSLRegressor.load(tmp_path / 'model.pt')
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
