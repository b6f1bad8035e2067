import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import check_law, matrix_pairs, seeded

from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.sparse_rows import SparseRows
from torch_geometric_gsl.ops.tail import (
    Tail,
    added_variance,
    draw_tail,
    group_size,
    spread_sources,
    tail_scores,
    tail_size,
)

INF = math.inf
DOUBLE = {'dtype': torch.float64}


def tail_of(pairs, k, size, seed=5):
    options = DrawOptions(k, 0.5, num_arrivals=1, num_tail=size)
    return draw_tail(pairs, options, generator=seeded(seed))


def zeros(n, num_sources):
    return matrix_pairs(torch.zeros(n, num_sources, **DOUBLE))


def check_strata(sources, size, count):
    """Check that each source is from its own of `size` equal strata."""
    for position, source in enumerate(sources):
        stratum = position % size
        assert stratum * count // size <= source < (stratum + 1) * count / size


@given(st.integers(1, 60), st.data())
def test_spread_sources(num_sources, data):
    size = data.draw(st.integers(1, num_sources))
    repeats = data.draw(st.integers(1, 3))
    generator = seeded(data.draw(st.integers(0, 99)))
    position = torch.rand(repeats, size, dtype=torch.double, generator=generator)
    sources = spread_sources(position, num_sources).flatten().tolist()
    assert len(sources) == repeats * size
    check_strata(sources, size, num_sources)
    if size == num_sources:
        assert sources == list(range(num_sources)) * repeats


@given(st.integers(2, 60), st.data())
def test_groups_of_targets_share_a_tail(num_sources, data):
    size, n = data.draw(st.integers(1, num_sources)), data.draw(st.integers(1, 99))
    tail = tail_of(zeros(n, num_sources), 3, size)
    assert tail.source.dtype == torch.long
    # Other ones in each of the races, and in each group: the last may be smaller.
    assert tail.group == group_size(DrawOptions(3, 0.5, 1, num_tail=size))
    assert tail.source.shape == (math.ceil(n / tail.group), 3 * size)
    check_strata(tail.source.flatten().tolist(), size, num_sources)
    # Together they stand for all sources.
    assert tail.log_share.dtype == torch.float64
    assert size * math.exp(tail.log_share) == pytest.approx(num_sources)


def strata(num_sources, size):
    """For each stratum the probability of its sources: where they overlap with it."""
    width = num_sources / size
    return [
        {
            j: min(j + 1, (p + 1) * width) / width - max(j, p * width) / width
            for j in range(int(p * width), math.ceil((p + 1) * width))
        }
        for p in range(size)
    ]


def test_groups_are_uniform_and_independent():
    tail = tail_of(zeros(16 * 4000, 5), 2, 2)
    assert tail.source.shape == (4000, 4)
    even, odd = tail.source.view(2000, 2, 4).unbind(1)
    law = list(strata(5, 2)[0].values())
    joint = [a * b for a in law for b in law]
    # The first part in neighbouring groups: in the same race, and in different ones.
    for source in (odd[:, 0], odd[:, 2]):
        cell = even[:, 0] * 3 + source
        check_law(torch.bincount(cell, minlength=9).tolist(), joint)


# Of 12 sources: a graph of a batch, and rows that list sources of their own.
RANGES = Candidates(torch.tensor([0, 0, 5, 5, 5]), torch.tensor([5, 5, 7, 7, 7]))
LISTED = Candidates(
    torch.tensor([0, 3, 5, 5, 1]),
    torch.tensor([3, 2, 1, 4, 8]),
    torch.tensor([11, 3, 7, 2, 9, 10, 0, 1, 4]),
)


@pytest.mark.parametrize('size', [1, 3, 8])
@pytest.mark.parametrize('sets', [RANGES, LISTED], ids=['ranges', 'lists'])
def test_a_tail_among_candidates_of_ones_own(sets, size):
    pairs = zeros(5, 12)._replace(candidates=sets)
    for seed in range(20):
        tail = tail_of(pairs, 3, size, seed)
        assert tail.group == 1
        assert tail.source.shape == (5, 3 * size)
        for i in range(5):
            start, count = int(sets.start[i]), int(sets.size[i])
            candidates = list(range(start, start + count))
            if sets.source is not None:
                candidates = [int(sets.source[p]) for p in candidates]
            positions = [candidates.index(source) for source in tail.source[i].tolist()]
            check_strata(positions, size, count)
            share = tail.log_share.expand(5, 3, size)[i].exp().sum() / 3
            assert float(share) == pytest.approx(count)


def test_a_tail_of_ones_own_is_drawn_uniformly():
    n = 4000
    sets = Candidates(torch.zeros(n).long(), torch.full((n,), 5))
    tail = tail_of(zeros(n, 9)._replace(candidates=sets), 2, 2)
    drawn = tail.source.view(n, 2, 2)
    low, high = (list(law.values()) for law in strata(5, 2))
    # The parts of one race, and the races, are independent of each other.
    for pair, laws in (
        (drawn[:, 0] - torch.tensor([0, 2]), (low, high)),
        (drawn[..., 0], (low, low)),
    ):
        joint = [a * b for a in laws[0] for b in laws[1]]
        cell = pair[:, 0] * 3 + pair[:, 1]
        check_law(torch.bincount(cell, minlength=9).tolist(), joint)


def test_where_nothing_arrives_later():
    state = torch.get_rng_state()
    assert draw_tail(zeros(6, 6), DrawOptions(3, 0.5, num_arrivals=2)) is None
    assert torch.equal(state, torch.get_rng_state())


def as_sparse(x):
    """Rows whose entries are all stored."""
    n, width = x.shape
    columns, offsets = torch.arange(width).repeat(n), torch.arange(n + 1) * width
    return SparseRows(x.flatten(), Neighbours(columns, width, offsets))


@pytest.mark.parametrize('form', ['shared', 'own', 'sparse'])
def test_sources_that_have_arrived_leave_the_tail(form):
    # Three targets, of which two share a tail of two races with three sources each.
    score = torch.arange(18, **DOUBLE).view(3, 6)
    pairs, shared = matrix_pairs(score, loop=False), [[0, 3, 5, 1, 4, 4], [2, 2, 0] * 2]
    source = torch.tensor([shared[0], shared[0], shared[1]])
    tail = Tail(torch.tensor(shared), torch.zeros((), **DOUBLE), group=2)
    if form == 'sparse':
        pairs = pairs._replace(dst=as_sparse(score), src=as_sparse(pairs.src))
    if form == 'own':
        every = torch.zeros(3).long(), torch.full((3,), 6)
        pairs = pairs._replace(candidates=Candidates(*every))
        tail = tail._replace(source=source, group=1)
    arrived = torch.tensor([[[5, 1], [4, 3]], [[0, 2], [5, 5]], [[0, 4], [1, 3]]])
    noise = torch.zeros(3, 2, 2, **DOUBLE)
    # No arrivals: source 3 in the second race, 0 in the first, and a repeated one.
    noise[0, 1, 1] = noise[1, 0, 0] = noise[1, 1, 1] = -INF
    score = tail_scores(pairs, tail, Arrivals(arrived, noise, noise[..., 0]))
    assert score.tolist() == [
        # Each race has arrivals of its own, and a target is no source of its own.
        [[-INF, 3, -INF], [1, -INF, -INF]],
        [[6, 9, 11], [-INF, 10, 10]],
        [[-INF, -INF, -INF], [-INF, -INF, 12]],
    ]
    if form == 'shared':  # The embeddings may come gathered.
        arrivals = Arrivals(arrived, noise, noise[..., 0])
        again = tail_scores(pairs, tail, arrivals, pairs.src[tail.source])
        assert torch.equal(again, score)


@pytest.mark.parametrize(
    ('tau', 'num_arrivals', 'n'), [(0.5, 1, 40), (0.8, 12, 2000), (1.0, 16, 900)]
)
def test_the_least_tail_that_is_needed(tau, num_arrivals, n):
    # The r-th of n exponential times is about that quantile.
    weight = [math.log((n + 1) / (n + 1 - r)) ** (-1 / tau) for r in range(1, n + 1)]
    mean = sum(weight) / n
    share = sum(weight[num_arrivals:]) ** 2 / sum((w - mean) ** 2 for w in weight)
    for size in (1, 7, n):
        added = (1 / size - 1 / n) * share
        assert added_variance(tau, num_arrivals, size, n) == pytest.approx(added)
    # The least that adds no more than 2 %.
    size = tail_size(tau, num_arrivals, n)
    assert 2 * size <= n
    assert added_variance(tau, num_arrivals, size, n) <= 0.02
    assert added_variance(tau, num_arrivals, size - 1, n) > 0.02


@pytest.mark.parametrize(
    ('tau', 'num_arrivals', 'num_sources', 'size'),
    [
        (0.25, 4, 2000, 4),  # The least.
        (1.0, 16, 200, 80),  # As many as it takes.
        (1.2, 20, 200, 200),  # All where it takes more than half of them.
        (2.0, 32, 2000, 2000),
        (2.0, 32, 10_000, 4096),  # The limit.
    ],
)
def test_tail_size(tau, num_arrivals, num_sources, size):
    assert tail_size(tau, num_arrivals, num_sources) == size
