"""The example of sensors: it runs, draws, and measures agreement as it says."""

import importlib.util
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / 'examples' / 'sensors.py'


@pytest.fixture(scope='module')
def script(tmp_path_factory):
    pytest.importorskip('matplotlib')
    picture = tmp_path_factory.mktemp('sensors') / 'graphs.png'
    spec = importlib.util.spec_from_file_location('sensors', SCRIPT)
    module = importlib.util.module_from_spec(spec)
    data = '{"num_sensors": 6, "num_steps": 300}'
    argv = ['sensors', '--quick', '--data', data, '--picture', str(picture)]
    with mock.patch.object(sys, 'argv', argv):
        spec.loader.exec_module(module)
    assert picture.stat().st_size > 1_000
    return module


def test_what_it_compares(script):
    errors = [name for name in script.rows if name.startswith('error, ')]
    assert len(errors) == 4
    others = {'correlation', 'lagged correlation', 'graphical lasso', 'least squares'}
    assert set(script.rows) - set(errors) == others | {'learned graph'}
    values = torch.tensor([row for name in others for row in script.rows[name]])
    assert bool(((values >= 0) & (values <= 1)).all())
    # Each is a matrix of targets by sources, and the linear one finds the sources.
    (found,) = script.rows['least squares']
    assert found[0] > 0.7
    assert script.graph.edge_index.size(1) == int(script.true.sum()) == 12


def test_models_without_a_graph_see_no_other_sensor(script):
    n = 6
    models = {
        name: script.Forecaster(n, graph).eval()
        for name, graph in script.graphs.items()
    }
    x = torch.randn(4, 3, n, 1)
    other = x.clone()
    other[:, :, 0] += 1
    for name, model in models.items():
        moved = (model(x) - model(other)).abs().amax(dim=(0, 1, 3)) > 1e-6
        expected = {
            'no graph': torch.arange(n) == 0,
            'true graph': (script.true[:, 0] > 0) | (torch.arange(n) == 0),
            'learned graph': torch.ones(n).bool(),
        }
        assert torch.equal(moved, expected[name]), name


def test_agreement(script):
    true = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]])
    score = torch.tensor([[9.0, 0.9, 0.8], [0.1, 9, 0.2], [0.3, 0.1, 9]])
    precision, average = script.agreement(score, true)
    assert precision == 0.5  # The diagonal does not count; 0.8 stands for no coupling.
    assert average == pytest.approx((1 / 1 + 2 / 4) / 2)
