import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import unit

from torch_geometric_gsl.ops import scores

DOUBLE = {'dtype': torch.float64}


def as_double(rows):
    return torch.tensor(rows, **DOUBLE)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_unit_rows(dtype):
    x = torch.randn(6, 4, dtype=dtype)
    x *= torch.tensor([1, 1e30, 1e-30, 0, 1e-38, 1], dtype=dtype).view(-1, 1)
    expected = as_double([unit(row) for row in x.tolist()])
    out = scores.unit_rows(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(scores.unit_rows(x.t().contiguous().t()), out)


def test_unit_rows_at_the_ends_of_float32():
    x = torch.tensor([[3e38, 3e38], [1e-45, 0.0], [0.0, -3e-39]])
    expected = torch.tensor([[0.5**0.5, 0.5**0.5], [1, 0], [0, -1]])
    torch.testing.assert_close(scores.unit_rows(x), expected)


def test_unit_rows_gradient_of_zeros_is_finite():
    x = torch.zeros(2, 3, requires_grad=True)
    scores.unit_rows(x).sum().backward()
    assert bool(x.grad.isfinite().all())


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_squared_distances_against_loops(n, m, width, seed):
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(n, width, **DOUBLE, generator=generator)
    v = torch.randn(m, width, **DOUBLE, generator=generator)
    squares = as_double(
        [[math.dist(a, b) ** 2 for b in v.tolist()] for a in u.tolist()]
    )
    pairs = (u.unsqueeze(1), v.unsqueeze(0))
    for out in (scores.squared_distance_matrix(u, v), scores.squared_distance(*pairs)):
        assert out.shape == (n, m)
        torch.testing.assert_close(out, squares.view(n, m), rtol=1e-9, atol=1e-9)


def test_squared_distance_survives_an_offset():
    # Expanding the square without centring loses all digits here.
    u = torch.tensor([[7e5, 9e5], [7e5 + 1, 9e5], [7e5, 9e5]])
    distance = scores.squared_distance_matrix(u, u)
    assert distance.tolist() == [
        [0.0, pytest.approx(1, rel=1e-5), 0.0],
        [pytest.approx(1, rel=1e-5), 0.0, pytest.approx(1, rel=1e-5)],
        [0.0, pytest.approx(1, rel=1e-5), 0.0],
    ]


def test_squared_distance_of_huge_rows_stays_finite():
    x = torch.tensor([[1e30, 0.0], [1.0, 0.0], [2.0, 0.0]])
    pairs = (x.unsqueeze(1), x.unsqueeze(0))
    for out in (scores.squared_distance_matrix(x, x), scores.squared_distance(*pairs)):
        assert out.diagonal().tolist() == [0, 0, 0]
        assert out[1, 2] == 1
        assert bool((out[0, 1:] > 1e35).all())
        assert bool(out.isfinite().all())


def test_neural_width_stays_away_from_zero():
    w = torch.full((1, 2), -100.0, requires_grad=True)
    z = torch.ones(3, 2)
    _, width = scores.neural_gaussian(z, torch.zeros(1, 2), w, 0.1).params
    assert bool((width == scores.MIN_WIDTH).all())
    t = torch.tensor([-1.0, 0.5, 0.500001])
    phi = scores.Gaussian.value(t, 0.5, width)
    phi.sum().backward()
    assert bool(phi.isfinite().all())
    assert bool(w.grad.isfinite().all())
    assert phi[1].item() == 1
