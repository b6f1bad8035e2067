"""Gradients that are written by hand, those of other modules included."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.derivatives import straight_through
from torch_geometric_gsl.ops.distances import pair_distances
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum, pair_dots
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions, relax

N, WIDTH = 6, 70
EVERY = Neighbours(torch.arange(N).repeat(N, 1), num_sources=N)


def relaxed_race(score):
    noise = torch.rand(N, 5, 14, generator=seeded()).sort(descending=True).values
    source = torch.zeros(noise.shape, dtype=torch.long)
    arrivals = Arrivals(source, noise, torch.zeros(N, 5))
    return relax(score.view(N, 5, 14), arrivals, DrawOptions(5, 0.5, 14))[0]


# Whatever has a gradient that is written by hand, of an input [N, WIDTH].
FUNCTIONS = {
    'relax': relaxed_race,
    'relaxed_weights': lambda x: relaxed_weights(x, 5, 0.5, generator=seeded()),
    'pair_dots': lambda x: pair_dots(x, x, EVERY),
    'pair_distances': lambda x: pair_distances(x, x, EVERY),
    'neighbour_sum': lambda x: neighbour_sum(x, x[:, :N].contiguous(), EVERY),
}
EACH = pytest.mark.parametrize('name', FUNCTIONS)


def problem(name, dtype=torch.float64):
    x = torch.randn(N, WIDTH, dtype=dtype, generator=seeded()).requires_grad_()
    out = FUNCTIONS[name](x)
    return x, out, torch.randn(out.shape, dtype=dtype, generator=seeded(6))


@EACH
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_gradients_ignore_autocast(name, dtype):
    x, out, given = problem(name, dtype)
    (expected,) = torch.autograd.grad(out, x, given, retain_graph=True)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (inside,) = torch.autograd.grad(out, x, given)
    assert torch.equal(inside, expected)


@EACH
@pytest.mark.parametrize('by', ['input', 'incoming gradient'])
def test_second_derivatives_raise(name, by):
    x, out, given = problem(name)
    (expected,) = torch.autograd.grad(out, x, given, retain_graph=True)
    leaf = x if by == 'input' else given.requires_grad_()
    if by != 'input':  # A gradient that depends on what comes in alone.
        out = FUNCTIONS[name](x)
    text = 'second derivatives are not implemented: the gradient of [A-Z]'
    (first,) = torch.autograd.grad(out, x, given, create_graph=True)
    with pytest.raises(RuntimeError, match=text):
        torch.autograd.grad(first.square().sum(), leaf)
    # A first derivative that keeps its graph is the right one.
    torch.testing.assert_close(first.detach(), expected, rtol=0, atol=0)


def test_a_linear_function_has_a_second_derivative():
    soft = torch.randn(4, dtype=torch.float64, requires_grad=True)
    out = straight_through(torch.zeros_like(soft), soft**3)
    (first,) = torch.autograd.grad(out.sum(), soft, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), soft)
    torch.testing.assert_close(first, 3 * soft**2)
    torch.testing.assert_close(second, 6 * soft)


def test_straight_through():
    hard = torch.tensor([0.0, 1.0, 0.0], requires_grad=True)
    soft = torch.tensor([0.2, 0.5, 0.3], requires_grad=True)
    result = straight_through(hard, soft)
    assert torch.equal(result, hard)
    assert result.data_ptr() != hard.data_ptr()
    grad = torch.tensor([1.0, -2.0, 3.0])
    result.backward(grad)
    assert hard.grad is None
    assert torch.equal(soft.grad, grad)
