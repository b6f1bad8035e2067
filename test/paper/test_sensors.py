"""Traffic sensors: windows and their division, graphs, networks, tables."""

import math

import pytest
import torch
from torch_geometric.data import Data

from reproduction import sensors, sensors_data, sensors_models
from reproduction.sensors import FORECAST, GRAPHS, LEARNED, NEW, NEW_GRAPHS
from reproduction.sensors_data import HORIZONS, WINDOW, errors, largest, prepare, ridge
from reproduction.sensors_models import SETTING, Forecaster, fixed_graph

SMALL = SETTING | {'hidden_channels': 8, 'epochs': 2, 'candidates': 5}
NETWORKS = [k for k in GRAPHS if k not in sensors.UNTRAINED and k not in NEW_GRAPHS[1:]]


@pytest.fixture(scope='module')
def traffic():
    """Fourteen sensors, each of which follows the one before it, some steps later."""
    generator = torch.Generator().manual_seed(0)
    wave = torch.randn(600, generator=generator).cumsum(0)
    series = torch.stack([wave[100 - 4 * i : 500 - 4 * i] for i in range(14)])
    noise = 0.1 * torch.randn(series.shape, generator=generator)
    source = torch.arange(13)
    return prepare(
        Data(
            x=50 + series + noise,
            edge_index=torch.stack([source, source + 1]),
            edge_weight=torch.rand(13, generator=generator) + 0.1,
            pos=34 + torch.rand(14, 2, generator=generator, dtype=torch.double),
        )
    )


def test_windows_end_before_their_targets_begin(traffic):
    step = torch.tensor([20, 57])
    window, time = traffic.windows(step)
    target = traffic.targets(step)
    for index, last in enumerate(step.tolist()):
        for lag in range(WINDOW):
            assert torch.equal(window[index, :, lag], traffic.scaled[last - lag])
        for horizon, ahead in enumerate(HORIZONS):
            assert torch.equal(target[index, :, horizon], traffic.speed[last + ahead])
    assert time.square().sum(1) == pytest.approx([1, 1])


def test_parts_share_no_target(traffic):
    cut, end = traffic.cut, int(0.8 * len(traffic.speed))
    assert int(traffic.train[-1]) + max(HORIZONS) == cut - 1
    assert int(traffic.val[0]) + min(HORIZONS) == cut
    assert int(traffic.val[-1]) + max(HORIZONS) == end - 1
    assert int(traffic.test[0]) + min(HORIZONS) == end
    assert int(traffic.test[-1]) + max(HORIZONS) == len(traffic.speed) - 1
    # Nothing but training steps tells level and deviation.
    mean = traffic.speed[:cut].mean(0)
    torch.testing.assert_close(traffic.mean, mean)


def test_graphs(traffic):
    road = fixed_graph('road', traffic)
    total = torch.zeros(14).index_add_(0, road.edge_index[1], road.edge_weight)
    torch.testing.assert_close(total, torch.tensor([0.0] + [1.0] * 13))
    near = fixed_graph('lagged nearest', traffic)
    assert near.edge_index.size(1) == 14 * 9
    assert bool((near.edge_index[0] != near.edge_index[1]).all())
    assert fixed_graph('none', traffic).edge_index.size(1) == 0
    score = sensors_data.lagged_correlation(traffic, 12)
    source, target = (rows.double().numpy() for rows in traffic.lagged(12))
    expected = torch.tensor(
        [
            [float(torch.corrcoef(torch.tensor([s, t]))[0, 1]) for s in source.tolist()]
            for t in target.tolist()
        ]
    )
    torch.testing.assert_close(score, expected, atol=1e-4, rtol=0)
    # A sensor follows the one that is three before it by twelve steps.
    best = largest(score, 1).edge_index[0].view(-1)
    assert best[5:].tolist() == [*range(2, 11)]


def test_ridge_finds_the_sensor_that_comes_first(traffic):
    graph = largest(sensors_data.lagged_correlation(traffic, 12), 1)
    target = traffic.targets(traffic.test)
    alone, near = (errors(ridge(traffic, g)[1], target) for g in (None, graph))
    assert near['rmse'][2] < 0.5 * alone['rmse'][2]


@pytest.mark.parametrize('graph_name', NETWORKS)
def test_every_graph_runs_and_is_the_same_again(graph_name, traffic, monkeypatch):
    monkeypatch.setattr(sensors, 'load', lambda: traffic)
    run = sensors.Run(FORECAST, graph_name, 1)
    name, result = sensors.execute(run, SMALL)
    assert name == f'forecast/{graph_name}/1'
    assert all(math.isfinite(v) for v in result['test']['rmse'])
    assert sensors.execute(run, SMALL)[1] == result
    assert ('edges' in result) == (graph_name in LEARNED)
    assert sensors.execute(run._replace(seed=2), SMALL)[1] != result


@pytest.mark.parametrize('graph_name', sensors.UNTRAINED)
def test_forecasts_without_training_run(graph_name, traffic, monkeypatch):
    monkeypatch.setattr(sensors, 'load', lambda: traffic)
    result = sensors.execute(sensors.Run(FORECAST, graph_name, 0), SMALL)[1]
    assert result['val'].keys() == result['test'].keys() == {'rmse', 'mae'}


@pytest.mark.parametrize('graph_name', NEW_GRAPHS)
def test_later_readings_of_new_sensors_are_not_seen(graph_name, traffic, monkeypatch):
    monkeypatch.setattr(sensors, 'load', lambda: traffic)
    setting = SMALL | {'candidates': 3}
    monkeypatch.setattr(sensors, 'HELD_OUT', 3)
    name, result = sensors.execute(sensors.Run(NEW, graph_name, 0), setting)
    assert name == f'new/{graph_name}/0'
    sources, targets = torch.arange(3, 14), torch.arange(3)
    later = traffic.scaled.clone()
    later[traffic.cut :, :3] = 100.0
    changed_later = traffic._replace(scaled=later)
    # Nor does anything that is trained see them: their errors change, and no other.
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(sensors.torch, 'randperm', lambda n: order[:n].argsort())
    new = order.argsort()[:3]
    speed, scaled = traffic.speed.clone(), traffic.scaled.clone()
    speed[traffic.cut :, new], scaled[traffic.cut :, new] = 7.0, 7.0
    before = sensors.forecast_new(sensors.Run(NEW, graph_name, 0), traffic, setting)
    changed = traffic._replace(speed=speed, scaled=scaled)
    again = sensors.forecast_new(sensors.Run(NEW, graph_name, 0), changed, setting)
    assert again['val'] == before['val']
    assert again['test'] != before['test']
    if graph_name == 'last values':
        return
    outs = []
    for readings in (traffic, changed_later):
        torch.manual_seed(0)
        model = sensors_models.NewSensors(graph_name, readings, sources, setting).eval()
        outs.append(model(traffic.test[:5], targets))
        graph = model.graph(sources)
        loops = sources[graph.edge_index[0]] == sources[graph.edge_index[1]]
        assert not bool(loops.any())
    assert torch.equal(*outs)
    assert math.isfinite(result['test']['mae'][0])


def test_draws_reach_the_scale(traffic):
    torch.manual_seed(0)
    model = Forecaster('lagged draws', traffic, SMALL)
    graph, again = model.lagged(), model.lagged()
    assert not torch.equal(graph.edge_weight, again.edge_weight)
    model(traffic.train[:3], torch.arange(14)).sum().backward()
    grads = [p.grad for p in model.lagged.parameters()]
    assert len(grads) == 1
    assert float(grads[0].abs()) > 0
    model.eval()
    assert torch.equal(model.lagged().edge_weight, model.lagged().edge_weight)


def test_real_series(gsl_data, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(gsl_data('traffic').parent))
    sensors_data.load.cache_clear()
    traffic = sensors_data.load()
    assert [len(steps) for steps in traffic[4:7]] == [1388, 192, 395]
    target = traffic.targets(traffic.test)
    graph = fixed_graph('lagged nearest', traffic)
    test = errors(ridge(traffic, graph)[1], target)
    assert test['rmse'][2] == pytest.approx(8.45, abs=0.02)
    assert test['mae'][2] == pytest.approx(5.08, abs=0.02)


def test_absent_series_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv('GSL_DATA', str(tmp_path))
    sensors_data.load.cache_clear()
    with pytest.raises(OSError, match=r"traffic' was not found: let 'GSL_DATA'"):
        sensors_data.load()


def test_the_folder_of_series(tmp_path):
    files = {
        'los_speed.csv': '7,8,9\n1,2,3\n4,5,6.5\n',
        'los_adj.csv': '1,0.5,0\n0,1,0\n0.25,0,1\n',
        'metr_la_sensor_locations.csv': (
            'index,sensor_id,latitude,longitude\n0,9,3,-3\n1,7,1,-1\n2,8,2,-2\n'
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding='ascii')
    data = sensors_data.read_folder(tmp_path)
    assert data.x.tolist() == [[1, 4], [2, 5], [3, 6.5]]
    assert data.edge_index.tolist() == [[0, 2], [1, 0]]
    assert data.edge_weight.tolist() == [0.5, 0.25]
    assert data.pos.tolist() == [[1, -1], [2, -2], [3, -3]]


def test_traffic(gsl_data):
    data = sensors_data.read_folder(gsl_data('traffic'))
    assert data.x.shape == (207, 2016)
    assert data.edge_index.shape == (2, 2626)
    assert bool(((data.x > 0) & (data.x <= 70)).all())
