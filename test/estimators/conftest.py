from functools import lru_cache

import numpy as np
import pytest
from sklearn.datasets import load_wine

from torch_geometric_gsl.sklearn import GSLClassifier, GSLRegressor, _members

#: A small network that is trained for a moment.
FEW = {
    'n_members': 1,
    'hidden_channels': 16,
    'max_iter': 40,
    'learning_rate': 0.01,
    'random_state': 0,
}


@pytest.fixture(scope='session')
def few():
    return FEW


@pytest.fixture
def few_trees(monkeypatch):
    """Boosts with few trees."""
    monkeypatch.setattr(_members, '_MAX_TREES', 30)
    monkeypatch.setattr(_members, '_MIN_TREES', 10)


@pytest.fixture(scope='session')
def wine():
    return load_wine(return_X_y=True)


def draw_places(n=240, seed=0):
    random = np.random.default_rng(seed)
    x = random.uniform(size=(n, 3))
    return x, np.sin(12 * x[:, 0]) * np.cos(9 * x[:, 1]) + 0.3 * x[:, 2]


@pytest.fixture(scope='session')
def places():
    """Draws prices that depend on the place, by no simple law."""
    return draw_places


@pytest.fixture(scope='session')
def classifier(wine):
    """Returns a classifier of every second wine; no test may change it."""
    x, y = wine
    return lru_cache(lambda graph: GSLClassifier(graph, **FEW).fit(x[::2], y[::2]))


@pytest.fixture(scope='session')
def regressor():
    """Two networks with a learned graph of 200 places; no test may change them."""
    x, y = draw_places()
    options = FEW | {'n_members': 2, 'max_iter': 40}
    return GSLRegressor('learned', **options).fit(x[:200], y[:200])
