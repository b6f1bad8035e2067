"""A learned factor of the similarity, and sums of a stated error in evaluation."""

import copy
import math

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GSLNet, GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.nn.sampler import _parts

METHODS = ['dense', 'race', 'stream']


def make(**options):
    return GumbelKNNSampler(LinearSimilarity(4), scale='learned', **options)


def nodes(n=40):
    x = torch.randn(n, 4, generator=seeded(), dtype=torch.float64)
    return x, torch.randn(n, 3, generator=seeded(1), dtype=torch.float64)


@pytest.mark.parametrize('method', METHODS)
def test_equals_the_same_factor_given(method):
    x, h = nodes()
    learned = make(initial_scale=3.0, method=method)
    given = GumbelKNNSampler(LinearSimilarity(4), scale=3.0, method=method)
    for training in (True, False):
        found, expected = (
            sampler.train(training).propagate(x, h, generator=seeded())
            for sampler in (learned, given)
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('training', [True, False])
def test_gradient_by_finite_differences(training):
    x, h = nodes()
    sampler = make(initial_scale=2.0, method='dense').double().train(training)

    def loss():
        return sampler.propagate(x, h, generator=seeded()).square().sum()

    loss().backward()
    found, step = float(sampler.log_scale.grad), 1e-6
    with torch.no_grad():
        sampler.log_scale += step
        above = float(loss())
        sampler.log_scale -= 2 * step
        below = float(loss())
    assert found == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_the_gradient_of_races_is_that_of_the_definition():
    x, h = nodes()
    gradients = {}
    for method in ('race', 'dense'):
        sampler = make(initial_scale=5.0, k=1, method=method).double()
        found = []
        for seed in range(200):
            sampler.zero_grad()
            sampler.propagate(x, h, generator=seeded(seed)).sum().backward()
            found.append(float(sampler.log_scale.grad))
        gradients[method] = torch.tensor(found)
    race, dense = gradients.values()
    error = (race.var() / 200 + dense.var() / 200).sqrt()
    assert abs(float((race.mean() - dense.mean()) / error)) < 3.9  # One in 10,000.


def test_state_reset_and_repr():
    sampler = make(initial_scale=2.0)
    assert float(sampler.factor.detach()) == pytest.approx(2.0)
    assert 'scale=learned' in str(sampler)
    assert set(sampler.state_dict()) == {'log_scale'}
    other = make(initial_scale=7.0)
    other.load_state_dict(sampler.state_dict())
    assert float(other.factor.detach()) == pytest.approx(2.0)
    other.reset_parameters()
    assert float(other.factor.detach()) == pytest.approx(7.0)
    assert float(copy.deepcopy(other).factor.detach()) == pytest.approx(7.0)


def test_bounds_follow_the_factor():
    # A race that kept old bounds would see scores beyond them, and raise.
    x, _ = nodes(300)
    sampler = make(method='race')
    for scale in (1.0, 10.0, 100.0, 0.1):
        with torch.no_grad():
            sampler.log_scale.fill_(math.log(scale))
        assert sampler(x, generator=seeded()).edge_weight.isfinite().all()


def test_each_layer_learns_a_factor():
    x = torch.randn(150, 8, generator=seeded())
    label = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    model = GSLNet(8, 8, 2, 2, similarity='linear', scale='learned')
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        model.loss(x, label, torch.ones(150, dtype=torch.bool)).backward()
        optimizer.step()
    learned = [p for name, p in model.named_parameters() if 'log_scale' in name]
    assert len(learned) == 2
    assert all(float(p.detach()) != 0 for p in learned)


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'scale': 'auto'}, TypeError, "'scale' must be a positive number"),
        ({'scale': 'learned', 'initial_scale': 0.0}, ValueError, "'initial_scale'"),
        ({'eval_tolerance': 0.0}, ValueError, "'eval_tolerance' must be positive"),
        ({'eval_tolerance': '1e-3'}, TypeError, "'eval_tolerance' must be a positive"),
    ],
)
def test_bad_options(options, error, text):
    with pytest.raises(error, match=text):
        GumbelKNNSampler(LinearSimilarity(4), **options)


@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('scale', [1.0, 20.0])
def test_a_tolerance_holds(scale, loop, monkeypatch):
    monkeypatch.setattr(_parts, 'may_pay', lambda *args, **kwargs: scale > 1)
    x, h = nodes(300)
    options = {'scale': scale, 'loop': loop}
    exact = GumbelKNNSampler(LinearSimilarity(4), **options).eval()
    near = GumbelKNNSampler(LinearSimilarity(4), eval_tolerance=1e-2, **options).eval()
    with torch.no_grad():
        expected, found = (sampler.propagate(x, h) for sampler in (exact, near))
    assert ((found - expected).norm(dim=1) <= 1e-2 * expected.norm(dim=1)).all()
    assert torch.equal(found, expected) == (scale == 1)
    # With gradients enabled the sums are those of all pairs.
    torch.testing.assert_close(near.propagate(x, h), expected)
