import pytest
import torch

from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import (
    DifferenceSimilarity,
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)

DOUBLE = {'dtype': torch.float64}
CASES = [
    (LinearSimilarity, {}),
    (DifferenceSimilarity, {}),
    (GaussianSimilarity, {'b': 0.3, 'c': 0.5}),
    (NeuralGaussianSimilarity, {'bias': True}),
    (HeatKernelSimilarity, {'normalize': False}),
    (HeatKernelSimilarity, {'t': 0.7}),
]


def build(cls, options):
    """Return a similarity with weights, one without, and these weights."""
    weighted = cls(5, feature_weights=True, **options).double()
    plain = cls(5, **options).double()
    state = weighted.state_dict()
    weight = state.pop('feature_weight')
    plain.load_state_dict(state)
    weight.uniform_(-2, 2)
    return weighted, plain, weight


@pytest.mark.parametrize(('cls', 'options'), CASES)
@pytest.mark.parametrize('method', ['dense', 'stream', 'race', 'pool'])
def test_their_gradient_is_that_of_scaled_features(cls, options, method):
    weighted, plain, weight = build(cls, options)
    x, h = torch.randn(40, 5, **DOUBLE), torch.randn(40, 3, **DOUBLE)

    def gradient(similarity, rows, leaf):
        sampler = GumbelKNNSampler.paper(similarity, k=2, tau=0.5, method=method)
        generator = torch.Generator().manual_seed(1)
        out = sampler.propagate(rows, h, generator=generator)
        return torch.autograd.grad(out.square().sum(), leaf)[0]

    if method == 'race' and weighted.bounds[0] == -torch.inf:
        return
    leaf = weight.clone().requires_grad_()
    expected = gradient(plain, x * leaf, leaf)
    slope = gradient(weighted, x, weighted.feature_weight)
    assert float(slope.abs().max()) > 1e-6
    torch.testing.assert_close(slope, expected, rtol=1e-9, atol=1e-12)


def test_they_begin_at_one():
    similarity = GaussianSimilarity(3, feature_weights=True)
    assert similarity.feature_weight.tolist() == [1, 1, 1]
    assert str(similarity).startswith('GaussianSimilarity(3, feature_weights=True, b=')
    assert GaussianSimilarity(3).feature_weight is None


def test_bad_options():
    with pytest.raises(ValueError, match="'feature_weights' must be False with"):
        LinearSimilarity(5, 3, feature_weights=True)
    with pytest.raises(TypeError, match="'feature_weights' must be"):
        LinearSimilarity(5, feature_weights=1)
