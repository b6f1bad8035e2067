"""Series that a graph couples, against their definition by loops."""

import math

import pytest
import torch

from torch_geometric_gsl.datasets import CoupledSensors
from torch_geometric_gsl.datasets.coupled_sensors import COUPLINGS

ACTS = {
    'linear': lambda x: x,
    'tanh': lambda x: math.tanh(2 * x),
    'sine': lambda x: math.sin(3 * x),
}


def make(**kwargs):
    return CoupledSensors(**{'num_sensors': 6, 'num_steps': 40, **kwargs})


def residuals(data, coupling, persistence):
    """Return what the couplings and the past do not explain, by loops."""
    x, last = data.x.tolist(), int(data.true_edge_lag.max())
    edges = zip(
        *data.true_edge_index.tolist(),
        data.true_edge_weight.tolist(),
        data.true_edge_lag.tolist(),
        strict=True,
    )
    edges = list(edges)
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
    first, second = make(**kwargs)[0], make(**kwargs, strength=0.2, persistence=0.7)[0]
    assert not torch.allclose(first.x, second.x)
    torch.testing.assert_close(
        residuals(first, coupling, 0.3), residuals(second, coupling, 0.7)
    )
    assert int(first.true_edge_lag.max()) == max_lag


def test_edges():
    data = make(num_sources=3)[0]
    source, target = data.true_edge_index
    assert target.tolist() == sorted([*range(6)] * 3)
    assert bool((source != target).all())
    assert len({*zip(source.tolist(), target.tolist(), strict=True)}) == 18
    assert bool((data.true_edge_weight > 0).all())
    sums = torch.zeros(6).index_add(0, target, data.true_edge_weight)
    torch.testing.assert_close(sums, torch.full((6,), 0.6))
    assert data.num_nodes == 6


@pytest.mark.parametrize('coupling', COUPLINGS)
def test_series_are_stable(coupling):
    x = make(coupling=coupling, num_steps=5_000, driver_persistence=0.9)[0].x
    early, late = x[:, :1_000].std(dim=1), x[:, -1_000:].std(dim=1)
    assert float((late / early).max()) < 2
    assert float((early / late).max()) < 2
    assert float(x.abs().max()) < 20


def test_linear_series_have_no_root_outside_the_unit_circle():
    # Near the most that is allowed, by the companion matrix of two lags.
    data = make(coupling='linear', strength=0.69, max_lag=2)[0]
    matrix = torch.eye(12).roll(6, dims=0).tril()
    matrix[:6, :6] += 0.3 * torch.eye(6)
    source, target = data.true_edge_index
    matrix[target, source + 6 * (data.true_edge_lag - 1)] += data.true_edge_weight
    largest = float(torch.linalg.eigvals(matrix).abs().max())
    assert 0.9 < largest < 1


def test_noise_and_drivers():
    kwargs = {'num_steps': 4_000, 'num_sensors': 8, 'num_groups': 2, 'seed': 1}
    alone = residuals(make(**kwargs, driver=0.0, noise=0.25)[0], 'tanh', 0.3)
    assert float(alone.std()) == pytest.approx(0.25, rel=0.02)
    off = torch.corrcoef(alone.t()) - torch.eye(8)
    assert float(off.abs().max()) < 5 / math.sqrt(4_000)
    data = make(**kwargs, driver=2.0, driver_persistence=0.6)[0]
    shocks = residuals(data, 'tanh', 0.3)
    together = torch.corrcoef(shocks.t()).abs() > 0.3
    assert torch.equal(together, data.group.unsqueeze(1) == data.group)
    assert 0 < int(data.group.sum()) < 8
    # The driver of a group is nearly the mean of its sensors.
    mean = shocks[:, data.group == 0].mean(dim=1)
    memory = torch.corrcoef(torch.stack([mean[1:], mean[:-1]]))[0, 1]
    assert float(memory) == pytest.approx(0.6, abs=0.1)


def test_windows_are_views_of_the_series():
    dataset = make(num_graphs=2)
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


def test_seeds_and_repr():
    first, again, other = (make(num_graphs=2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first[1].x, again[1].x)
    assert not torch.equal(first[1].x, other[1].x)
    assert not torch.equal(first[0].true_edge_index, first[1].true_edge_index)
    assert str(first) == "CoupledSensors(2, num_sensors=6, coupling='tanh')"
    seen = make(transform=lambda data: setattr(data, 'seen', True) or data)[0]
    assert seen.seen


@pytest.mark.parametrize(
    ('kwargs', 'error', 'text'),
    [
        ({'num_sensors': 1}, ValueError, r"'num_sensors' must be at least 2 \(got 1\)"),
        ({'num_steps': 0}, ValueError, r"'num_steps' must be at least 1 \(got 0\)"),
        ({'num_sources': 6}, ValueError, r'less than num_sensors=6 \(got 6\)'),
        ({'coupling': 'cubic'}, ValueError, r"'coupling' must be .* \(got 'cubic'\)"),
        ({'strength': 1.2}, ValueError, r"'strength' must lie in \[0, 1\) \(got 1.2"),
        ({'strength': 0.8}, ValueError, r'less than 1 in sum, .* \(got 0.8 and 0.3\)'),
        ({'persistence': 'a'}, TypeError, "'persistence' must be a number"),
        ({'driver_persistence': 1.0}, ValueError, "'driver_persistence' must lie in"),
        ({'noise': -0.1}, ValueError, r"'noise' must be at least 0 \(got -0.1\)"),
        ({'driver': -1}, ValueError, r"'driver' must be at least 0 \(got -1\)"),
        ({'max_lag': 0}, ValueError, "'max_lag' must be at least 1"),
        ({'seed': 0.5}, TypeError, "'seed' must be an integer"),
    ],
)
def test_bad_arguments(kwargs, error, text):
    with pytest.raises(error, match=text):
        make(**kwargs)


def test_the_start_is_forgotten_whatever_the_lags():
    """Its steps are of the lags' size: couplings act in the first step that is kept."""
    x = make(num_sensors=20, max_lag=300, num_steps=50)[0].x
    after = (x[:, 1:] * x[:, :-1]).mean() / x.square().mean()
    assert float(after) > 0.2  # Of shocks alone it is about 0.
