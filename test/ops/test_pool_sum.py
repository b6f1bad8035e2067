import math

import pytest
import torch
from oracles import ERROR_RATE, seeded
from responses import noise_free
from scipy.stats import ks_2samp, kstest, norm

from torch_geometric_gsl.ops.pair_scores import PairScores, Sources, distances_as_dots
from torch_geometric_gsl.ops.pool_sum import (
    exponentials,
    from_bits,
    pool_sum,
    pool_weights,
)
from torch_geometric_gsl.ops.scores import Identity, Negative

DOUBLE = {'dtype': torch.float64}


def make(n=5, num_sources=7, own=False, scale=1.5, **options):
    dst, src = torch.randn(n, 3, **DOUBLE), torch.randn(num_sources, 3, **DOUBLE)
    src = dst if own else src
    excluded = torch.arange(n) if own else None
    response, comparison = Negative(), 'squared_distance'
    pairs = PairScores(dst, src, response, comparison, scale, excluded=excluded)
    return pairs._replace(**options)


@pytest.mark.parametrize('own', [False, True])
@pytest.mark.parametrize('budget', [1, 2**25])
def test_equals_the_definition(own, budget, monkeypatch):
    monkeypatch.setattr('torch_geometric_gsl.ops.pool_sum._BUDGET', budget)
    pairs = make(own=own)
    h = torch.randn(pairs.src.size(0), 2, **DOUBLE)
    prepared = distances_as_dots(pairs, Sources.of(pairs.src))
    for given in (pairs, distances_as_dots(pairs), prepared):
        out = pool_sum(h, given)
        torch.testing.assert_close(out, noise_free(h, pairs, 1.0))


@pytest.mark.parametrize(('p', 'draws'), [(0.0, None), (0.0, 2), (0.5, None)])
@pytest.mark.parametrize('budget', [1, 2**25])
def test_gradient(budget, p, draws, monkeypatch):
    monkeypatch.setattr('torch_geometric_gsl.ops.pool_sum._BUDGET', budget)
    scale = torch.tensor(0.7, **DOUBLE, requires_grad=True)
    h = torch.randn(7, 2, **DOUBLE, requires_grad=True)
    pairs = make()
    dst, src = (part.requires_grad_() for part in (pairs.dst, pairs.src))

    def run(h, dst, src, scale):
        pairs = make(dst=dst, src=src, scale=scale)
        pairs = distances_as_dots(pairs)
        return pool_sum(h, pairs, p, draws, generator=seeded(3))

    assert torch.autograd.gradcheck(run, (h, dst, src, scale))


def test_dots_hold_far_from_the_origin():
    near = make(n=200, own=True)
    far = near._replace(dst=near.dst + 1e4, src=near.dst + 1e4)
    h = torch.randn(200, 2, **DOUBLE)
    single = far._replace(dst=far.dst.float(), src=far.dst.float())
    out = pool_sum(h.float(), distances_as_dots(single))
    torch.testing.assert_close(
        out.double(), noise_free(h, near, 1.0), rtol=0, atol=0.02
    )


@pytest.mark.parametrize('budget', [4000, 2**25])  # Ten targets at a time, or all.
def test_dropped_weights(budget, monkeypatch):
    monkeypatch.setattr('torch_geometric_gsl.ops.pool_sum._BUDGET', budget)
    pairs = make(n=40, num_sources=50, scale=0.1)
    h = torch.ones(50, 1, **DOUBLE)

    def draw(seed, p=0.25):
        generator = torch.Generator().manual_seed(seed)
        return pool_sum(h, pairs, p, generator=generator)

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    torch.testing.assert_close(draw(0, p=0.0), pool_sum(h, pairs))
    # Each of the weights is dropped or grows by a third: the mean of many is 1.
    weight = pairs.rows().softmax(dim=1)
    deviation = (weight.square().sum() / 3).sqrt() / 40 / 300**0.5
    mean = torch.stack([draw(seed).mean() for seed in range(300)]).mean()
    assert abs(float(mean) - 1) < 3.9 * float(deviation)  # Error rate 1e-4.


@pytest.mark.parametrize(('n', 'num_sources', 'own'), [(0, 3, 0), (2, 0, 0), (1, 1, 1)])
def test_no_candidates(n, num_sources, own):
    pairs = make(n, num_sources, bool(own))
    out = pool_sum(torch.ones(num_sources, 2, **DOUBLE), distances_as_dots(pairs))
    assert torch.equal(out, torch.zeros(n, 2, **DOUBLE))


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_exponential_numbers(dtype):
    found = exponentials(torch.empty(101, 999, dtype=dtype), seeded())
    assert found.shape == (101, 999)
    assert bool((found > 0).all())
    assert kstest(found.double().flatten().numpy(), 'expon').pvalue > ERROR_RATE
    # They are precise where they are small, at which single precision would round.
    few = (found < 1e-3).sum().item()
    expected, size = -math.expm1(-1e-3), found.numel()
    limit = norm.isf(ERROR_RATE / 2) * math.sqrt(size * expected)
    assert abs(few - size * expected) < limit


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float32, torch.float64])
def test_exponential_numbers_are_finite(dtype):
    ends = torch.tensor([-(2**31), 1 - 2**31, -1, 0, 1, 2**31 - 1], dtype=torch.int32)
    found = from_bits(ends, dtype)
    assert bool(found.isfinite().all())
    assert bool((found > 0).all())


def as_matrix(neighbours, weight, pairs):
    matrix = weight.new_zeros(pairs.dst.size(0), pairs.src.size(0))
    matrix[neighbours.target.long(), neighbours.source.long()] = weight
    return matrix


def replayed(pairs, draws, seed):
    """Relaxed draws of the same noise, a target after the other."""
    score = pairs.rows()
    listed = score > -torch.inf
    noise = torch.zeros(*score.shape, draws, **DOUBLE)
    noise[listed] = exponentials(noise[listed], seeded(seed))
    total = torch.zeros_like(score)
    for i in range(score.size(0)):
        others = listed[i].nonzero().flatten().tolist()
        for draw in range(draws):
            rate = {j: score[i, j].exp() / noise[i, j, draw] for j in others}
            for j, value in rate.items():
                total[i, j] += value / sum(rate.values()) / draws
    return total


@pytest.mark.parametrize('own', [False, True])
@pytest.mark.parametrize('draws', [1, 3])
def test_relaxed_draws_of_known_noise(own, draws):
    pairs = make(own=own)
    found = as_matrix(*pool_weights(pairs, draws=draws, generator=seeded(7)), pairs)
    torch.testing.assert_close(found, replayed(pairs, draws, 7))
    if own:
        assert not bool(found.diagonal().any())


def test_mean_of_draws_is_that_of_the_definition():
    pairs, draws = make(n=1, num_sources=4), 4000
    samples = [
        as_matrix(*pool_weights(pairs, draws=1, generator=seeded(i)), pairs)[0]
        for i in range(draws)
    ]
    noise = torch.distributions.Gumbel(0.0, 1.0)
    torch.manual_seed(1)
    dense = (pairs.rows() + noise.sample((draws, 4)).double()).softmax(dim=1)
    for one, other in zip(torch.stack(samples).T, dense.T, strict=True):
        assert ks_2samp(one.numpy(), other.numpy()).pvalue > ERROR_RATE / 4


@pytest.mark.parametrize('draws', [None, 2])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_sources_are_left_out_whose_weight_is_lost_in_rounding(draws, dtype):
    least = -math.log(torch.finfo(dtype).eps / 3)
    src = torch.tensor([[0.0], [(0.9 * least) ** 0.5], [(1.1 * least) ** 0.5]])
    src = src.to(dtype)
    pairs = PairScores(src[:1], src, Negative(), 'squared_distance')
    neighbours, weight = pool_weights(pairs, draws=draws, generator=seeded())
    assert neighbours.source.tolist() == [0, 1]
    assert bool((weight > 0).all())
    torch.testing.assert_close(weight.sum(), torch.ones((), dtype=dtype))


def test_few_pairs_of_sharp_scores_are_summed():
    pairs = make(n=40, num_sources=500, scale=400.0)
    assert pool_weights(pairs)[1].numel() < 40 * 500 / 20
    assert pool_weights(make(n=40, num_sources=500, scale=0.1))[1].numel() == 40 * 500


# Changes of sources, and scales: scores so large that a difference is lost in rounding,
# and rows that are no numbers.
ODD = {
    'huge': (lambda z: 1e10 * z, 1.0),
    'infinite products': (lambda z: 1e38 * z, 100.0),
    'NaN source': (lambda z: torch.cat([z[:1] * math.nan, z[1:]]), 1.0),
    'infinite source': (lambda z: torch.cat([z[:1] * math.inf, z[1:]]), 1.0),
    'NaN scale': (lambda z: z, math.nan),
}


@pytest.mark.parametrize('own', [False, True])
@pytest.mark.parametrize('name', ODD)
def test_scores_beyond_rounding_and_numbers(name, own):
    change, scale = ODD[name]
    z, h = torch.randn(20, 4), torch.randn(20, 3)
    excluded = torch.arange(20) if own else None
    pairs = PairScores(z, change(z), Identity(), scale=scale, excluded=excluded)
    expected = pairs.rows().softmax(dim=1) @ h
    # Targets without candidates get zero; here some have candidates of score -inf only.
    expected[(pairs.rows() == -math.inf).all(dim=1)] = 0
    torch.testing.assert_close(pool_sum(h, pairs), expected, equal_nan=True)
