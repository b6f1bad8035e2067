"""Noise-free sums that are estimated from some of the sources."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from torch_geometric_gsl.ops.propagate import noise_free_sum, sampled_noise_free_sum
from torch_geometric_gsl.ops.scorer import Scorer, matrix_scorer


def drawn_sources(num_sources: int, num_samples: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randperm(num_sources, generator=generator)[:num_samples].tolist()


def naive_sums(
    h: Tensor, scorer: Scorer, tau: float, source: list[int]
) -> list[list[float]]:
    """The noise-free sums over some of the sources."""
    sums: list[list[float]] = []
    for row in scorer.rows(slice(0, scorer.size[0])).tolist():
        power = [math.exp(row[j] / tau) for j in source]
        columns = [[column[j] for j in source] for column in h.t().tolist()]
        sums.append(
            [
                sum(p * value for p, value in zip(power, column, strict=True))
                / sum(power)
                for column in columns
            ]
        )
    return sums


def naive_estimate(
    h: Tensor, scorer: Scorer, tau: float, num_samples: int
) -> tuple[list[list[float]], float]:
    """The sum over the sources drawn, and the root mean square of its errors."""
    num_sources = scorer.size[1]
    found = naive_sums(h, scorer, tau, drawn_sources(num_sources, num_samples))
    exact = naive_sums(h, scorer, tau, list(range(num_sources)))
    squares = [
        (one - other) ** 2
        for row, line in zip(found, exact, strict=True)
        for one, other in zip(row, line, strict=True)
    ]
    return found, math.sqrt(sum(squares) / len(squares))


@pytest.mark.parametrize('budget', [1, 2**25])
@pytest.mark.parametrize('num_samples', [3, 5, 20])
def test_sampled_noise_free_sum(num_samples: int, budget: int) -> None:
    scorer = matrix_scorer(torch.randn(20, 20, dtype=torch.float64), loop=False)
    h, state = torch.randn(20, 2, dtype=torch.float64), torch.get_rng_state()
    args = h, scorer, 0.5, num_samples
    out, error = sampled_noise_free_sum(*args, memory_budget=budget)
    assert torch.equal(state, torch.get_rng_state())
    sums, root_mean_square = naive_estimate(*args)
    torch.testing.assert_close(out, torch.tensor(sums, dtype=torch.float64))
    assert float(error) == pytest.approx(root_mean_square, abs=1e-12)
    if num_samples == 20:  # All sources: nothing is left to chance.
        torch.testing.assert_close(out, noise_free_sum(h, scorer, 0.5))
        assert float(error) < 1e-15


@pytest.mark.parametrize('scale', [1.0, 10.0])
@pytest.mark.parametrize('shift', [0.0, 1e4])
def test_the_error_is_that_of_all_targets(scale: float, shift: float) -> None:
    # Where scores are sharp, a target has few heavy sources, and a sample lacks them;
    # where messages lie far from zero, their squares have lost what tells them apart.
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(3000, 8, generator=generator))
    h = torch.randn(3000, 16, generator=generator) + shift
    scorer = matrix_scorer(scale * x @ x.t(), loop=False)
    out, error = sampled_noise_free_sum(h, scorer, 0.25, 300)
    exact = noise_free_sum(
        h.double(), matrix_scorer(scale * x.double() @ x.double().t(), loop=False), 0.25
    )
    found = float((out - exact).square().mean().sqrt())
    # The 272 targets looked at are a tenth of all.
    assert 0.85 < float(error) / found < 1.15


def test_the_estimate_takes_the_type_of_the_messages() -> None:
    scorer = matrix_scorer(torch.randn(6, 9, requires_grad=True))
    out, error = sampled_noise_free_sum(torch.randn(9, 2).half(), scorer, 0.5, 4)
    assert out.dtype == torch.float16
    assert not error.requires_grad


@pytest.mark.parametrize('budget', [1, 2**25])
@pytest.mark.parametrize('num_samples', [5, 20])
def test_gradient_of_the_estimate(num_samples: int, budget: int) -> None:
    # That of the sum over the drawn sources; the others have none.
    score = torch.randn(6, 20, dtype=torch.float64, requires_grad=True)
    h = torch.randn(20, 2, dtype=torch.float64, requires_grad=True)
    scorer, source = matrix_scorer(score), drawn_sources(20, num_samples)
    out, error = sampled_noise_free_sum(
        h, scorer, 0.5, num_samples, memory_budget=budget
    )
    expected = (score[:, source] / 0.5).softmax(dim=1) @ h[source]
    factor = torch.randn(6, 2, dtype=torch.float64)
    grads = torch.autograd.grad((out * factor).sum(), (score, h))
    exact = torch.autograd.grad((expected * factor).sum(), (score, h))
    torch.testing.assert_close(grads, exact)
    assert not error.requires_grad


@pytest.mark.parametrize('budget', [1, 2**25])
def test_some_of_many_targets_tell_the_error(budget: int) -> None:
    # Ordered by their error: those that are looked at stand among all of them.
    spread = torch.linspace(0, 4, 5_000, dtype=torch.float64).unsqueeze(1)
    scorer = matrix_scorer(spread * torch.linspace(0, 1, 10, dtype=torch.float64))
    h = torch.eye(10, dtype=torch.float64)
    _, error = sampled_noise_free_sum(h, scorer, 1.0, 4, memory_budget=budget)
    _, of_all = naive_estimate(h, scorer, 1.0, 4)
    assert float(error) == pytest.approx(of_all, rel=0.01)
