import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import check_law, seeded
from responses import OF_USERS, RESPONSES, Tanh, bounded_pairs

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.clusters import Clusters, group
from torch_geometric_gsl.ops.envelope import (
    Head,
    bound_scores,
    find_nearest,
    make_envelope,
    num_accepted,
    num_expected,
    proposal_rates,
    sample_targets,
)
from torch_geometric_gsl.ops.noise import propose, random_words
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all
from torch_geometric_gsl.ops.relax import DrawOptions

FIVE = DrawOptions(k=1, tau=0.25, num_arrivals=5)


ROWS = {**RESPONSES, **OF_USERS}


def make_pairs(name, n=40, num_sources=30, m=4, scale=5.0, seed=0):
    src = scores.unit_rows(torch.randn(num_sources, m, generator=seeded(seed)))
    dst = scores.unit_rows(torch.randn(n, m, generator=seeded(seed + 1)))
    # Each target has a bell of its own.
    params = (p * (0.5 + torch.rand(n, generator=seeded(2))) for p in ROWS[name].params)
    return bounded_pairs(name, dst, src, scale, params)


def cluster_of(clusters: Clusters):
    cluster = torch.empty_like(clusters.source)
    cluster[clusters.source] = clusters.cluster
    return cluster


@given(
    st.sampled_from(sorted(ROWS)),
    st.integers(1, 30),
    st.integers(1, 12),
    st.floats(0.1, 40.0),
    st.integers(0, 10**6),
)
def test_no_score_exceeds_the_bound_of_its_cluster(name, count, m, scale, seed):
    pairs = make_pairs(name, m=m, scale=scale, seed=seed)
    clusters = group(torch.randint(count, (30,), generator=seeded(seed)))
    bound = bound_scores(pairs, make_envelope(pairs, clusters), slice(0, 40))
    assert (pairs.rows() <= bound[:, cluster_of(clusters)]).all()
    assert (bound <= pairs.upper).all()


def envelopes(pairs):
    count = pairs.src.size(0)
    every = torch.arange(count).expand(pairs.dst.size(0), count)
    anything = torch.full((2, pairs.dst.size(0)), 9.0)
    anything[0] = -9.0 if pairs.comparison == 'dot' else 0.0
    sources = torch.stack(
        [torch.randperm(count, generator=seeded(i))[:5] for i in range(len(every))]
    )
    head = Head(sources.sort().values, *anything)
    one_cluster, one_each = group(torch.zeros(count).long()), group(torch.arange(count))
    five = group(torch.randint(5, (count,), generator=seeded()))
    by_name = {
        'one cluster': make_envelope(pairs, one_cluster),
        'clusters': make_envelope(pairs, five),
        'a cluster each': make_envelope(pairs, one_each),
        'random head': make_envelope(pairs, None, head),
        'head and clusters': make_envelope(pairs, five, head),
        'all in the head': make_envelope(pairs, five, Head(every, *anything)),
    }
    if pairs.response.head_sign:
        by_name['nearest'] = make_envelope(pairs, None, find_nearest(pairs, 7))
    return by_name


def proposed(rates, envelope, words):
    level, row = (words[0] >> 32).int(), torch.arange(words.size(1))
    return propose(level, words[1], row, *rates.lookup)


@pytest.mark.parametrize('name', sorted(ROWS))
def test_proposals_follow_their_rates(name):
    # What is proposed and not void has the rates of the bounds, in each envelope.
    pairs = make_pairs(name, n=3, num_sources=12)
    for envelope in envelopes(pairs).values():
        rates = proposal_rates(pairs, envelope, slice(0, 3))
        assert torch.allclose(
            rates.bound.isfinite().double().mean(), torch.ones((), dtype=torch.double)
        )
        words = random_words(torch.arange(120_000).view(2, 3, 20_000) * 7919)
        source, bound, is_void = proposed(rates, envelope, words)
        beneath = pairs.rows().gather(1, source) <= bound + 1e-5
        assert (beneath if is_void is None else beneath | is_void).all()
        for i, law in enumerate(laws_of_proposals(pairs, envelope, rates)):
            outcome = (
                source[i] if is_void is None else source[i].masked_fill(is_void[i], 12)
            )
            check_law(outcome.bincount(minlength=13), law)


def laws_of_proposals(pairs, envelope, rates):
    """The share of each source, and of what is void, of each target."""
    cluster, weight = cluster_of(envelope.clusters), pairs.rows().double().exp()
    for i, bound in enumerate(rates.bound.double()):
        rate, void = bound[cluster].exp(), 0.0
        if envelope.head is not None:
            head = envelope.head.source[i]
            void, rate[head] = float(rate[head].sum()), weight[i, head]
        law = torch.cat([rate, torch.tensor([void], dtype=torch.double)])
        assert float(law.sum().log()) == pytest.approx(float(rates.total[i]), abs=1e-4)
        yield law / law.sum()


def expected_proposals(pairs, clusters=None):
    return num_expected(sample_targets(pairs, FIVE), make_envelope(pairs, clusters))


def test_num_expected():
    # All scores equal their bound: each proposal is accepted.
    x = torch.ones(240, 1)
    pairs = PairScores(x, x, scores.Identity(), 'dot', 3.0, -3.0, 3.0)
    assert expected_proposals(pairs) == pytest.approx(5.0, rel=1e-4)
    # And a race soon looks at all candidates.
    far = pairs._replace(upper=13.0)
    assert expected_proposals(far) == 30.0
    without_loops = far._replace(excluded=torch.arange(240))
    assert expected_proposals(without_loops) == 29.875
    clusters = group(torch.arange(240) % 4)
    assert expected_proposals(far, clusters) == pytest.approx(5.0, rel=1e-3)


def test_num_accepted():
    # Equal shares: five of thirty are distinct after about 5.5 of them.
    score = torch.zeros(1, 30)
    assert float(num_accepted(score, 5)) == pytest.approx(-30 * math.log(5 / 6))
    # A second neighbour beside a heavy one takes as long as all others need for one.
    weight = torch.tensor([[0.9] + [0.1 / 99] * 99], dtype=torch.float64)
    count = float(num_accepted(weight.log(), 2))
    assert float((1 - (-weight * count).exp()).sum()) == pytest.approx(2)
    assert count > 10
    # It stops at the number of candidates.
    assert float(num_accepted(40 * torch.eye(1, 50), 3)) == 50


def test_a_response_without_an_interval_has_no_clusters():
    pairs = make_pairs('of a user')._replace(response=Tanh())
    envelope = make_envelope(pairs, group(torch.arange(30) % 4))
    with pytest.raises(ValueError, match="'Tanh' must have an 'interval'"):
        bound_scores(pairs, envelope, slice(0, 40))


HEADED = sorted(name for name in RESPONSES if make_pairs(name).response.head_sign)


@given(st.sampled_from(HEADED), st.integers(1, 29), st.integers(0, 10**6))
def test_no_score_beyond_the_head_exceeds_its_bound(name, size, seed):
    pairs = make_pairs(name, seed=seed)._replace(upper=math.inf)
    head = find_nearest(pairs._replace(memory=1000), size)
    value = pairs.response.head_sign * compare_all(
        pairs.comparison, pairs.dst, pairs.src
    )
    expected = value.argsort(dim=1, descending=True)[:, :size].sort().values
    assert torch.equal(head.source, expected)
    bound = bound_scores(pairs, make_envelope(pairs, None, head), slice(0, 40))
    beyond = pairs.rows().scatter(1, head.source, -math.inf)
    assert (beyond <= bound).all()
    # It is the best of the rest, up to rounding, unless that may be a bell's.
    if pairs.response.monotonic:
        assert torch.allclose(beyond.amax(dim=1), bound[:, 0], atol=1e-2)


COSINES = st.floats(-1, 1)


@given(st.floats(0.01, 0.999), COSINES, st.floats(0.001, 9), COSINES, COSINES)
def test_a_mixture_attains_its_bound(a, b, c, low, high):
    low, high = torch.tensor(sorted([low, high]), dtype=torch.double)
    params = torch.tensor([a, b, c], dtype=torch.double)
    response = scores.Mixture(*params.view(3, 1))
    grid = torch.lerp(low, high, torch.linspace(0, 1, 20_001, dtype=torch.double))
    _, bound = response.interval(low, high, *params)
    score = scores.Mixture.value(grid, *params)
    assert float(score.amax()) <= float(bound) + 1e-12
    assert float(bound) == pytest.approx(float(score.amax()), abs=1e-4)
    _, bound = response.bounds_of_all(low, high)
    assert float(bound) == pytest.approx(float(score.amax()), abs=1e-4)


def test_a_mixture_has_a_bound_of_its_own_without_clusters():
    # Of the line and the bell, none is largest where the other one is.
    pairs = make_pairs('mixture')
    bound = bound_scores(pairs, make_envelope(pairs), slice(0, 40))[:, 0]
    assert (pairs.rows().amax(dim=1) <= bound).all()
    assert float(bound.amax()) < 0.9 * float(pairs.upper)
