import pytest
import torch

from torch_geometric_gsl.nn.similarity import NeuralGaussianSimilarity


@pytest.mark.parametrize(('activation', 'angle'), [('sigmoid', 5.0), ('tanh', 175.0)])
def test_a_far_relation_draws_the_bell(activation, angle):
    # The share of the candidate next to the relation, among 37 around a circle.
    torch.manual_seed(0)
    similarity = NeuralGaussianSimilarity(2, bias=True, centre=activation)
    candidates = torch.arange(5.0, 365, 10).deg2rad()
    angles = torch.cat([torch.zeros(1), candidates])
    x = torch.stack([angles.cos(), angles.sin()], dim=1)
    share = (5 * similarity(x)[0]).softmax(dim=0)[round(angle) // 10 + 1]
    share.log().backward()
    step = similarity.bias_b.grad * (1 if angle < 90 else -1)
    assert step > 0.1


def test_extreme_weights_stay_finite():
    module = NeuralGaussianSimilarity(3)
    x = torch.randn(6, 3, requires_grad=True)
    for value in (1e4, -1e4):
        for parameter in module.parameters():
            torch.nn.init.constant_(parameter, value)
            parameter.grad = None
        out = module(x)
        out.sum().backward()
        for tensor in (out, x.grad, *(leaf.grad for leaf in module.parameters())):
            assert bool(tensor.isfinite().all())


@pytest.mark.parametrize(
    ('activation', 'centre'), [('sigmoid', 0.3), ('tanh', -0.8), ('tanh', 0.3)]
)
def test_the_first_centre_is_that_of_all_targets(activation, centre):
    similarity = NeuralGaussianSimilarity(3, bias=True, centre=activation)
    similarity.begin_at(centre)
    b, _ = similarity.response(torch.randn(4, 3)).params
    torch.testing.assert_close(b.flatten(), torch.full((4,), centre))
    similarity(torch.randn(4, 3)).sum().backward()
    assert similarity.w_b.grad.abs().min() > 0


def test_first_centres_that_cannot_be():
    similarity = NeuralGaussianSimilarity(3, bias=True)
    for value in (0, 1, -0.2):
        text = rf"between 0 and 1 with centre='sigmoid' \(got {value}\)"
        with pytest.raises(ValueError, match=text):
            similarity.begin_at(value)
    with pytest.raises(TypeError, match=r"'centre' must be a number \(got str\)"):
        similarity.begin_at('right')
    with pytest.raises(ValueError, match="'bias' must be True to set the initial"):
        NeuralGaussianSimilarity(3).begin_at(0.5)
