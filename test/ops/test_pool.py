import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import ERROR_RATE, check_law, noise_of, relaxed, seeded, to_matrix
from responses import noise_free
from scipy.stats import kstest

from torch_geometric_gsl.ops import pool
from torch_geometric_gsl.ops.dense import dense_graph
from torch_geometric_gsl.ops.noise import draw_seed
from torch_geometric_gsl.ops.pair_scores import PairScores, distances_as_dots
from torch_geometric_gsl.ops.pool import list_pool, pool_draws, pool_softmax, pool_sum
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scores import Identity, Negative

DOUBLE = {'dtype': torch.float64}
CPU = torch.device('cpu')


def make(n=5, num_sources=7, is_square=False, scale=1.5, **options):
    dst, src = torch.randn(n, 3, **DOUBLE), torch.randn(num_sources, 3, **DOUBLE)
    src = dst if is_square else src
    excluded = torch.arange(n) if is_square else None
    response, comparison = Negative(), 'squared_distance'
    pairs = PairScores(dst, src, response, comparison, scale, excluded=excluded)
    return pairs._replace(**options)


def draw(k=2, tau=1.0, hard=False, seed=7):
    """Return a function that draws with the noise of a seed."""
    options = DrawOptions(k, tau, 0, hard=hard)
    return partial(pool_draws, options=options, seed=draw_seed(CPU, seeded(seed)))


def as_matrix(neighbours, weight, pairs):
    edges = torch.stack([neighbours.source, neighbours.target]).long()
    return to_matrix(edges, weight, pairs.dst.size(0), pairs.src.size(0))


@pytest.mark.parametrize('is_square', [False, True])
@pytest.mark.parametrize('memory', [1, 2**25])
@pytest.mark.parametrize('is_dot', [False, True])
def test_softmax_equals_the_definition(is_square, memory, is_dot):
    pairs = make(is_square=is_square, memory=memory)
    h = torch.randn(pairs.src.size(0), 2, **DOUBLE)
    expected = noise_free(h, pairs, 1.0)
    pairs = distances_as_dots(pairs) if is_dot else pairs
    torch.testing.assert_close(pool_sum(h, pairs, pool_softmax), expected)
    with torch.no_grad():  # By blocks.
        torch.testing.assert_close(pool_sum(h, pairs, pool_softmax), expected)


@given(
    n=st.integers(1, 4),
    num_sources=st.integers(2, 6),
    k=st.integers(1, 3),
    tau=st.sampled_from([1e-6, 0.1, 0.5, 1.0, 2.0, 50.0]),
    scale=st.sampled_from([1e-3, 1.0, 9.0]),
    null=st.sampled_from([None, -5.0, 2.0]),
    hard=st.booleans(),
    memory=st.sampled_from([1, 200, 2**25]),
    seed=st.integers(0, 2**31),
)
def test_draws_equal_the_definition_with_their_noise(
    n, num_sources, k, tau, scale, null, hard, memory, seed
):
    is_square = n == num_sources
    dst, src = (torch.randn(c, 3, generator=seeded(c)) for c in (n, num_sources))
    pairs = make(is_square=is_square, scale=scale, memory=memory, dst=dst.double())
    pairs = pairs._replace(src=pairs.dst if is_square else src.double())
    pairs = pairs._replace(excluded=torch.arange(n) if is_square else None)
    null = None if null is None else torch.tensor(null, **DOUBLE)
    drawn = draw(k, tau, hard, seed)(pairs._replace(null=null))
    score = pairs.rows()
    score = score if null is None else torch.cat([score, null.expand(n, 1)], dim=1)
    noise = noise_of('pool', seed, score, k, None)
    expected = relaxed(score, noise, tau, hard)[:, :num_sources]
    torch.testing.assert_close(as_matrix(*drawn, pairs), expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize('tau', [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize('memory', [1, 2**25])
def test_gradient_of_draws(tau, memory):
    scale, null = (torch.tensor(v, **DOUBLE, requires_grad=True) for v in (0.7, 0.1))
    h = torch.randn(7, 2, **DOUBLE, requires_grad=True)
    pairs = make()
    leaves = h, pairs.dst.requires_grad_(), pairs.src.requires_grad_(), scale, null

    def run(h, dst, src, scale, null, hard=False):
        rows = {'dst': dst, 'src': src, 'scale': scale, 'null': null}
        pairs = make(memory=memory)._replace(**rows)
        return pool_sum(h, pairs, draw(2, tau, hard))

    assert torch.autograd.gradcheck(run, leaves)
    # One-hot draws have the gradient of relaxed ones.
    direction = torch.randn(5, 2, **DOUBLE)
    soft, hard = (
        torch.autograd.grad((run(*leaves, hard) * direction).sum(), leaves[1:])
        for hard in (False, True)
    )
    torch.testing.assert_close(soft, hard)


@pytest.mark.parametrize('p', [0.0, 0.5])
def test_gradient_of_a_softmax(p):
    scale = torch.tensor(0.7, **DOUBLE, requires_grad=True)
    h = torch.randn(7, 2, **DOUBLE, requires_grad=True)
    dst, src = (z.requires_grad_() for z in make()[:2])

    def run(h, dst, src, scale):
        weigh = partial(pool_softmax, p=p, generator=seeded(3))
        return pool_sum(h, make()._replace(dst=dst, src=src, scale=scale), weigh)

    assert torch.autograd.gradcheck(run, (h, dst, src, scale))


@pytest.mark.parametrize('is_square', [False, True])
def test_targets_keep_their_draws(is_square):
    pairs = make(9, 9, is_square, memory=1)
    expected = as_matrix(*draw()(pairs), pairs)
    block = pairs.block(slice(4, 7))
    torch.testing.assert_close(as_matrix(*draw()(block), block), expected[4:7])
    assert not torch.allclose(as_matrix(*draw(seed=8)(pairs), pairs), expected)
    if is_square:
        assert not bool(expected.diagonal().any())


def test_one_hot_draws_have_their_exact_law():
    # Single precision: early arrivals must not be rounded.
    pairs = make(1, 5, scale=0.3)
    probability = pairs.rows().softmax(dim=1)[0].tolist()
    count = 20_000
    rows = pairs.dst.float().expand(count, -1)
    single = pairs._replace(dst=rows, src=pairs.src.float())
    matrix = as_matrix(*draw(1, 0.5, hard=True)(single), single)
    assert torch.equal(matrix.sum(dim=1), torch.ones(count))
    check_law(matrix.sum(dim=0).tolist(), probability)


def test_the_first_of_equal_weights_wins():
    weight, target = (
        torch.tensor([[0.2], [0.4], [0.4], [1.0]]),
        torch.tensor([0, 0, 0, 1]),
    )
    winners = pool._winners(weight, torch.zeros(2, 1), target)
    assert winners.flatten().tolist() == [0, 1, 0, 1]


def test_noise_is_precise_where_arrivals_are_early():
    state = torch.arange(10**5).unsqueeze(1) * 977
    time = pool._gumbel(state, torch.tensor(3), torch.empty(0)).neg().exp()
    early = time[time < 1e-3].double() / 1e-3
    assert early.unique().numel() > 0.9 * early.numel()
    assert kstest(-torch.expm1(-time.double()).flatten(), 'uniform').pvalue > ERROR_RATE


def test_dots_hold_far_from_the_origin():
    near = make(n=200, is_square=True)
    far = near._replace(dst=near.dst + 1e4, src=near.dst + 1e4)
    h = torch.randn(200, 2, **DOUBLE)
    single = far._replace(dst=far.dst.float(), src=far.dst.float())
    out = pool_sum(h.float(), single, pool_softmax)
    expected = noise_free(h, near, 1.0)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=0.02)


def test_near_rows_far_from_the_others_are_listed():
    # The squares of these rows exceed their distances by more than single precision.
    z = torch.zeros(60, 2)
    z[50:] = 1e5 + torch.arange(10).unsqueeze(1) / 4
    pairs = PairScores(z[50:], z, Negative(), 'squared_distance')
    expected = (-torch.cdist(z[50:].double(), z.double()).square()).softmax(dim=1)
    weight = as_matrix(*pool_softmax(pairs), pairs).double()
    torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-7)


def test_dropped_weights():
    pairs = make(n=40, num_sources=50, scale=0.1)
    h = torch.ones(50, 1, **DOUBLE)

    def dropped(seed, p=0.25):
        weigh = partial(pool_softmax, p=p, generator=seeded(seed))
        return pool_sum(h, pairs, weigh)

    assert torch.equal(dropped(0), dropped(0))
    assert not torch.equal(dropped(0), dropped(1))
    torch.testing.assert_close(dropped(0, p=0.0), pool_sum(h, pairs, pool_softmax))
    # Each of the weights is dropped or grows by a third: the mean of many is 1.
    weight = pairs.rows().softmax(dim=1)
    deviation = (weight.square().sum() / 3).sqrt() / 40 / 300**0.5
    mean = torch.stack([dropped(seed).mean() for seed in range(300)]).mean()
    assert abs(float(mean) - 1) < 3.9 * float(deviation)  # Error rate 1e-4.


@pytest.mark.parametrize('tau', [0.1, 1.0, 2.0])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_sources_are_left_out_whose_weight_is_lost_in_rounding(tau, dtype):
    least = -max(tau, 1.0) * math.log(torch.finfo(dtype).eps / 3)
    src = torch.tensor([[0.0], [(0.9 * least) ** 0.5], [(1.1 * least) ** 0.5]])
    src = src.to(dtype)
    pairs = PairScores(src[:1], src, Negative(), 'squared_distance')
    neighbours = list_pool(pairs, tau)
    assert neighbours.source.tolist() == [0, 1]
    assert pool.count_pool(pairs, tau) == 2
    _, weight = draw(tau=tau)(pairs)
    torch.testing.assert_close(weight.sum(), torch.ones((), dtype=dtype))


def test_few_pairs_of_sharp_scores_are_listed():
    pairs = make(n=40, num_sources=500, scale=400.0)
    assert list_pool(pairs).source.numel() < 40 * 500 / 20
    pairs = make(n=40, num_sources=500, scale=0.1)
    assert list_pool(pairs).source.numel() == 40 * 500
    assert torch.equal(
        torch.stack([list_pool(pairs).source, list_pool(pairs).target]).long(),
        dense_graph(pairs.rows()).edge_index,
    )


# Changes of sources, and scales: scores so large that a difference is lost in rounding,
# and rows that are no numbers.
ODD = {
    'huge': (lambda z: 1e10 * z, 1.0),
    'infinite products': (lambda z: 1e38 * z, 100.0),
    'NaN source': (lambda z: torch.cat([z[:1] * math.nan, z[1:]]), 1.0),
    'infinite source': (lambda z: torch.cat([z[:1] * math.inf, z[1:]]), 1.0),
    'NaN scale': (lambda z: z, math.nan),
}


@pytest.mark.parametrize('no_loops', [False, True])
@pytest.mark.parametrize('name', ODD)
def test_scores_beyond_rounding_and_numbers(name, no_loops):
    change, scale = ODD[name]
    z, h = torch.randn(20, 4), torch.randn(20, 3)
    excluded = torch.arange(20) if no_loops else None
    pairs = PairScores(z, change(z), Identity(), scale=scale, excluded=excluded)
    expected = pairs.rows().softmax(dim=1) @ h
    # Targets without candidates get zero; here some have candidates of score -inf only.
    expected[(pairs.rows() == -math.inf).all(dim=1)] = 0
    out = pool_sum(h, pairs, pool_softmax)
    torch.testing.assert_close(out, expected, equal_nan=True)


@pytest.mark.parametrize('has_gradient', [False, True])
def test_no_targets(has_gradient):
    pairs = PairScores(torch.randn(0, 4), torch.randn(9, 4), Identity())
    with torch.set_grad_enabled(has_gradient):
        assert pool_sum(torch.randn(9, 3), pairs, pool_softmax).shape == (0, 3)
