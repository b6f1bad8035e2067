"""What tells the similarities apart; `test_base` holds their formulas against loops."""

import math

import pytest
import torch

from torch_geometric_gsl import (
    CosineSimilarity,
    DifferenceSimilarity,
    GaussianSimilarity,
    GumbelKNNSampler,
    HeatKernelSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
    UniformSimilarity,
)

REPRS = [
    (LinearSimilarity, {}, ''),
    (DifferenceSimilarity, {}, ''),
    (GaussianSimilarity, {}, ', b=0.5, c=0.05437'),
    (GaussianSimilarity, {'b': -1, 'c': 0.25}, ', b=-1, c=0.25'),
    (HeatKernelSimilarity, {}, ', t=2, normalize=True'),
    (HeatKernelSimilarity, {'t': 0.5, 'normalize': False}, ', t=0.5, normalize=False'),
    (CosineSimilarity, {}, ', heads=4'),
    (CosineSimilarity, {'heads': 1}, ', heads=1'),
    (NeuralGaussianSimilarity, {}, ', c_scale=0.1'),
    (NeuralGaussianSimilarity, {'c_scale': 2}, ', c_scale=2'),
    (NeuralGaussianSimilarity, {'bias': True}, ', c_scale=0.1, bias=True'),
    (NeuralGaussianSimilarity, {'centre': 'tanh'}, ", c_scale=0.1, centre='tanh'"),
]


@pytest.mark.parametrize(('kind', 'kwargs', 'text'), REPRS)
def test_repr_and_parameters(kind, kwargs, text):
    assert str(kind(16, **kwargs)) == f'{kind.__name__}(16{text})'
    assert str(kind(16, 8, **kwargs)) == f'{kind.__name__}(16, 8{text})'
    own = {NeuralGaussianSimilarity: ['w_b', 'w_c'], CosineSimilarity: ['weight']}
    for out_channels, lin in ((None, []), (8, ['lin.weight'])):
        shapes = {
            n: p.shape for n, p in kind(16, out_channels, **kwargs).named_parameters()
        }
        biases = ['bias_b', 'bias_c'] if kwargs.get('bias') else []
        assert sorted(shapes) == sorted(own.get(kind, []) + biases + lin)
        assert all(shapes[name] == (1,) for name in biases)
        for name in own.get(kind, []):
            rows = kwargs.get('heads', 4) if name == 'weight' else 1
            assert shapes[name] == (rows, out_channels or 16)


X = torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, -1.0], [0.0, 0.0]])  # 3-4-5 triangle.
COSINE = torch.tensor(
    [[1, 0.6, 0, 0], [0.6, 1, -0.8, 0], [0, -0.8, 1, 0], [0, 0, 0, 0]]
)


def test_by_hand():
    torch.testing.assert_close(LinearSimilarity(2)(X), COSINE)
    torch.testing.assert_close(DifferenceSimilarity(2)(X), 1 - COSINE)
    # At a cosine of b the bell is one; one root of c away it is 1 / e.
    bells = GaussianSimilarity(2, b=0.6, c=0.16)(X)[0].log()
    torch.testing.assert_close(bells, torch.tensor([-1, 0, -2.25, -2.25]))
    squares = HeatKernelSimilarity(2, t=5.0, normalize=False)(X)[0].log() * -5
    torch.testing.assert_close(squares, torch.tensor([0.0, 17, 5, 4]))
    # The first head sees one channel, the second weighs them to a right angle.
    module = CosineSimilarity(2, heads=2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    found = module(torch.tensor([[1.0, 2.0], [1.0, -2.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    assert GaussianSimilarity(2).c == 0.02 * math.e  # As in the paper.


def test_the_bell_belongs_to_the_target():
    module = NeuralGaussianSimilarity(2)
    with torch.no_grad():  # Centres sigmoid(log 4) = 0.8 and sigmoid(-log 4) = 0.2.
        module.w_b.copy_(torch.tensor([[math.log(4), -math.log(4)]]))
        module.w_c.zero_()
    expected = -torch.tensor([[0.2**2, 0.8**2], [0.2**2, 0.8**2]]) / 0.05
    torch.testing.assert_close(module(torch.eye(2)).log(), expected)


def test_a_bias_moves_the_bell():
    module = NeuralGaussianSimilarity(2, bias=True, centre='tanh')
    with torch.no_grad():  # Centre tanh(-atanh(0.8)) = -0.8, width 0.1 * 0.8.
        module.w_b.zero_()
        module.w_c.zero_()
        module.bias_b.fill_(-math.atanh(0.8))
        module.bias_c.fill_(math.log(4))
    expected = -((COSINE[:2] + 0.8) ** 2) / 0.08
    torch.testing.assert_close(module(X)[:2], expected.exp())
    module(X)[0, 1].log().backward()
    assert module.bias_b.grad != 0
    assert module.bias_c.grad != 0
    module.reset_parameters()
    assert module.bias_b == 0
    assert module.bias_c == 0


def test_unknown_centre():
    with pytest.raises(ValueError, match=r"'centre' must be .* \(got 'cosh'\)"):
        NeuralGaussianSimilarity(2, centre='cosh')
    with pytest.raises(TypeError, match=r"'bias' must be a bool"):
        NeuralGaussianSimilarity(2, bias=1)


def test_extreme_weights_stay_finite():
    module = NeuralGaussianSimilarity(3)
    x = torch.randn(6, 3, requires_grad=True)
    for value in (1e4, -1e4):
        for parameter in module.parameters():
            torch.nn.init.constant_(parameter, value)
            parameter.grad = None
        out = module(x)
        out.sum().backward()
        for found in (out, x.grad, *(leaf.grad for leaf in module.parameters())):
            assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    ('kind', 'kwargs', 'error', 'text'),
    [
        (GaussianSimilarity, {'c': 0}, ValueError, r"'c' must be positive .*\(got 0\)"),
        (GaussianSimilarity, {'c': True}, TypeError, r"'c' must be .* \(got bool\)"),
        (GaussianSimilarity, {'b': math.nan}, ValueError, "'b' must be finite"),
        (HeatKernelSimilarity, {'t': -1.0}, ValueError, "'t' must be positive and fin"),
        (NeuralGaussianSimilarity, {'c_scale': 0}, ValueError, "'c_scale' must be pos"),
        (CosineSimilarity, {'heads': 0}, ValueError, "'heads' must be at least 1"),
        (CosineSimilarity, {'heads': 2.0}, TypeError, "'heads' must be an integer"),
    ],
)
def test_wrong_arguments(kind, kwargs, error, text):
    with pytest.raises(error, match=text):
        kind(3, **kwargs)


def test_repr_of_the_uniform_similarity():
    module = UniformSimilarity(16)
    assert str(module) == 'UniformSimilarity(16)'
    assert list(module.parameters()) == []
    assert module.embedding_channels == 1
    module.reset_parameters()


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16])
def test_uniform_scores_are_zero(dtype):
    module, x = UniformSimilarity(3), torch.randn(4, 3).to(dtype)
    for features in (x, x.to_sparse_csr(), x.t().contiguous().t()):
        assert torch.equal(module(features), torch.zeros(4, 4, dtype=dtype))
    assert torch.equal(module((x, x[:2])), torch.zeros(2, 4, dtype=dtype))
    edges = torch.tensor([[0, 3], [1, 1]])
    assert torch.equal(module(x, edges), torch.zeros(2, dtype=dtype))


def test_a_race_accepts_every_proposal():
    plan = GumbelKNNSampler(UniformSimilarity(3)).plan(torch.randn(80, 3))
    assert (plan.method, plan.num_proposals) == ('race', 8)
