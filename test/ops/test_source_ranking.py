"""What the order of sources certifies: intervals, errors, and far clusters."""

from itertools import pairwise

import pytest
import torch
from oracles import seeded
from responses import OF_USERS

from torch_geometric_gsl.ops import source_ranking as module
from torch_geometric_gsl.ops.cells import score_range
from torch_geometric_gsl.ops.clusters import group, k_means
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import Gaussian, Identity, unit_rows
from torch_geometric_gsl.ops.source_ranking import NUM_STEPS, Messages, rank_sources

N, TAU = 240, 0.25
DTYPES = pytest.mark.parametrize('dtype', [torch.float32, torch.float64])


def problem(dtype=torch.float64, response='identity', scale=5.0, excludes=False):
    """Messages, scores of a cell of near targets, and the clusters of sources."""
    x = unit_rows(torch.randn(8, 6, generator=seeded(), dtype=torch.double))
    noise = torch.randn(N, 6, generator=seeded(1), dtype=torch.double)
    x = unit_rows(x[torch.arange(N) % 8] + 0.02 * noise).to(dtype)
    h = 1 + torch.randn(N, 3, generator=seeded(2), dtype=torch.double).to(dtype)
    known = {
        'identity': Identity(),
        'gaussian': Gaussian(x.new_full((N,), 0.5), x.new_full((N,), 0.3)),
    }
    every = torch.arange(N)
    excluded = every if excludes else None
    pairs = PairScores(x, x, known[response], 'dot', scale, excluded=excluded)
    clusters = k_means(x, 8)
    return Messages.of(h, pairs, clusters), pairs.take(every[every % 8 == 3]), h


def weights(pairs, ranking):
    """The weights of all sources in double precision, as the ranking has them."""
    values = pairs.dst.double(), pairs.src.double()
    params = (param.double() for param in pairs.response.params)
    response = type(pairs.response)(*params)
    score = PairScores(*values, response, 'dot', pairs.scale).rows()
    return ((score - ranking.top.double()) / TAU).exp()


def sizes_of(ranking):
    """How many sources there are of each step."""
    return [end - start for start, end in pairwise(ranking.ends)]


def steps_of(ranking):
    """The steps of the sources in the order of the ranking."""
    sizes = torch.tensor(sizes_of(ranking))
    return torch.arange(NUM_STEPS).repeat_interleave(sizes)


# The messages.


@DTYPES
def test_messages_stand_in_the_order_of_clusters(dtype):
    x = torch.randn(7, 2, dtype=dtype)
    h = torch.randn(7, 3, dtype=dtype) + 4
    clusters = group(torch.tensor([2, 0, 1, 0, 2, 2, 0]))
    messages = Messages.of(h, PairScores(x, x, Identity()), clusters)
    order = [1, 3, 6, 2, 0, 4, 5]
    assert messages.members.source.tolist() == order
    assert messages.place[order].tolist() == list(range(7))
    mean = h.mean(dim=0)
    torch.testing.assert_close(messages.mean, mean)
    expected = torch.cat([h[order] - mean, h.new_ones(7, 1)], dim=1)
    torch.testing.assert_close(messages.full, expected)
    size = (h[order] - mean).norm(dim=1)
    torch.testing.assert_close(messages.size, size)
    # Sums of clusters are those of their members, in double precision.
    parts, sizes = expected.double().split([3, 1, 3]), size.double().split([3, 1, 3])
    total = torch.stack([part.sum(dim=0) for part in parts])
    torch.testing.assert_close(messages.group_full, total, rtol=1e-6, atol=1e-6)
    total = torch.stack([part.sum() for part in sizes])
    torch.testing.assert_close(messages.group_size, total, rtol=1e-6, atol=1e-6)


def test_messages_of_some_clusters():
    messages, _, _ = problem()
    clusters = torch.tensor([1, 4, 6])
    places = messages.places(clusters)
    number = messages.members.number
    expected = [i for i in range(N) if number[i] in clusters]
    assert places.tolist() == expected
    some = messages.take(places, clusters)
    assert torch.equal(some.members.source, messages.members.source[places])
    assert torch.equal(some.size, messages.size[places])
    rows = torch.tensor([5, 0, 5])
    assert torch.equal(some.rows(rows), messages.full[places[rows]])
    assert torch.equal(messages.rows(rows), messages.full[rows])
    # Clusters are numbered anew.
    renumbered = clusters[some.members.number]
    assert torch.equal(renumbered, number[places])


def test_half_precision_is_summed_in_full():
    _, pairs, h = problem(torch.float32)
    whole = Messages.of(h.half(), pairs, k_means(pairs.src, 8))
    assert whole.full.dtype == torch.float32
    assert whole.group_full.dtype == torch.float64


# The order, and what is certified without far clusters.


@DTYPES
@pytest.mark.parametrize('response', ['identity', 'gaussian'])
@pytest.mark.parametrize('scale', [0.2, 5.0, 40.0])
def test_intervals_hold_all_weights(dtype, response, scale):
    messages, pairs, _ = problem(dtype, response, scale)
    ranking = rank_sources(messages, pairs, TAU, 0.0)
    assert ranking.far is None
    weight = weights(pairs, ranking)[:, messages.members.source]
    middle = ranking.middle.double()
    assert bool((weight <= 1).all())
    missed = (weight - middle).abs().amax(dim=0)
    # The errors of what is left from each step on are at least those of its sources.
    step = torch.zeros(N, dtype=torch.long)
    step[ranking.source] = steps_of(ranking)
    for first in range(NUM_STEPS + 1):
        left = step >= first
        by_sum = (missed * messages.size.double())[left].sum()
        assert float(by_sum) <= float(ranking.error[first, 0])
        assert float(missed[left].sum()) <= float(ranking.error[first, 1])
        assert float(middle[left].sum()) <= float(ranking.error[first, 3])


@pytest.mark.parametrize('excludes', [False, True])
def test_sources_stand_in_descending_order_of_their_errors(excludes):
    messages, pairs, _ = problem(excludes=excludes)
    ranking = rank_sources(messages, pairs, TAU, 0.0)
    assert ranking.source.sort().values.tolist() == list(range(N))
    assert len(ranking.ends) == NUM_STEPS + 1
    assert ranking.ends == sorted(ranking.ends)
    assert ranking.ends[0] == 0
    assert ranking.ends[-1] == N
    # Targets are summed first, pair by pair, where they are excluded.
    first = ranking.source[: ranking.ends[1]]
    own = messages.place[pairs.excluded] if excludes else first[:0]
    assert torch.equal(first.sort().values, own.sort().values)
    # No source leaves more open than one of a step before.
    low, high = score_range(pairs, messages.members)
    upper, lower = (((end - high.amax()) / TAU).exp() for end in (high, low))
    worst = (upper - lower) / 2 * (messages.size + messages.size.mean())
    steps = worst[ranking.source].split(sizes_of(ranking))[1:]
    steps = [part for part in steps if part.numel() > 0]
    assert len(steps) > 5
    for before, after in pairwise(steps):
        assert float(after.max()) <= float(before.min()) * (1 + 1e-9)
    # A step is half a unit of the logarithm.
    exact = 2 * (worst.max() / worst[ranking.source]).log() + 1
    below = (exact - steps_of(ranking))[ranking.ends[1] : ranking.ends[-2]]
    assert -1e-6 < float(below.min()) <= float(below.max()) < 1 + 1e-6


def test_errors_run_down_to_zero():
    messages, pairs, _ = problem()
    ranking = rank_sources(messages, pairs, TAU, 0.0)
    assert ranking.error.shape == (NUM_STEPS + 1, 4)
    assert bool((ranking.error.diff(dim=0) <= 0).all())
    assert not ranking.error[-1].any()
    # Middles that are left out count as errors.
    expected = ranking.error[3, :2] + ranking.error[90, 2:]
    assert torch.equal(ranking.error_from(3, 90), expected)
    # Wide intervals are not worth the sum of their middles.
    ratio = ranking.error[:, 1] / ranking.error[:, 3]
    assert torch.equal(ranking.is_flat, ratio < 0.5)
    assert 0 < int(ranking.is_flat.sum()) < NUM_STEPS


@pytest.mark.parametrize('tolerance', [0.0, 1e-3])
@pytest.mark.parametrize(('first', 'last'), [(0, NUM_STEPS), (2, 20), (5, 7), (9, 9)])
def test_middles_of_some_steps(first, last, tolerance):
    messages, pairs, _ = problem()
    ranking = rank_sources(messages, pairs, TAU, tolerance)
    assert (ranking.far is None) == (tolerance == 0)
    # All messages are read for many, and few are gathered.
    assert ranking.source.numel() >= N / 4
    expected = torch.zeros(4, dtype=torch.double)
    if ranking.far is not None:
        expected += ranking.far.total
    full = ranking.messages.rows(ranking.source)
    steps = steps_of(ranking).tolist()
    for place, row, step in zip(ranking.source, full, steps, strict=True):
        if first <= step < last:
            expected += ranking.middle[place] * row
    torch.testing.assert_close(ranking.middle_sum(first, last), expected)


@DTYPES
@pytest.mark.parametrize('excludes', [False, True])
def test_middles_are_within_the_error_of_the_sum(dtype, excludes):
    messages, pairs, _ = problem(dtype, excludes=excludes)
    ranking = rank_sources(messages, pairs, TAU, 0.0)
    weight = weights(pairs, ranking)[:, messages.members.source]
    full = messages.full.double()
    for first, last in ((1, 128), (4, 128), (4, 12), (10, 10)):
        left = ranking.source[ranking.ends[first] :]
        missed = weight[:, left] @ full[left] - ranking.middle_sum(first, last)
        by_sum, by_weight = ranking.error_from(first, last)
        rounding = 1 + 1e-6
        assert float(missed[:, :-1].norm(dim=1).max()) <= rounding * float(by_sum)
        assert float(missed[:, -1].abs().max()) <= rounding * float(by_weight)


# Clusters that are replaced as a whole.


def test_nothing_is_far_without_a_tolerance():
    messages, pairs, _ = problem()
    assert rank_sources(messages, pairs, TAU, 0.0).far is None
    assert rank_sources(messages, pairs, TAU, 1e-15).far is None
    assert rank_sources(messages, pairs, TAU, 1e-1).far is not None


@DTYPES
@pytest.mark.parametrize('tolerance', [10**-power for power in (1, 1.5, 2, 2.5, 3, 4)])
@pytest.mark.parametrize('excludes', [False, True])
def test_far_clusters_are_within_their_error(dtype, tolerance, excludes):
    messages, pairs, _ = problem(dtype, excludes=excludes)
    ranking = rank_sources(messages, pairs, TAU, tolerance)
    near = torch.zeros(N, dtype=torch.bool)
    near[ranking.messages.members.source] = True
    # Clusters are near or far as a whole, and those of excluded sources are near.
    number = torch.empty(N, dtype=torch.long)
    number[messages.members.source] = messages.members.number
    assert not set(number[near].tolist()) & set(number[~near].tolist())
    assert 0 < int(near.sum()) <= N / 2
    if excludes:
        assert bool(near[pairs.excluded].all())
    weight = weights(pairs, ranking)[:, messages.members.source]
    far = ~near[messages.members.source]
    full = messages.full.double()
    missed = weight[:, far] @ full[far] - ranking.far.total
    by_sum, by_weight = ranking.far.error
    assert float(missed[:, :-1].norm(dim=1).max()) <= float(by_sum)
    assert float(missed[:, -1].abs().max()) <= float(by_weight)
    # They take no more than their part of the error that is allowed; the least sum is
    # guessed from the centres of clusters.
    typical, total = messages.size.double().mean(), weight.sum(dim=1).amin()
    allowed = module._FAR * tolerance * typical * total
    assert float(by_sum + typical * by_weight) <= 1.02 * float(allowed)


@pytest.mark.parametrize('first', [1, 5, NUM_STEPS])
def test_far_clusters_count_in_every_sum(first):
    messages, pairs, _ = problem(scale=20.0)
    ranking = rank_sources(messages, pairs, TAU, 1e-2)
    alone = ranking._replace(far=None)
    error = alone.error_from(first, NUM_STEPS) + ranking.far.error
    assert torch.equal(ranking.error_from(first, NUM_STEPS), error)
    total = alone.middle_sum(first, NUM_STEPS) + ranking.far.total
    assert torch.equal(ranking.middle_sum(first, NUM_STEPS), total)
    # Together they miss the sum of all by no more than the errors.
    weight = weights(pairs, ranking)
    order = messages.members.source
    full = messages.full.double()
    members, source = ranking.messages.members.source, ranking.source
    left = torch.ones(N, dtype=torch.bool)
    left[members[source[: ranking.ends[first]]]] = False
    left = left[order]
    missed = weight[:, order][:, left] @ full[left] - total
    assert float(missed[:, :-1].norm(dim=1).max()) <= float(error[0])
    assert float(missed[:, -1].abs().max()) <= float(error[1])


def test_clusters_of_excluded_sources_are_never_far():
    messages, pairs, _ = problem(scale=20.0)
    found = rank_sources(messages, pairs, TAU, 1e-1).messages.members.source
    far = torch.tensor(sorted(set(range(N)) - set(found.tolist())))
    pairs = pairs._replace(excluded=far[: pairs.dst.size(0)])
    ranking = rank_sources(messages, pairs, TAU, 1e-1)
    near = ranking.messages.members.source
    assert set(pairs.excluded.tolist()) <= set(near.tolist())
    # They come first, by their places among the near ones.
    first = near[ranking.source[: ranking.ends[1]]]
    assert sorted(first.tolist()) == pairs.excluded.tolist()


def test_far_clusters_that_leave_too_many_sources_are_none(monkeypatch):
    messages, pairs, _ = problem(scale=20.0)
    assert rank_sources(messages, pairs, TAU, 1e-1).far is not None
    monkeypatch.setattr(module, '_MAX_NEAR', 0.01)
    ranking = rank_sources(messages, pairs, TAU, 1e-1)
    assert ranking.far is None
    assert ranking.source.numel() == N


def test_equal_messages_leave_errors_of_weights_alone():
    _, pairs, h = problem()
    messages = Messages.of(torch.ones_like(h), pairs, k_means(pairs.src, 8))
    ranking = rank_sources(messages, pairs, TAU, 0.0)
    assert not ranking.error[:, 0].any()
    assert float(ranking.error[0, 1]) > 0
    assert sum(size > 0 for size in sizes_of(ranking)) > 5


def test_responses_without_bounds_for_all_targets_are_told():
    messages, pairs, _ = problem()
    shift = torch.rand(pairs.dst.size(0), dtype=torch.double)
    wave = OF_USERS['a wave'].cls
    pairs = pairs._replace(response=wave(shift))
    assert rank_sources(messages, pairs, TAU, 0.1) is None
    one = wave(shift[:1].expand(shift.numel()))
    assert rank_sources(messages, pairs._replace(response=one), TAU, 0.1) is not None
