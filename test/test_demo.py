"""What the examples of `make demo` conclude from their numbers."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / 'examples'


@pytest.fixture
def gausim():
    pytest.importorskip('matplotlib')
    spec = importlib.util.spec_from_file_location('gausim', EXAMPLES / 'gausim.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ('learned', 'verdict'),
    [
        ([0.91, 0.92, 0.93], 'pays here: it is better than "MLP, no graph" on 3 of 3'),
        ([0.91, 0.92, 0.92], 'does not clearly pay here: it is better than'),
        ([0.89, 0.90, 0.99], 'does not clearly pay here: it is better than'),
        ([0.90, 0.91, 0.92], 'does not pay here: it is better than'),
    ],
)
def test_a_learned_graph_pays_if_it_is_better_on_all_splits(
    gausim, capsys, learned, verdict
):
    tests = {'full': learned, 'mlp': [0.90, 0.91, 0.92], 'knn': [0.8, 0.8, 0.8]}
    results = {
        name: [{'test': value} for value in values] for name, values in tests.items()
    }
    gausim.conclude(results, 3)
    assert verdict in capsys.readouterr().out
