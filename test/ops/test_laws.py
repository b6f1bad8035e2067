r"""Four methods draw neighbours; each must follow the exact distribution.

A truncated race does so but for what it replaces by its mean, which is known.
"""

import math
from collections import Counter
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from oracles import (
    ERROR_RATE,
    check_law,
    matrix_pairs,
    plackett_luce,
    seeded,
    to_matrix,
)
from scipy.stats import norm

from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.listed import candidate_graph
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.stream import stream_arrivals
from torch_geometric_gsl.ops.tail import default_num_arrivals, draw_tail, lost_variance

RUNS = 20_000
DOUBLE = {'dtype': torch.float64}
SCORE = torch.tensor([0.3, -1.0, 1.2, 0.0])


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')  # It takes longer than the races.


def dense(options):
    k, tau, hard = options.k, options.tau, options.hard
    score = SCORE.expand(RUNS, 4)
    return relaxed_weights(score, k, tau, hard=hard, generator=seeded(0))


def stream(options):
    pairs = matrix_pairs(SCORE.expand(RUNS, 4))
    races, kept = options.num_races, options.num_arrivals
    arrivals = stream_arrivals(pairs, races, kept, generator=seeded(0))
    return to_matrix(*drawn_graph(pairs, arrivals, None, options), RUNS, 4)


def race(options):
    pairs = matrix_pairs(SCORE.expand(RUNS, 4))
    arrivals, _ = race_arrivals(pairs, options, 3, generator=seeded(0))
    return to_matrix(*drawn_graph(pairs, arrivals, None, options), RUNS, 4)


def listed(options):
    target = torch.arange(RUNS).repeat_interleave(4)
    edges = torch.stack([torch.arange(4).repeat(RUNS), target])
    score = SCORE.repeat(RUNS)
    graph = candidate_graph(score, edges, RUNS, options, generator=seeded(0))
    return to_matrix(*graph, RUNS, 4)


@pytest.mark.parametrize('kept', [2, 4])
@pytest.mark.parametrize('draw', [dense, stream, race, listed])
def test_hard_draws(draw, kept):
    # The joint law of two draws: the right probabilities, and independent.
    weight = draw(DrawOptions(2, 0.5, kept, hard=True))
    p = torch.softmax(SCORE.double(), 0).tolist()
    found = Counter(tuple(row) for row in (2 * weight).int().tolist())
    counts, law = [], []
    for i, j in combinations_with_replacement(range(4), 2):
        counts.append(found.pop(tuple((i == n) + (j == n) for n in range(4))))
        law.append(p[i] * p[j] * (1 if i == j else 2))
    assert not found
    check_law(counts, law)


@pytest.mark.parametrize('k', [1, 2, 3])
@pytest.mark.parametrize('draw', [stream, race, listed])
def test_distinct_draws(draw, k):
    # Soft weights fall in the order of the draws, so the order is tested, too.
    weight = draw(DrawOptions(k, 1.0, k, replace=False))
    assert (weight > 0).sum(dim=1).tolist() == [k] * RUNS
    order = weight.argsort(dim=1, descending=True)[:, :k]
    outcomes, law = plackett_luce(SCORE.tolist(), k)
    counts = Counter(tuple(row) for row in order.tolist())
    assert set(counts) == set(outcomes)
    check_law([counts[outcome] for outcome in outcomes], law)


RACES = 1000


def ratio_deviation(first, second):
    """Return the deviation of one race's share in the ratio of two means."""
    ratio = first.mean() / second.mean()
    return float((first - ratio * second).std() / second.mean())


def lost_by_race(tau, kept, n):
    """For races of equal scores what truncation takes, and what there is."""
    time = np.random.default_rng(7).exponential(size=(RACES, n))
    weight = np.sort(time ** (-1 / tau), axis=1)[:, ::-1]
    weight /= weight.sum(axis=1, keepdims=True)
    lost, whole = weight[:, kept:].var(axis=1) * (n - kept), weight.var(axis=1) * n
    return torch.from_numpy(lost), torch.from_numpy(whole)


def test_lost_variance_at_the_ends():
    assert lost_variance(5.0, 80, 80) == lost_variance(5.0, 80, 20) == 0
    assert lost_variance(2.0, 32, 10**8) == lost_variance(2.0, 32, 20_000) > 0


N, TARGETS = 1500, 1500


@cache
def squared_sums(tau, method, kept):
    """Squares of sums over draws of equal scores, for each target [TARGETS]."""
    h = torch.randn(N, 32, generator=seeded(0), **DOUBLE)
    h -= h.mean(dim=0)
    score = torch.zeros(TARGETS, N, **DOUBLE)
    if method == 'dense':
        return (
            (relaxed_weights(score, 1, tau, generator=seeded(1)) @ h).square().mean(1)
        )
    pairs = matrix_pairs(score)
    options = DrawOptions(1, tau, kept, num_tail=N if kept < N else 0)
    if method == 'race':
        arrivals, _ = race_arrivals(pairs, options, kept, generator=seeded(2))
    else:
        arrivals = stream_arrivals(pairs, 1, kept, generator=seeded(1))
    tail = draw_tail(pairs, options)
    return drawn_sum(h, pairs, arrivals, tail, options).square().mean(1)


@pytest.mark.parametrize('tau', [0.25, 1.0, 2.0, 5.0])
@pytest.mark.parametrize('method', ['stream', 'race', 'all arrivals'])
def test_the_variance_of_a_truncated_sum(method, tau):
    # Of all sources in the tail those that have arrived must have left it: at tau = 5
    # the variance was two and a half times that of the definition.
    kept, expected = default_num_arrivals(tau), 1.0
    if method == 'all arrivals':
        kept = N
    else:
        expected -= lost_variance(tau, kept, N)
    dense, found = squared_sums(tau, 'dense', N), squared_sums(tau, method, kept)
    ratio = float(found.mean() / dense.mean())
    deviation = ratio_deviation(found, dense) / math.sqrt(TARGETS)
    if kept < N:  # The expectation is simulated with 64 races.
        lost = ratio_deviation(*lost_by_race(tau, kept, N))
        deviation = math.hypot(deviation, lost / 8)
    assert abs(ratio - expected) < norm.isf(ERROR_RATE / 2) * deviation + 1e-9
