"""Synthetic data sets against their definitions by loops."""

import math

import pytest
import torch
from torch_geometric.loader import DataLoader

from torch_geometric_gsl.datasets import COUPLINGS, CoupledSensors, HiddenRelation

ACTS = {
    'linear': lambda x: x,
    'tanh': lambda x: math.tanh(2 * x),
    'sine': lambda x: math.sin(3 * x),
}


def sensors(**kwargs):
    return CoupledSensors(**{'num_sensors': 6, 'num_steps': 40, **kwargs})


@pytest.mark.parametrize(
    ('make', 'name'),
    [
        (sensors, "CoupledSensors(2, num_sensors=6, coupling='tanh')"),
        (HiddenRelation, 'HiddenRelation(2, delta=40)'),
    ],
)
def test_seeds_and_batches(make, name):
    graphs, again, reseeded = (make(num_graphs=2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(graphs[1].x, again[1].x)
    assert not torch.equal(graphs[1].x, reseeded[1].x)
    assert not torch.equal(graphs[0].x, graphs[1].x)
    assert str(graphs) == name
    batch, n = next(iter(DataLoader(graphs, batch_size=2))), graphs[0].num_nodes
    second = batch.batch[batch.true_edge_index[1]] == 1
    edges = batch.true_edge_index[:, second] - n
    assert torch.equal(edges, graphs[1].true_edge_index)
    seen = make(transform=lambda data: setattr(data, 'seen', True) or data)[0]
    assert seen.seen


# A hidden relation


def test_the_relation_is_that_of_the_angles():
    graph = HiddenRelation(1, 30, delta=(50, 120), width=7.0, seed=3)[0]
    angle = torch.atan2(graph.pos[:, 1], graph.pos[:, 0]).rad2deg().tolist()
    expected = set()
    for target in range(30):
        for source in range(30):
            gap = abs(angle[target] - angle[source]) % 360
            gap = min(gap, 360 - gap)
            for edge_type, delta in enumerate((50, 120)):
                if source != target and abs(gap - delta) <= 7:
                    expected.add((source, target, edge_type))
    edges = zip(*graph.true_edge_index.tolist(), graph.true_edge_type, strict=True)
    assert {(j, i, int(edge_type)) for j, i, edge_type in edges} == expected
    assert len(expected) > 50
    assert graph.true_edge_index[1].diff().min() >= 0
    assert HiddenRelation(1, 1)[0].true_edge_index.shape == (2, 0)


def test_targets_are_the_means_at_both_sides():
    # Without noise the value of a node is the function there; on nodes a degree apart
    # the target is the mean of the values at both sides.
    graph = HiddenRelation(1, 2_000, delta=40, noise=0.0)[0]
    x, y, pos = graph.x, graph.y, graph.pos
    assert not torch.allclose(x, y, atol=0.1)
    turn = math.radians(40)
    rotation = torch.tensor(
        [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
    )
    sides = [x[(pos @ r @ pos.T).argmax(dim=1)] for r in (rotation, rotation.T)]
    torch.testing.assert_close(sum(sides) / 2, y, atol=0.05, rtol=0)


def test_noise_and_variance():
    def values(noise):
        graphs = HiddenRelation(300, 20, noise=noise, num_waves=2, seed=1)
        return torch.stack([graph.x for graph in graphs])

    # 300 functions of mean 0 and variance 1, 20 values each: within 5 standard errors.
    assert abs(float(values(0.0).square().mean()) - 1) < 5 * math.sqrt(2 / 300)
    noise = values(0.5) - values(0.0)
    assert abs(float(noise.std()) - 0.5) < 5 * 0.5 / math.sqrt(2 * 6_000)


# Coupled sensors


def residuals(data, coupling, persistence):
    """Return what the couplings and the past do not explain, by loops."""
    x, last = data.x.tolist(), int(data.true_edge_lag.max())
    columns = data.true_edge_index.tolist()
    columns += [data.true_edge_weight.tolist(), data.true_edge_lag.tolist()]
    edges = list(zip(*columns, strict=True))
    left = []
    for step in range(last, len(x[0])):
        row = [x[i][step] - persistence * x[i][step - 1] for i in range(len(x))]
        for source, target, weight, lag in edges:
            row[target] -= weight * ACTS[coupling](x[source][step - lag])
        left.append(row)
    return torch.tensor(left)


@pytest.mark.parametrize('max_lag', [1, 3])
@pytest.mark.parametrize('coupling', COUPLINGS)
def test_true_edges_are_those_of_the_simulation(coupling, max_lag):
    # The shocks of a seed are the same, whatever is made of them.
    kwargs = {'coupling': coupling, 'max_lag': max_lag, 'seed': 3}
    data = sensors(**kwargs)[0]
    altered = sensors(**kwargs, strength=0.2, persistence=0.7)[0]
    assert not torch.allclose(data.x, altered.x)
    torch.testing.assert_close(
        residuals(data, coupling, 0.3), residuals(altered, coupling, 0.7)
    )
    assert int(data.true_edge_lag.max()) == max_lag


def test_edges():
    data = sensors(num_sources=3)[0]
    source, target = data.true_edge_index
    assert target.tolist() == sorted([*range(6)] * 3)
    assert bool((source != target).all())
    assert len({*zip(source.tolist(), target.tolist(), strict=True)}) == 18
    assert bool((data.true_edge_weight > 0).all())
    sums = torch.zeros(6).index_add(0, target, data.true_edge_weight)
    torch.testing.assert_close(sums, torch.full((6,), 0.6))


@pytest.mark.parametrize('coupling', COUPLINGS)
def test_series_are_stable(coupling):
    x = sensors(coupling=coupling, num_steps=5_000, driver_persistence=0.9)[0].x
    early, late = x[:, :1_000].std(dim=1), x[:, -1_000:].std(dim=1)
    assert float((late / early).max()) < 2
    assert float((early / late).max()) < 2
    assert float(x.abs().max()) < 20


def test_noise_and_drivers():
    kwargs = {'num_steps': 4_000, 'num_sensors': 8, 'num_groups': 2, 'seed': 1}
    alone = residuals(sensors(**kwargs, driver=0.0, noise=0.25)[0], 'tanh', 0.3)
    assert float(alone.std()) == pytest.approx(0.25, rel=0.02)
    off = torch.corrcoef(alone.t()) - torch.eye(8)
    assert float(off.abs().max()) < 5 / math.sqrt(4_000)
    data = sensors(**kwargs, driver=2.0, driver_persistence=0.6)[0]
    shocks = residuals(data, 'tanh', 0.3)
    together = torch.corrcoef(shocks.t()).abs() > 0.3
    assert torch.equal(together, data.group.unsqueeze(1) == data.group)
    assert 0 < int(data.group.sum()) < 8
    # The driver of a group is nearly the mean of its sensors.
    mean = shocks[:, data.group == 0].mean(dim=1)
    memory = torch.corrcoef(torch.stack([mean[1:], mean[:-1]]))[0, 1]
    assert float(memory) == pytest.approx(0.6, abs=0.1)


def test_windows_are_views_of_the_series():
    dataset = sensors(num_graphs=2)
    x, y = dataset.windows(4, 2, index=1)
    assert (x.shape, y.shape) == ((35, 4, 6, 1), (35, 2, 6, 1))
    series = dataset[1].x
    for start in (0, 17, 34):
        torch.testing.assert_close(x[start, :, :, 0], series[:, start : start + 4].t())
        follows = series[:, start + 4 : start + 6].t()
        torch.testing.assert_close(y[start, :, :, 0], follows)
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    for args, match in (
        ((40,), r"'window' and 'horizon' must fit into num_steps=40 \(got 40 and 1\)"),
        ((0,), r"'window' must be at least 1 \(got 0\)"),
        ((3, 0), r"'horizon' must be at least 1 \(got 0\)"),
    ):
        with pytest.raises(ValueError, match=match):
            dataset.windows(*args)


def test_the_start_is_forgotten_whatever_the_lags():
    """Couplings act in the first step that is kept, also of lags beyond 200 steps."""
    x = sensors(num_sensors=20, max_lag=300, num_steps=50)[0].x
    after = (x[:, 1:] * x[:, :-1]).mean() / x.square().mean()
    assert float(after) > 0.2  # Of shocks alone it is about 0.


@pytest.mark.parametrize(
    ('make', 'kwargs', 'error', 'text'),
    [
        (sensors, {'num_sensors': 1}, ValueError, "'num_sensors' must be at least 3"),
        (sensors, {'num_sources': 6}, ValueError, r'at least 7 \(got 6\)'),
        (sensors, {'num_steps': 0}, ValueError, r"'num_steps' must be at least 1"),
        (sensors, {'coupling': 'cubic'}, ValueError, r"'coupling' must .*'cubic'\)"),
        (sensors, {'strength': 1.2}, ValueError, r"'strength' must lie .*\(got 1.2"),
        (sensors, {'strength': 0.8}, ValueError, r'sum to less than 1, .*0.8 and 0.3'),
        (sensors, {'persistence': 'a'}, TypeError, "'persistence' must be a number"),
        (sensors, {'driver_persistence': 1.0}, ValueError, "'driver_persistence' must"),
        (sensors, {'driver': -1}, ValueError, r"'driver' must be at least 0 \(got -1"),
        (HiddenRelation, {'num_nodes': 0}, ValueError, "'num_nodes' must be"),
        (HiddenRelation, {'delta': 181}, ValueError, r'0 and 180 \(got 181\)'),
        (HiddenRelation, {'delta': 'far'}, TypeError, "'delta' must be"),
        (HiddenRelation, {'delta': ()}, ValueError, r"'delta' must .* \(got \(\)\)"),
        (HiddenRelation, {'width': -1.0}, ValueError, "'width' must be"),
        (HiddenRelation, {'noise': -0.1}, ValueError, r"'noise' must .*\(got -0.1\)"),
        (HiddenRelation, {'seed': 0.5}, TypeError, "'seed' must be"),
    ],
)
def test_bad_arguments(make, kwargs, error, text):
    with pytest.raises(error, match=text):
        make(**kwargs)
