"""Whence estimators draw: from their own seed, whatever others draw."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

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

pytestmark = pytest.mark.filterwarnings('ignore::sklearn.exceptions.ConvergenceWarning')


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
