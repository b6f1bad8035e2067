import math
from functools import cache

import pytest
import torch
from oracles import seeded
from scipy.integrate import quad

from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions, log_tail_mass, relax

INF = float('inf')
DOUBLE = {'dtype': torch.float64}
TEMPERATURES = [0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0]


@cache
def log_mass(log_rate, tau):
    """The logarithm of the integral, with t = exp(v)."""
    rate = math.exp(log_rate)

    def density(v):
        return math.exp(v * (1 - 1 / tau) - rate * math.expm1(v))

    end = max(1.0, 5 - log_rate)
    breaks = [v for v in (0.01, 0.1, 1, 3, 10, 20, 30) if v < end]
    value, _ = quad(density, 0, end, limit=1000, points=breaks, epsrel=1e-11)
    return math.log(value) + log_rate


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('tau', TEMPERATURES)
def test_log_tail_mass_against_quadrature(tau, dtype):
    # Rates from e^-40 to e^3, not all of them places of a table.
    rates = [*torch.linspace(-40, 3, 87).tolist(), -0.49, 0.01, 1.01, 2.01, 2.99]
    masses = log_tail_mass(torch.tensor(rates, dtype=dtype), tau).tolist()
    for log_rate, value in zip(rates, masses, strict=True):
        assert abs(math.expm1(value - log_mass(log_rate, tau))) < 1e-4, log_rate


@pytest.mark.parametrize('tau', TEMPERATURES)
def test_log_tail_mass_far_out(tau):
    # Slow sources: the integral has a closed form in the limit of rate zero.
    slow = float(log_tail_mass(torch.tensor(-200.0, **DOUBLE), tau))
    if tau < 1:
        assert slow == pytest.approx(-200 + math.log(tau / (1 - tau)), abs=1e-3)
    elif tau > 1:
        assert slow == pytest.approx(-200 / tau + math.lgamma(1 - 1 / tau), abs=1e-3)
    # Quick ones, should they be late, arrive at once.
    quick = log_tail_mass(torch.tensor([7.0, 20.0, 80.0]), tau)
    torch.testing.assert_close(quick, torch.zeros(3), rtol=0, atol=0.003 / tau)


def loop_relax(score, arrivals, options, late=None, log_share=None):
    """Relaxed weights number by number; the tail by quadrature."""
    n, draws, num_arrivals = score.shape
    late = torch.empty(n, draws, 0) if late is None else late
    shares = [0.0] * n if log_share is None else log_share.expand(n, 1, 1).flatten()
    result = torch.zeros(n, draws, num_arrivals + late.size(2), **DOUBLE)
    for i in range(n):
        for k in range(draws):
            value = (score[i, k] + arrivals.noise[i, k]).tolist()
            weight = [math.exp(v / options.tau) for v in value]
            horizon = float(arrivals.horizon[i, k])
            for s in late[i, k].tolist():
                mass = -INF if s == -INF else log_mass(s + horizon, options.tau)
                weight.append(math.exp(mass - horizon / options.tau + shares[i]))
            if options.hard:
                winners = 1 if options.replace else num_arrivals
                weight = [1.0] * winners + [0.0] * (len(weight) - winners)
            result[i, k] = torch.tensor([w / sum(weight) / draws for w in weight])
    return result.split([num_arrivals, late.size(2)], dim=2)


def race(draws=2):
    """Scores of the arrivals, and arrivals of which one race misses its last two."""
    generator = seeded(3)
    score = torch.randn(3, draws, 4, generator=generator, **DOUBLE)
    gap = torch.rand(3, draws, 4, generator=generator, **DOUBLE)
    log_time = gap.cumsum(-1).log()
    noise = -log_time - score
    noise[0, 0, -2:] = -INF
    source = torch.arange(4).expand(3, draws, 4)
    return score, Arrivals(source, noise, log_time[..., -1])


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.25, 1.0, 2.0])
@pytest.mark.parametrize('form', ['no tail', 'a tail', 'own shares', 'distinct'])
def test_relax_against_loops(form, tau, hard):
    is_distinct, args = form == 'distinct', []
    score, arrivals = race(draws=1 if is_distinct else 2)
    if is_distinct:
        arrivals.noise[0, 0, -2:] = 0.1  # All k of them are found.
    if form in ('a tail', 'own shares'):
        late = torch.randn(3, 2, 5, **DOUBLE)
        # Excluded: a target's own loop.
        late[1, 0, 2] = late[2, 1, 0] = -INF
        args = [late, torch.rand(3 if form == 'own shares' else 1, 1, 1, **DOUBLE)]
    k, size = 4 if is_distinct else 2, 5 if args else 0
    options = DrawOptions(k, tau, 4, size, hard, replace=not is_distinct)
    weights = relax(score, arrivals, options, *args)
    expected = loop_relax(score, arrivals, options, *args)
    limits = {'rtol': 1e-4, 'atol': 1e-6} if args else {}
    torch.testing.assert_close(weights, expected, **limits)
    # What is excluded or has not come has no weight at all.
    assert all(
        map(torch.equal, *((x == 0 for x in pair) for pair in (weights, expected)))
    )
    total = sum(weight.sum((1, 2)) for weight in weights)
    torch.testing.assert_close(total, torch.ones(3, **DOUBLE))


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('tau', [0.25, 1.0])
def test_gradient_is_that_of_the_dense_formula(tau, hard):
    # The mass of the tail is detached, which finite differences do not see:
    # d w_a / d s_b = (w_a [a = b] - w_a w_b) / tau for arrivals and the tail alike.
    score, arrivals = race()
    late_score = torch.randn(3, 2, 5, **DOUBLE)
    late_score[1, 0, 2] = -INF
    score.requires_grad_()
    late_score.requires_grad_()
    share = torch.tensor(math.log(7.0), **DOUBLE)
    factor, late_factor = torch.randn(3, 2, 4, **DOUBLE), torch.randn(3, 2, 5, **DOUBLE)
    soft, options = DrawOptions(2, tau, 4, 5), DrawOptions(2, tau, 4, 5, hard)
    weight, late = relax(score, arrivals, options, late_score, share)
    loss = (weight * factor).sum() + (late * late_factor).sum()
    grads = torch.autograd.grad(loss, (score, late_score))

    # The soft weights of each draw, which are half of its share of two draws.
    w, v = (value.detach() for value in relax(score, arrivals, soft, late_score, share))
    mean = 2 * ((w * factor).sum(2) + (v * late_factor).sum(2)).unsqueeze(2)
    expected = w * (factor - mean) / tau, v * (late_factor - mean) / tau
    torch.testing.assert_close(grads, expected)
    assert float(grads[1].abs().max()) > 1e-3
    assert float(grads[1][1, 0, 2]) == 0
