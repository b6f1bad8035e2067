from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import exp1
from scipy.stats import norm
from torch import Tensor

from torch_geometric_gsl.ops.relax import (
    Arrivals,
    default_num_arrivals,
    log_tail_mass,
    relax,
    spread_sources,
    tail_size,
)
from torch_geometric_gsl.ops.scorer import Law

INF = float('inf')
CPU = torch.device('cpu')
DOUBLE = {'dtype': torch.float64}
TEMPERATURES = [0.1, 0.25, 0.5, 0.75, 1.0, 2.0]
# The Monte Carlo test rejects a true hypothesis with this probability.
ERROR_RATE = 1e-4


@cache
def log_mass(log_rate: float, tau: float) -> float:
    """The logarithm of the integral, with t = exp(v) and exp(-rate) taken out."""
    rate = math.exp(log_rate)

    def density(v: float) -> float:
        return math.exp(v * (1 - 1 / tau) - rate * math.expm1(v))

    end = max(1.0, 5 - log_rate)
    breaks = [v for v in (0.01, 0.1, 1, 3, 10, 20, 30) if v < end]
    value, _ = quad(density, 0, end, limit=1000, points=breaks, epsrel=1e-11)
    return math.log(value) + log_rate - rate


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('tau', TEMPERATURES)
def test_log_tail_mass_against_quadrature(tau: float, dtype: torch.dtype) -> None:
    # Rates from e^-40 to e^3, not all of them places of a table.
    rates = [*torch.linspace(-40, 3, 87).tolist(), -0.49, 0.01, 1.01, 2.01, 2.99]
    found = log_tail_mass(torch.tensor(rates, dtype=dtype), tau).tolist()
    for log_rate, value in zip(rates, found, strict=True):
        assert abs(math.expm1(value - log_mass(log_rate, tau))) < 1e-4, log_rate


def test_exponential_integral() -> None:
    log_rate = torch.linspace(-20, 0, 9, **DOUBLE)
    found = log_tail_mass(log_rate, tau=1.0) - log_rate
    expected = torch.from_numpy(exp1(log_rate.exp().numpy())).log()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert float(log_tail_mass(torch.zeros(1), 1.0).exp()) == pytest.approx(
        0.219384, rel=1e-4
    )


@pytest.mark.parametrize('tau', TEMPERATURES)
def test_log_tail_mass_far_out(tau: float) -> None:
    # Slow sources: the integral has a closed form in the limit of rate zero.
    slow = float(log_tail_mass(torch.tensor(-200.0, **DOUBLE), tau))
    if tau < 1:
        assert slow == pytest.approx(-200 + math.log(tau / (1 - tau)), abs=1e-3)
    elif tau > 1:
        assert slow == pytest.approx(-200 / tau + math.lgamma(1 - 1 / tau), abs=1e-3)
    # Quick ones have all arrived: nothing is left of them.
    quick = log_tail_mass(torch.tensor([7.0, 20.0, 80.0]), tau)
    assert float(quick.max()) < -400
    assert not quick.isnan().any()


def loop_relax(
    score: Tensor,
    arrivals: Arrivals,
    law: Law,
    late: Tensor | None = None,
    log_share: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Relaxed weights number by number; the tail by quadrature."""
    n, draws, kept = score.shape
    num_late = 0 if late is None else late.size(2)
    first = torch.zeros(n, draws, kept, **DOUBLE)
    last = torch.zeros(n, draws, num_late, **DOUBLE)
    for i in range(n):
        for k in range(draws):
            value = (score[i, k] + arrivals.noise[i, k]).tolist()
            weight = [math.exp(v / law.tau) for v in value]
            horizon = float(arrivals.horizon[i, k])
            for s in [] if late is None else late[i, k].tolist():
                mass = -INF if s == -INF else log_mass(s + horizon, law.tau)
                weight.append(math.exp(mass - horizon / law.tau + log_share))
            total = sum(weight)
            if law.hard:
                winners = 1 if law.replace else kept
                weight = [total / winners] * winners + [0.0] * (len(weight) - winners)
            share = [w / total / draws for w in weight]
            first[i, k] += torch.tensor(share[:kept], **DOUBLE)
            last[i, k] += torch.tensor(share[kept:], **DOUBLE)
    return first, last


def race(n: int = 3, draws: int = 2, kept: int = 4) -> tuple[Tensor, Arrivals]:
    """Scores of the arrivals, and arrivals of which one race misses its last two."""
    generator = torch.Generator().manual_seed(3)
    score = torch.randn(n, draws, kept, generator=generator, **DOUBLE)
    gap = torch.rand(n, draws, kept, generator=generator, **DOUBLE)
    log_time = gap.cumsum(-1).log()
    noise = -log_time - score
    noise[0, 0, -2:] = -INF
    source = torch.arange(kept).expand(n, draws, kept)
    return score, Arrivals(source, noise, log_time[..., -1])


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.25, 1.0])
def test_relax_without_a_tail(tau: float, hard: bool) -> None:
    score, arrivals = race()
    law = Law(2, tau, hard)
    weight, late = relax(score, arrivals, law)
    assert late.shape == (3, 2, 0)
    torch.testing.assert_close(weight, loop_relax(score, arrivals, law)[0])
    assert not weight[0, 0, -2:].any()
    torch.testing.assert_close(weight.sum((1, 2)), torch.ones(3, **DOUBLE))


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.25, 1.0, 2.0])
def test_relax_with_a_tail(tau: float, hard: bool) -> None:
    score, arrivals = race()
    late_score = torch.randn(3, 2, 5, **DOUBLE)
    # Excluded: a target's own loop.
    late_score[1, 0, 2] = late_score[2, 1, 0] = -INF
    law, share = Law(2, tau, hard), math.log(7.0)
    log_share = torch.tensor(share, **DOUBLE)
    found = relax(score, arrivals, law, late_score, log_share)
    expected = loop_relax(score, arrivals, law, late_score, share)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    weight, late = found
    assert float(late[1, 0, 2]) == float(late[2, 1, 0]) == 0
    total = weight.sum((1, 2)) + late.sum((1, 2))
    torch.testing.assert_close(total, torch.ones(3, **DOUBLE))


def test_each_target_may_have_shares_of_its_own() -> None:
    score, arrivals = race()
    late, share = torch.randn(3, 2, 5, **DOUBLE), torch.rand(3, 1, 1, **DOUBLE)
    law = Law(2, 0.5)
    whole = relax(score, arrivals, law, late, share)
    for i in range(3):
        own = Arrivals(*(part[i : i + 1] for part in arrivals))
        value = float(share[i])
        one = loop_relax(score[i : i + 1], own, law, late[i : i + 1], value)
        for a, b in zip(whole, one, strict=True):
            torch.testing.assert_close(a[i : i + 1], b, rtol=1e-4, atol=1e-6)
    # A share is a factor of the mass, as a higher number of equal sources is.
    twice = relax(score, arrivals, law, late.repeat(1, 1, 2), share)
    shared = relax(score, arrivals, law, late, share + math.log(2))
    torch.testing.assert_close(twice[0], shared[0])


@pytest.mark.parametrize('hard', [False, True])
def test_relax_of_distinct_neighbours(hard: bool) -> None:
    score, arrivals = race(draws=1)
    arrivals.noise[0, 0, -2:] = 0.1  # All k of them are found.
    law = Law(4, 0.5, hard, replace=False)
    weight, _ = relax(score, arrivals, law)
    torch.testing.assert_close(weight, loop_relax(score, arrivals, law)[0])
    if hard:
        assert weight.tolist() == [[[0.25] * 4]] * 3


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.25, 1.0])
def test_gradient_is_that_of_the_dense_formula(tau: float, hard: bool) -> None:
    # The mass of the tail is detached, which finite differences do not see:
    # d w_a / d s_b = (w_a [a = b] - w_a w_b) / tau for arrivals and the tail alike.
    score, arrivals = race()
    late_score = torch.randn(3, 2, 5, **DOUBLE)
    late_score[1, 0, 2] = -INF
    score.requires_grad_()
    late_score.requires_grad_()
    share = torch.tensor(math.log(7.0), **DOUBLE)
    factor, late_factor = torch.randn(3, 2, 4, **DOUBLE), torch.randn(3, 2, 5, **DOUBLE)
    weight, late = relax(score, arrivals, Law(2, tau, hard), late_score, share)
    loss = (weight * factor).sum() + (late * late_factor).sum()
    grads = torch.autograd.grad(loss, (score, late_score))

    # The soft weights of each draw, which are half of its share of two draws.
    w, v = (
        part.detach() for part in relax(score, arrivals, Law(2, tau), late_score, share)
    )
    mean = 2 * ((w * factor).sum(2) + (v * late_factor).sum(2)).unsqueeze(2)
    expected = w * (factor - mean) / tau, v * (late_factor - mean) / tau
    torch.testing.assert_close(grads, expected)
    assert float(grads[1].abs().max()) > 1e-3
    assert float(grads[1][1, 0, 2]) == 0


@pytest.mark.parametrize('tau', [0.25, 0.5, 1.0])
def test_a_tail_of_all_sources_is_the_mean_of_the_later_arrivals(tau: float) -> None:
    # Of one race until a fixed time; `relax` weighs the mean against one arrival.
    score = torch.tensor([0.9, -1.0, 0.3, 2.0, -0.4], **DOUBLE)
    log_time, runs = torch.tensor([[-0.7]], **DOUBLE), 200_000
    arrivals = Arrivals(torch.zeros(1, 1, 1).long(), -log_time.unsqueeze(0), log_time)
    zero, no_share = torch.zeros(1, 1, 1, **DOUBLE), torch.zeros((), **DOUBLE)
    law = Law(1, tau)
    first, late = relax(zero, arrivals, law, score.view(1, 1, 5), no_share)
    # The arrival at the horizon has the weight exp(-log_time / tau).
    mean = late[0, 0] / first.squeeze() * (-log_time / tau).exp()
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(runs, 5, generator=generator, **DOUBLE)
    time = -uniform.log() / score.exp()
    weight = time ** (-1 / tau) * (time > log_time.exp())
    for j in range(5):
        deviation = float(weight[:, j].std()) / math.sqrt(runs)
        error = float(weight[:, j].mean() - mean[0, j])
        # Bonferroni: all sources together keep the error rate.
        assert abs(error) < norm.isf(ERROR_RATE / 2 / 5) * deviation


def test_default_num_arrivals() -> None:
    taus = (1e-3, 0.1, 0.25, 0.26, 0.5, 1.0, 2.0)
    assert [default_num_arrivals(tau) for tau in taus] == [4, 4, 4, 5, 8, 16, 32]


@pytest.mark.parametrize(
    ('tau', 'kept', 'num_sources'),
    [
        # From the least to the largest tail, and between the limits.
        (0.25, 4, 2000),
        (0.5, 4, 2000),
        (0.5, 8, 2000),
        (0.75, 8, 2000),
        (0.75, 12, 2000),
        (1.0, 16, 40),
        (1.0, 16, 2000),
    ],
)
def test_tail_size(tau: float, kept: int, num_sources: int) -> None:
    weight = [r ** (-1 / tau) for r in range(1, num_sources + 1)]
    share = sum(weight[kept:]) ** 2 / sum(w**2 for w in weight)
    law, least = Law(5, tau, num_arrivals=kept), max(4, math.ceil(16 * tau))
    size = max(least, math.ceil(50 * share))
    assert tail_size(law, num_sources) == min(size, 512, num_sources)
    assert tail_size(law, num_sources, is_ragged=True) == min(size, 64, num_sources)
    # Distinct neighbours are all of their race.
    assert tail_size(law._replace(replace=False), num_sources) == 0


def test_a_tail_has_no_more_sources_than_there_are() -> None:
    for is_ragged in (False, True):
        for kept in (1, 5):
            assert tail_size(Law(5, 1.0, num_arrivals=kept), 2, is_ragged) == 2


def test_tail_size_of_some_laws() -> None:
    assert tail_size(Law(5, 1.0), 1000) == 512
    assert 4 < tail_size(Law(5, 0.75, num_arrivals=12), 1000) < 512
    assert tail_size(Law(5, 0.1, num_arrivals=4), 1000) == 4


@given(st.integers(0, 2000), st.integers(1, 2000))
def test_tail_size_that_is_asked_for(num_tail: int, num_sources: int) -> None:
    law = Law(5, 1.0, num_tail=num_tail)
    for is_ragged in (False, True):  # Beyond the limits, too.
        assert tail_size(law, num_sources, is_ragged) == min(num_tail, num_sources)
    assert tail_size(law._replace(replace=False), num_sources) == 0


@given(st.integers(1, 60), st.data())
def test_spread_sources(num_sources: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, num_sources))
    repeats = data.draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    found = spread_sources(num_sources, size, CPU, generator, repeats).tolist()
    assert len(found) == repeats * size
    for place, source in enumerate(found):  # One from each of the equal parts.
        part = place % size
        assert part * num_sources // size <= source
        assert source < (part + 1) * num_sources / size
    if size == num_sources:
        assert found == list(range(num_sources)) * repeats


def test_each_repeat_draws_anew() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = spread_sources(10**6, 20, CPU, generator, repeats=2).view(2, 20)
    assert not torch.equal(first, second)
    state = torch.get_rng_state()
    assert torch.equal(spread_sources(10**6, 20, CPU, generator.manual_seed(0)), first)
    assert torch.equal(state, torch.get_rng_state())
