from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torch_geometric_gsl.ops.draws import draw_tail, num_tail
from torch_geometric_gsl.ops.relax import Tail, group_size, tail_size
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer, matrix_scorer

DOUBLE = {'dtype': torch.float64}


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tail_of(scorer: Scorer, law: Law, seed: int = 5) -> Tail:
    tail = draw_tail(scorer, law, generator=seeded(seed))
    assert tail is not None
    return tail


def zeros(n: int, num_sources: int) -> Scorer:
    return matrix_scorer(torch.zeros(n, num_sources, **DOUBLE))


@given(st.integers(2, 60), st.data())
def test_one_source_of_each_part(num_sources: int, data: st.DataObject) -> None:
    size, n = data.draw(st.integers(1, num_sources)), data.draw(st.integers(1, 99))
    law = Law(3, 0.5, num_arrivals=1, num_tail=size)
    tail = tail_of(zeros(n, num_sources), law, data.draw(st.integers(0, 99)))
    assert tail.source.dtype == torch.long
    # Other ones in each of the races, and in each group: the last may be smaller.
    assert tail.group == group_size(size, 3)
    groups = math.ceil(n / tail.group)
    assert tail.source.shape == (groups, 3 * size)
    for place, source in enumerate(tail.source.flatten().tolist()):
        part = place % size
        assert part * num_sources // size <= source
        assert source < (part + 1) * num_sources / size
    # Together they stand for all sources.
    assert tail.log_share.dtype == torch.float64
    assert size * math.exp(tail.log_share) == pytest.approx(num_sources)
    if size == num_sources:
        assert tail.source.tolist() == groups * [3 * list(range(num_sources))]


def parts(num_sources: int, size: int) -> list[dict[int, float]]:
    """For each part the probability of its sources: where they overlap with it."""
    width = num_sources / size
    return [
        {
            j: min(j + 1, (p + 1) * width) / width - max(j, p * width) / width
            for j in range(int(p * width), math.ceil((p + 1) * width))
        }
        for p in range(size)
    ]


def test_parts_are_drawn_uniformly(check_law: Callable[..., None]) -> None:
    tail = tail_of(zeros(1, 10), Law(2000, 0.5, num_arrivals=1, num_tail=4))
    drawn = tail.source.view(2000, 4)
    for column, law_of in zip(drawn.t(), parts(10, 4), strict=True):
        counts = [int((column == j).sum()) for j in law_of]
        assert sum(counts) == 2000
        check_law(counts, list(law_of.values()))


def test_groups_are_independent(check_law: Callable[..., None]) -> None:
    tail = tail_of(zeros(16 * 4000, 5), Law(2, 0.5, num_arrivals=1, num_tail=2))
    assert tail.source.shape == (4000, 4)
    first, second = tail.source.view(2000, 2, 4).unbind(1)
    law_of = list(parts(5, 2)[0].values())
    joint = [a * b for a in law_of for b in law_of]
    # The first part in neighbouring groups: in the same race, and in different ones.
    for other in (second[:, 0], second[:, 2]):
        cell = first[:, 0] * 3 + other
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
def test_a_tail_among_candidates_of_ones_own(sets: Candidates, size: int) -> None:
    scorer = zeros(5, 12)._replace(candidates=sets)
    law = Law(3, 0.5, num_arrivals=1, num_tail=size)
    size = min(size, int(sets.size.max()))
    for seed in range(20):
        tail = tail_of(scorer, law, seed)
        assert tail.group == 1
        assert tail.source.shape == (5, 3 * size)
        for i in range(5):
            start, count = int(sets.start[i]), int(sets.size[i])
            own = list(range(start, start + count))
            if sets.listed is not None:
                own = [int(sets.listed[p]) for p in own]
            found = tail.source[i].tolist()
            assert set(found) <= set(own)
            for number, source in enumerate(found):
                part, place = number % size, own.index(source)
                assert part * count // size <= place < (part + 1) * count / size
            share = tail.log_share.expand(5, 3, size)[i].exp().sum() / 3
            assert float(share) == pytest.approx(count)


def test_a_tail_of_ones_own_is_drawn_uniformly(check_law: Callable[..., None]) -> None:
    n = 4000
    sets = Candidates(torch.zeros(n).long(), torch.full((n,), 5))
    scorer = zeros(n, 9)._replace(candidates=sets)
    tail = tail_of(scorer, Law(2, 0.5, num_arrivals=1, num_tail=2))
    drawn, exact = tail.source.view(n, 2, 2), parts(5, 2)
    for part, law_of in enumerate(exact):
        counts = [int((drawn[..., part] == j).sum()) for j in law_of]
        assert sum(counts) == 2 * n
        check_law(counts, list(law_of.values()))
    # The parts of one race, and the races, are independent of each other.
    first, second = (list(law_of.values()) for law_of in exact)
    for pair, laws in (
        (drawn[:, 0] - torch.tensor([0, 2]), (first, second)),
        (drawn[..., 0], (first, first)),
    ):
        joint = [a * b for a in laws[0] for b in laws[1]]
        cell = pair[:, 0] * 3 + pair[:, 1]
        check_law(torch.bincount(cell, minlength=9).tolist(), joint)


def test_a_tail_of_ones_own_is_small() -> None:
    sets = Candidates(torch.zeros(2).long(), torch.tensor([300, 200]))
    scorer = zeros(2, 300)._replace(candidates=sets)
    law = Law(3, 1.0, num_arrivals=4)
    assert tail_of(scorer, law).source.shape == (2, 3 * 64)
    assert tail_of(zeros(2, 300), law).source.shape == (1, 3 * 300)
    # As many as one asks for.
    law = law._replace(num_tail=100)
    assert tail_of(scorer, law).source.shape == (2, 3 * 100)


def test_a_tail_of_ones_own_depends_on_the_candidates_alone() -> None:
    # Sources of which no target makes use do not count, whatever else is in a batch.
    law = Law(3, 0.75, num_arrivals=12)
    for size in (100, 300):
        sets = Candidates(torch.tensor([0, 50]), torch.tensor([size, 90]))
        for num_sources in (400, 100_000):
            scorer = zeros(2, 1)._replace(candidates=sets, size=(2, num_sources))
            expected = tail_size(law, size, is_ragged=True)
            assert num_tail(scorer, law) == expected
            assert tail_of(scorer, law).source.shape == (2, 3 * expected)
    assert num_tail(scorer._replace(candidates=None), law) > expected


def test_where_nothing_arrives_later() -> None:
    for law, loop in (
        (Law(3, 0.5, num_arrivals=2, num_tail=0), True),
        (Law(3, 0.5, num_arrivals=6), True),
        (Law(3, 0.5, num_arrivals=5), False),  # All but the node itself.
        (Law(3, 0.5, replace=False, num_arrivals=1), True),
    ):
        state = torch.get_rng_state()
        scorer = matrix_scorer(torch.zeros(6, 6), loop=loop)
        assert draw_tail(scorer, law) is None
        assert num_tail(scorer, law) == 0
        assert torch.equal(state, torch.get_rng_state())
    scorer = matrix_scorer(torch.zeros(6, 6), loop=True)
    assert draw_tail(scorer, Law(3, 0.5, num_arrivals=5)) is not None


def test_the_generator_of_a_tail() -> None:
    law = Law(3, 0.5, num_arrivals=1, num_tail=9)
    own = zeros(5, 60)._replace(
        candidates=Candidates(torch.zeros(5).long(), torch.full((5,), 60))
    )
    for scorer in (zeros(5, 60), own):
        first = tail_of(scorer, law, 1).source
        assert torch.equal(first, tail_of(scorer, law, 1).source)
        assert not torch.equal(first, tail_of(scorer, law, 2).source)
        torch.manual_seed(1)  # The global generator is one generator among others.
        again = draw_tail(scorer, law)
        assert again is not None
        assert torch.equal(first, again.source)
