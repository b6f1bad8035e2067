"""How estimators draw, scale columns, find nearest rows, and go through a table."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from types import SimpleNamespace

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
from torch_geometric_gsl.sklearn._training import Split, _batches, _sampled

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


@pytest.mark.parametrize('pool_size', [5, 30, 1000])
def test_batches_and_pools(pool_size):
    train, candidates = torch.arange(0, 40, 2), torch.arange(40)
    options = SimpleNamespace(batch_size=7, pool_size=pool_size)
    generator = torch.Generator().manual_seed(0)
    split = Split(train, candidates, train[:0])
    found = list(_batches(split, options, generator))
    assert torch.equal(torch.cat([b for b, _ in found]).sort().values, train)
    for batch, pool in found:
        assert not set(batch.tolist()) & set(pool.tolist())
        assert len(set(pool.tolist())) == len(pool)
        assert pool_size - len(batch) <= len(pool) <= pool_size or pool_size == 1000
        assert pool_size < 1000 or len(pool) == 40 - len(batch)


@pytest.mark.parametrize('batch_size', ['auto', 1000])
@pytest.mark.parametrize('num_rows', [15, 60])
def test_each_step_has_candidates(monkeypatch, batch_size, num_rows, few, places):
    sizes = []

    def noting(*args):
        for batch, pool in _batches(*args):
            sizes.append((len(batch), len(pool)))
            yield batch, pool

    monkeypatch.setattr('torch_geometric_gsl.sklearn._training._batches', noting)
    options = few | {'max_iter': 1, 'batch_size': batch_size}
    GSLRegressor('learned', **options).fit(*places(num_rows))
    assert all(0 < batch <= pool + 1 for batch, pool in sizes)


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


@pytest.fixture
def restless():
    """Another thread draws from the global generator, and sets its seed."""
    stop = Event()

    def disturb():
        number = 0
        while not stop.is_set():
            torch.manual_seed(number)
            torch.rand(3)
            number += 1
            stop.wait(1e-4)

    with torch.random.fork_rng([]):
        thread = Thread(target=disturb)
        thread.start()
        yield
        stop.set()
        thread.join()


TINY = {'n_members': 1, 'hidden_channels': 8, 'max_iter': 4, 'random_state': 0}
RANDOM = {
    'auto': GSLClassifier(dropout=0.3, **TINY),
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


@pytest.mark.parametrize('name', RANDOM)
def test_threads_do_not_change_a_fit(wine, restless, name):
    alone = answers(RANDOM[name], *wine)
    with ThreadPoolExecutor(2) as pool:
        for out in pool.map(lambda _: answers(RANDOM[name], *wine), range(2)):
            assert np.array_equal(out, alone)


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
