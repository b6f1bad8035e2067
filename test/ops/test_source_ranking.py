"""What the ranking of sources certifies: intervals, errors, and far clusters."""

from itertools import pairwise

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.ops.certified import source_ranking as module
from torch_geometric_gsl.ops.certified.source_ranking import (
    NUM_STEPS,
    Messages,
    rank_sources,
)
from torch_geometric_gsl.ops.clusters import k_means
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import Gaussian, Identity, unit_rows

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
