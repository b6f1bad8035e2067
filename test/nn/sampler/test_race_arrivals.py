"""The first arrivals of the race, one by one: their law and their gradient.

Each statistical test is two-sided and fails a correct race for one seed in 1000.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.draws import draw_tail
from torch_geometric_gsl.ops.race import num_proposals, race_arrivals
from torch_geometric_gsl.ops.scorer import Law, matrix_scorer

ERROR_RATE = 1e-3
INF = float('inf')


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=seeded(seed), dtype=torch.double)


def make(name: str, **kwargs: Any) -> GumbelKNNSampler:
    torch.manual_seed(0)
    similarity = resolve_similarity(name, 6, out_channels=4)
    return GumbelKNNSampler(similarity, k=2, method='race', **kwargs).double()


def assert_multinomial(observed: Tensor, probability: Tensor) -> None:
    expected = probability * observed.sum()
    assert float(expected.min()) >= 5  # Pearson's approximation holds.
    statistic = float(((observed - expected) ** 2 / expected).sum())
    cdf = stats.chi2(observed.numel() - 1).cdf(statistic)
    assert ERROR_RATE / 2 < cdf < 1 - ERROR_RATE / 2


@pytest.mark.parametrize('form', ['all', 'batch', 'given'])
def test_first_arrivals_are_categorical(form: str) -> None:
    # The sources are those of one target; odd ones or the others are no candidates.
    rows, num_sources = 1500, 200
    sampler = make('gaussian', tau=0.25, hard=True)
    x_src, x_dst = normal(num_sources, 6, seed=1), normal(1, 6, seed=2)
    pair, kwargs = (x_src, x_dst.expand(rows, 6)), {}
    is_candidate = torch.ones(num_sources, dtype=torch.bool)
    if form == 'given':
        is_candidate[1::2] = False
        own, target = is_candidate.nonzero().flatten(), torch.arange(rows)
        kwargs['edge_index'] = torch.cartesian_prod(target, own).t().flip(0)
    elif form == 'batch':
        is_candidate[100:] = False
        kwargs['batch'] = (~is_candidate).long(), torch.zeros(rows).long()
    assert sampler.plan(pair, **kwargs).method == 'race'
    (source, _), weight = sampler(pair, generator=seeded(3), **kwargs)
    counts = torch.zeros(num_sources).double()
    counts.index_add_(0, source, 2 * weight.detach())
    assert float(counts[~is_candidate].sum()) == 0
    phi = sampler.similarity((x_src, x_dst)).flatten().tolist()
    rate = torch.tensor([math.exp(value) for value in phi]).double()[is_candidate]
    assert_multinomial(counts[is_candidate], rate / rate.sum())


SCORE = torch.tensor([0.3, -0.4, 0.0, 0.6, -0.1, 0.5], dtype=torch.double)


@pytest.fixture(params=[(6, 2), (3, 3)], ids=str)
def race(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Tensor]:
    """Sources and times of the first arrivals of many races, and the rates."""
    num_sources, k = request.param
    score = SCORE[:num_sources].expand(3000, -1)
    law = Law(k=k, tau=0.5, replace=False)
    spread = float(score.max() - score.min())
    found = race_arrivals(
        matrix_scorer(score), law, int(num_proposals(law, spread)), generator=seeded(4)
    )
    source, noise = found.source[:, 0], found.noise[:, 0]
    return source, (-noise - SCORE[source]).exp(), score[0].exp()


def test_distinct_arrivals_are_plackett_luce(
    race: tuple[Tensor, Tensor, Tensor],
) -> None:
    source, _, rate = race
    drawn = list(map(tuple, source.tolist()))
    orders = list(permutations(range(rate.numel()), source.size(1)))
    probability = []
    for order in orders:
        chance, left = 1.0, float(rate.sum())
        for j in order:
            chance, left = chance * float(rate[j]) / left, left - float(rate[j])
        probability.append(chance)
    observed = torch.tensor([drawn.count(order) for order in orders]).double()
    assert int(observed.sum()) == len(drawn)  # No source twice.
    assert_multinomial(observed, torch.tensor(probability).double())


def test_gaps_between_arrivals_are_exponential(
    race: tuple[Tensor, Tensor, Tensor],
) -> None:
    source, time, rate = race
    own = rate[source]
    left = rate.sum() - own.cumsum(1) + own  # The rates of those still to come.
    gaps = torch.diff(time, dim=1, prepend=torch.zeros(time.size(0), 1).double())
    for gap in (gaps * left).unbind(1):
        p_value = stats.kstest(gap.numpy(), 'expon').pvalue
        assert p_value > ERROR_RATE / gaps.size(1)


def test_repetitions_are_dropped() -> None:
    law = Law(k=2, tau=0.5, num_arrivals=8)
    scorer = matrix_scorer(SCORE[:3].expand(1000, -1))
    found = race_arrivals(scorer, law, 60, generator=seeded(5))
    listed = found.noise > -INF
    assert bool(listed[..., 0].all())
    for j in range(3):
        assert int(((found.source == j) & listed).sum(-1).max()) == 1
    # The horizon is that of the eighth event of a Poisson process all the same.
    event = found.horizon.exp().flatten() * SCORE[:3].exp().sum()
    assert stats.kstest(event.numpy(), stats.gamma(8).cdf).pvalue > ERROR_RATE


def held_noise(
    score: Tensor, law: Law, upper: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The sources of each draw, and what is added to their scores: numbers."""
    scorer = matrix_scorer(score)._replace(upper=upper)
    tail = draw_tail(scorer, law, generator=generator)
    proposals = int(num_proposals(law, upper))
    arrivals = race_arrivals(scorer, law, proposals, generator=generator)
    assert tail is not None
    late = tail.source.view(1, law.k, -1).expand(score.size(0), -1, -1)
    log_mass = torch.empty(late.shape, dtype=torch.double)
    for i, k, s in torch.cartesian_prod(*map(torch.arange, late.shape)).tolist():
        horizon = math.exp(float(arrivals.horizon[i, k]))
        rate = math.exp(float(score[i, late[i, k, s]]))

        def density(t: float, rate: float = rate) -> float:
            return t ** (-1 / law.tau) * rate * math.exp(-rate * t)

        mean, _ = integrate.quad(density, horizon, INF, epsabs=0, epsrel=1e-9)
        log_mass[i, k, s] = math.log(mean * score.size(1) / late.size(-1))
    level = score.unsqueeze(1).expand(-1, law.k, -1).gather(-1, late)
    noise = torch.cat([arrivals.noise, law.tau * log_mass - level], dim=-1)
    return torch.cat([arrivals.source, late], dim=-1), noise


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('name', ['gaussian', 'neural_gaussian'])
def test_gradient_by_finite_differences(name: str, hard: bool) -> None:
    sampler = make(name, tau=0.5, hard=hard)
    pair, value = (normal(160, 6, seed=1), normal(3, 6, seed=2)), normal(160, seed=3)
    law = Law(2, 0.5, num_arrivals=8)
    with torch.no_grad():
        source, noise = held_noise(sampler.similarity(pair), law, 1.0, seeded(6))

    @torch.no_grad()
    def function() -> Tensor:
        score = sampler.similarity(pair).unsqueeze(1).expand(-1, 2, -1)
        weight = torch.softmax((score.gather(-1, source) + noise) / 0.5, dim=-1)
        return (weight * value[source]).sum() / 2

    assert sampler.plan(pair).method == 'race'
    (found, _), weight = sampler(pair, generator=seeded(6))
    assert set(found.tolist()) == set(source[noise > -INF].tolist())
    total = (weight * value[found]).sum()
    expected = value[source[..., 0]].sum() / 2 if hard else function()
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)
    gradient = torch.autograd.grad(total, list(sampler.parameters()))
    slopes = torch.cat([part.flatten() for part in gradient]).tolist()
    entries = [e for p in sampler.parameters() for e in p.data.view(-1).split(1)]
    for entry, slope in zip(entries, slopes, strict=True):
        sides = []
        for step in (1e-5, -1e-5):
            entry += step
            sides.append(float(function()))
            entry -= step
        difference = (sides[0] - sides[1]) / 2e-5
        assert slope == pytest.approx(difference, rel=1e-3, abs=1e-5)
