from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest
from torch import Tensor

from torch_geometric_gsl.ops.noise import (
    arrival_times,
    clone_generator,
    straight_through,
)

CPU = torch.device('cpu')


def draw(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return arrival_times(size, dtype=dtype, device=CPU, generator=generator)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_arrival_times_are_exponential(dtype: torch.dtype) -> None:
    # Rejects the exact law with probability 1e-4, half of it for too good a fit.
    time = draw(200_000, dtype=dtype)
    assert time.dtype == dtype
    p_value = kstest(time.double().numpy(), 'expon').pvalue
    assert 5e-5 < p_value < 1 - 5e-5


def test_negative_logarithm_is_gumbel() -> None:
    noise = -draw(200_000, seed=1).log()
    assert 5e-5 < kstest(noise.numpy(), 'gumbel_r').pvalue < 1 - 5e-5


def test_draws_are_independent_along_each_dimension() -> None:
    # A correlation of n independent pairs has standard deviation 1 / sqrt(n); four
    # and a half of them: error rate below 1e-5 for each of three comparisons.
    time = draw(30, 30, 30, seed=2) - 1
    for dim in range(3):
        size = time.size(dim) - 1
        ahead, behind = time.narrow(dim, 1, size), time.narrow(dim, 0, size)
        correlation = float((ahead * behind).mean())
        assert abs(correlation) < 4.5 / math.sqrt(ahead.numel())


@given(st.lists(st.integers(0, 70), min_size=1, max_size=6), st.integers(0, 2**32))
def test_drawn_in_pieces_equals_drawn_at_once(sizes: list[int], seed: int) -> None:
    whole = draw(sum(sizes), 3, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    pieces = [
        arrival_times([size, 3], dtype=whole.dtype, device=CPU, generator=generator)
        for size in sizes
    ]
    assert torch.equal(torch.cat(pieces), whole)


@pytest.mark.parametrize(
    'dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_times_are_positive_and_finite_at_the_extremes(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    # torch.rand draws from [0, 1): its smallest and its largest value.
    largest = 1 - torch.finfo(dtype).eps / 2
    extremes = torch.tensor([0.0, largest], dtype=dtype)
    assert extremes[1] < 1

    def rand(size: Any, **kwargs: Any) -> Tensor:
        return extremes.clone()

    monkeypatch.setattr(torch, 'rand', rand)
    time = arrival_times([2], dtype=dtype, device=CPU)
    assert bool((time > 0).all())
    assert bool(time.isfinite().all())
    assert time[0] > 8
    assert time[1] < 0.01


def test_global_generator_is_the_default() -> None:
    torch.manual_seed(7)
    first = arrival_times([5], dtype=torch.float32, device=CPU)
    second = arrival_times([5], dtype=torch.float32, device=CPU)
    torch.manual_seed(7)
    again = arrival_times([5], dtype=torch.float32, device=CPU)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize('own', [True, False])
def test_clone_repeats_what_comes_next(own: bool) -> None:
    generator = torch.Generator().manual_seed(3) if own else None
    torch.rand(5, generator=generator)
    twin = clone_generator(generator, CPU)
    ahead = torch.rand(4, generator=twin)
    assert torch.equal(torch.rand(4, generator=generator), ahead)
    # Neither disturbs the other from here on.
    torch.rand(9, generator=twin)
    second = clone_generator(generator, CPU)
    expected = torch.rand(4, generator=second)
    assert torch.equal(torch.rand(4, generator=generator), expected)


def test_straight_through() -> None:
    hard = torch.tensor([0.0, 1.0, 0.0], requires_grad=True)
    soft = torch.tensor([0.2, 0.5, 0.3], requires_grad=True)
    result = straight_through(hard, soft)
    assert torch.equal(result, hard)
    assert result.data_ptr() != hard.data_ptr()
    grad = torch.tensor([1.0, -2.0, 3.0])
    result.backward(grad)
    assert hard.grad is None
    assert soft.grad is not None
    assert torch.equal(soft.grad, grad)
