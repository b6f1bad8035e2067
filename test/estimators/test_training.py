"""How estimators draw, scale columns, find nearest rows, and go through a table."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from torch_geometric_gsl.sklearn import (
    GSLClassifier,
    GSLNeighborsTransformer,
    GSLRegressor,
)
from torch_geometric_gsl.sklearn._rows import Nearest, Scaling
from torch_geometric_gsl.sklearn._training import (
    Split,
    Table,
    _batches,
    _sampled,
    loss_of_constant,
)

pytestmark = pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')


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
            assert 0 < len(batch) <= len(pool) + 1 <= pool_size + 1
            trained.extend(batch.tolist())
            yield batch, pool

    monkeypatch.setattr('torch_geometric_gsl.sklearn._training._batches', noting)
    options = few | {'max_iter': 1, 'batch_size': batch_size, 'pool_size': pool_size}
    GSLRegressor('learned', **options).fit(*places(num_rows))
    assert len(set(trained)) == len(trained) > num_rows / 2


def test_validation_looks_at_a_random_sample(monkeypatch):
    every = Split(torch.arange(9), torch.arange(30), torch.arange(100, 200))
    assert all(map(torch.equal, _sampled(every, 0), every))
    module = 'torch_geometric_gsl.sklearn._training'
    monkeypatch.setattr(f'{module}._MOST_VALIDATED', 20)
    monkeypatch.setattr(f'{module}._MOST_CANDIDATES', 10)
    found, again, other = (_sampled(every, seed) for seed in (0, 0, 1))
    assert torch.equal(found.train, every.train)
    assert (len(found.val.unique()), len(found.candidates.unique())) == (20, 10)
    assert found.val.max() > 150
    assert torch.equal(found.val, again.val)
    assert not torch.equal(found.val, other.val)


TINY = {'n_members': 1, 'hidden_channels': 8, 'max_iter': 4, 'random_state': 0}
RANDOM = {
    'classifier': GSLClassifier('learned', dropout=0.3, **TINY),
    'regressor': GSLRegressor('learned', draws=2, **TINY),
    'labels': GSLNeighborsTransformer(5, max_iter=4, random_state=0),
    'no labels': GSLNeighborsTransformer(
        5, similarity='neural_gaussian', mode='connectivity', max_iter=4, random_state=0
    ),
}


def answers(model, x, y):
    """What a fit on a part of the rows says of all rows."""
    model = clone(model)
    if isinstance(model, GSLNeighborsTransformer):
        out = model.fit(x[::3], None if model.mode == 'connectivity' else y[::3])
        return out.transform(x).toarray()
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
    assert name == 'labels' or not np.array_equal(answers(other, *wine), found[0])


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


def test_a_network_that_has_learned_nothing_is_told(few, recwarn):
    random = np.random.RandomState(0)
    x, y = random.randn(80, 3), random.randint(0, 2, 80)  # No relation.
    options = few | {'max_iter': 200, 'n_iter_no_change': 1, 'learning_rate': 1e-9}
    GSLClassifier('none', **options).fit(x, y)
    texts = [str(warning.message) for warning in recwarn]
    assert any('hardly better than a constant' in text for text in texts)
    table = Table(None, torch.tensor([0, 0, 1, 1]), None, torch.ones(4))
    assert loss_of_constant(table, torch.arange(4)) == pytest.approx(np.log(2))
    table = table._replace(y=torch.tensor([[1.0], [3.0], [9.0]]), weight=torch.ones(3))
    assert loss_of_constant(table, torch.arange(2)) == 1
