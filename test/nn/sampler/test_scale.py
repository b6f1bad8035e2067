"""A learned factor of the similarity, and sums of a stated error in evaluation."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import (
    Budget,
    GumbelKNNSampler,
    HeatKernelSimilarity,
    LinearSimilarity,
)
from torch_geometric_gsl.nn.sampler import options as sampler_options
from torch_geometric_gsl.ops import certified_sum

METHODS = ['dense', 'race', 'stream']


def make(**options):
    return GumbelKNNSampler.paper(LinearSimilarity(4), train_scale=True, **options)


def nodes(n=40):
    x = torch.randn(n, 4, generator=seeded(), dtype=torch.float64)
    return x, torch.randn(n, 3, generator=seeded(1), dtype=torch.float64)


@pytest.mark.parametrize('method', METHODS)
def test_equals_the_same_factor_given(method):
    x, h = nodes()
    learned = make(scale=3.0, method=method)
    given = GumbelKNNSampler.paper(LinearSimilarity(4), scale=3.0, method=method)
    for training in (True, False):
        found, expected = (
            sampler.train(training).propagate(x, h, generator=seeded())
            for sampler in (learned, given)
        )
        torch.testing.assert_close(found, expected)


def test_the_gradient_of_races_is_that_of_the_definition():
    x, h = nodes()
    gradients = {}
    for method in ('race', 'dense'):
        sampler = make(scale=5.0, k=1, method=method).double()
        found = []
        for seed in range(200):
            sampler.zero_grad()
            sampler.propagate(x, h, generator=seeded(seed)).sum().backward()
            found.append(float(sampler.log_scale.grad))
        gradients[method] = torch.tensor(found)
    race, dense = gradients.values()
    error = (race.var() / 200 + dense.var() / 200).sqrt()
    assert abs(float((race.mean() - dense.mean()) / error)) < 3.9  # One in 10,000.


@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('scale', [1.0, 20.0])
def test_a_tolerance_holds(scale, loop, monkeypatch):
    monkeypatch.setattr(certified_sum, '_may_pay', lambda *args: scale > 1)
    x, h = nodes(300)
    options = {'scale': scale, 'loop': loop}
    exact = GumbelKNNSampler.paper(LinearSimilarity(4), **options).eval()
    options['budget'] = Budget(eval_tolerance=1e-2)
    near = GumbelKNNSampler.paper(LinearSimilarity(4), **options).eval()
    with torch.no_grad():
        expected, found = (sampler.propagate(x, h) for sampler in (exact, near))
    assert ((found - expected).norm(dim=1) <= 1e-2 * expected.norm(dim=1)).all()
    assert torch.equal(found, expected) == (scale == 1)
    # With gradients enabled the sums are those of all pairs.
    torch.testing.assert_close(near.propagate(x, h), expected)


@pytest.mark.parametrize('case', ['gradient', 'null', 'sparse'])
def test_a_tolerance_is_never_an_estimate(case, monkeypatch):
    monkeypatch.setattr(sampler_options, 'EVAL_PAIRS', 10)
    x, h = nodes(3000)
    options = {'scale': 10.0, 'null_score': 0.0 if case == 'null' else None}
    exact = GumbelKNNSampler.paper(LinearSimilarity(4), **options).eval()
    options |= {'budget': Budget(eval_tolerance=1e-3, eval_pairs=10)}
    near = GumbelKNNSampler.paper(LinearSimilarity(4), **options).eval()
    x = x.to_sparse_csr() if case == 'sparse' else x
    with torch.set_grad_enabled(case == 'gradient'):
        assert torch.equal(near.propagate(x, h), exact.propagate(x, h))


@pytest.mark.parametrize('mean', [3e2, 3e5])
def test_a_tolerance_holds_for_small_sums_beside_a_large_mean(mean):
    # Most messages are large; a far cluster is summed from its own, which are small.
    x = 3e-4 * torch.randn(6000, 6, generator=seeded())
    x[:, 0] += 1
    x[-64:] = torch.randn(64, 6, generator=seeded(1))
    x[-64:, 0] -= 100 + torch.randn(64, generator=seeded(2))
    h = torch.randn(6000, 3, generator=seeded(3))
    h[:-64] += mean
    similarity = HeatKernelSimilarity(6, normalize=False)
    options = {'tau': 0.1, 'scale': 10.0, 'loop': False}
    options['budget'] = Budget(eval_tolerance=1e-3)
    sampler = GumbelKNNSampler.paper(similarity, **options).eval()
    with torch.no_grad():
        found = sampler.propagate(x, h)[-64:].double()
        score = sampler.scale * similarity((x, x[-64:]))
    score[torch.arange(64), torch.arange(6000 - 64, 6000)] = -torch.inf
    expected = (score.double() / sampler.tau).softmax(dim=1) @ h.double()
    error = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert error.max() <= 1e-3
