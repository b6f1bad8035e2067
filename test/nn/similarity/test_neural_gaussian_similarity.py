import math

import pytest
import torch

from torch_geometric_gsl.nn.similarity.gaussian_similarity import GaussianSimilarity
from torch_geometric_gsl.nn.similarity.neural_gaussian_similarity import (
    NeuralGaussianSimilarity,
)


def test_repr():
    module = NeuralGaussianSimilarity(16)
    assert str(module) == 'NeuralGaussianSimilarity(16, c_scale=0.1)'
    module = NeuralGaussianSimilarity(16, 8, c_scale=2)
    assert str(module) == 'NeuralGaussianSimilarity(16, 8, c_scale=2)'


@pytest.mark.parametrize('out_channels', [None, 8])
def test_parameters(out_channels):
    module = NeuralGaussianSimilarity(16, out_channels)
    width = out_channels or 16
    assert module.w_b.shape == module.w_c.shape == (1, width)
    assert not torch.equal(module.w_b, module.w_c)


def test_without_weights_it_is_the_gaussian_similarity():
    # sigmoid(0) = 1 / 2, hence b = 0.5 and c = 0.05 everywhere.
    module, x = NeuralGaussianSimilarity(3), torch.randn(5, 3)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    expected = GaussianSimilarity(3, b=0.5, c=0.05)(x)
    torch.testing.assert_close(module(x), expected)


def test_the_bell_belongs_to_the_target():
    module = NeuralGaussianSimilarity(2)
    with torch.no_grad():
        # Centres sigmoid(log 4) = 0.8 and sigmoid(-log 4) = 0.2.
        module.w_b.copy_(torch.tensor([[math.log(4), -math.log(4)]]))
        module.w_c.zero_()
    out = module(torch.eye(2)).tolist()
    for i, b in enumerate((0.8, 0.2)):
        for j in range(2):
            expected = math.exp(-((float(i == j) - b) ** 2) / 0.05)
            assert out[i][j] == pytest.approx(expected, rel=1e-5)
    assert out[0][1] != pytest.approx(out[1][0])


def test_extreme_weights_stay_finite():
    module = NeuralGaussianSimilarity(3)
    x = torch.randn(6, 3, requires_grad=True)
    for value in (1e4, -1e4):
        for parameter in module.parameters():
            torch.nn.init.constant_(parameter, value)
            parameter.grad = None
        out = module(x)
        out.sum().backward()
        assert bool(out.isfinite().all())
        for leaf in (x, *module.parameters()):
            assert leaf.grad is not None
            assert bool(leaf.grad.isfinite().all())


@pytest.mark.parametrize('c_scale', [0, -1.0, math.nan, math.inf])
def test_wrong_scale(c_scale):
    with pytest.raises(ValueError, match="'c_scale' must be positive and finite"):
        NeuralGaussianSimilarity(3, c_scale=c_scale)
