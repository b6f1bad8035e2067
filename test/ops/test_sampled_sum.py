"""Noise-free sums that are estimated from some of the sources."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops.propagate import expected_sum, sampled_expected_sum
from torch_geometric_gsl.ops.scorer import Scorer, matrix_scorer


def drawn_sources(num_sources: int, num_samples: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(num_sources, generator=generator)[:num_samples].tolist()


def naive_estimate(
    h: Tensor, scorer: Scorer, tau: float, num_samples: int
) -> tuple[list[list[float]], float]:
    """The sum over the sources drawn, and the root mean square of its errors."""
    n, num_sources = scorer.size
    source, sums, squares = drawn_sources(num_sources, num_samples), [], []
    for row in scorer.rows(slice(0, n)).tolist():
        power = [math.exp(row[j] / tau) for j in source]
        weight = [p / sum(power) for p in power]
        sums.append([])
        for column in h.t().tolist():
            mean = sum(w * column[j] for w, j in zip(weight, source, strict=True))
            sums[-1].append(mean)
            squares += [
                sum(
                    (w * (column[j] - mean)) ** 2
                    for w, j in zip(weight, source, strict=True)
                )
            ]
    rest = 1 - num_samples / num_sources
    return sums, math.sqrt(rest * sum(squares) / len(squares))


@pytest.mark.parametrize('budget', [1, 2**25])
@pytest.mark.parametrize('num_samples', [3, 5, 20])
def test_sampled_expected_sum(num_samples: int, budget: int) -> None:
    scorer = matrix_scorer(torch.randn(20, 20, dtype=torch.float64), loop=False)
    h, state = torch.randn(20, 2, dtype=torch.float64), torch.get_rng_state()
    args = h, scorer, 0.5, num_samples
    out, error = sampled_expected_sum(*args, memory_budget=budget)
    assert torch.equal(state, torch.get_rng_state())
    sums, root_mean_square = naive_estimate(*args)
    torch.testing.assert_close(out, torch.tensor(sums, dtype=torch.float64))
    assert float(error) == pytest.approx(root_mean_square, abs=1e-12)
    if num_samples == 20:  # All sources: nothing is left to chance.
        torch.testing.assert_close(out, expected_sum(h, scorer, 0.5))
        assert float(error) == 0


@pytest.mark.parametrize('num_samples', [200, 1600])
def test_the_standard_error_is_of_the_right_size(num_samples: int) -> None:
    generator = torch.Generator().manual_seed(0)
    score = torch.randn(4, 2000, generator=generator, dtype=torch.float64)
    h = torch.randn(2000, 200, generator=generator, dtype=torch.float64)
    scorer = matrix_scorer(score)
    out, error = sampled_expected_sum(h, scorer, 2.0, num_samples)
    found = (out - expected_sum(h, scorer, 2.0)).square().mean().sqrt()
    # The columns are independent: of 200 errors the root mean square deviates by 5 %
    # from its expectation, and by five times that once in a million.
    assert 0.75 < float(found / error) < 1.25


def test_the_estimate_takes_the_type_of_the_messages() -> None:
    scorer = matrix_scorer(torch.randn(6, 9, requires_grad=True))
    out, error = sampled_expected_sum(torch.randn(9, 2).half(), scorer, 0.5, 4)
    assert out.dtype == torch.float16
    assert not error.requires_grad


@pytest.mark.parametrize('budget', [1, 2**25])
@pytest.mark.parametrize('num_samples', [5, 20])
def test_gradient_of_the_estimate(num_samples: int, budget: int) -> None:
    # That of the sum over the drawn sources; the others have none.
    score = torch.randn(6, 20, dtype=torch.float64, requires_grad=True)
    h = torch.randn(20, 2, dtype=torch.float64, requires_grad=True)
    scorer, source = matrix_scorer(score), drawn_sources(20, num_samples)
    out, error = sampled_expected_sum(h, scorer, 0.5, num_samples, memory_budget=budget)
    expected = (score[:, source] / 0.5).softmax(dim=1) @ h[source]
    factor = torch.randn(6, 2, dtype=torch.float64)
    grads = torch.autograd.grad((out * factor).sum(), (score, h))
    exact = torch.autograd.grad((expected * factor).sum(), (score, h))
    torch.testing.assert_close(grads, exact)
    assert not error.requires_grad


@pytest.mark.parametrize('budget', [1, 2**25])
def test_some_of_many_targets_tell_the_standard_error(budget: int) -> None:
    # Ordered by their error: those that are looked at stand among all of them.
    spread = torch.linspace(0, 4, 5_000, dtype=torch.float64).unsqueeze(1)
    scorer = matrix_scorer(spread * torch.linspace(0, 1, 10, dtype=torch.float64))
    h = torch.eye(10, dtype=torch.float64)
    _, error = sampled_expected_sum(h, scorer, 1.0, 4, memory_budget=budget)
    _, of_all = naive_estimate(h, scorer, 1.0, 4)
    assert float(error) == pytest.approx(of_all, rel=0.01)
