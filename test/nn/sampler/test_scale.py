"""A learned factor of the similarity."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity

METHODS = ['dense', 'race', 'stream', 'pool']


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


@pytest.mark.parametrize('train_scale', [True, False])
def test_a_factor_neither_becomes_learned_nor_ceases_to_be(train_scale):
    similarity = LinearSimilarity(4)
    sampler = GumbelKNNSampler(similarity, scale=3.0, train_scale=train_scale)
    with pytest.raises(AttributeError, match="'train_scale' cannot be changed"):
        sampler.train_scale = not train_scale
    if train_scale:
        with pytest.raises(AttributeError, match="'scale' cannot be changed"):
            sampler.scale = 4.0
    else:
        sampler.scale = 4.0
        assert sampler.factor == 4.0
