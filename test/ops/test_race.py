"""The race, replayed: one seed gives the words that a plain loop can read, too."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torch_geometric_gsl.ops.noise import draw_seed, random_words, states
from torch_geometric_gsl.ops.race import num_proposals, propose, race_arrivals
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer, matrix_scorer

INF = float('inf')
CPU = torch.device('cpu')


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scores(n: int, num_sources: int, dtype: torch.dtype = torch.float64) -> Tensor:
    # From -1 to 0, so that about half of the proposals are accepted.
    return -torch.rand(n, num_sources, generator=seeded(1), dtype=dtype)


def loop_race(
    score: Tensor, scorer: Scorer, law: Law, proposals: int, bits: int
) -> list[list[tuple[list[tuple[int, float] | None], float]]]:
    """Arrivals (source, log time) of each race in order, and its log horizon."""
    n, num_sources = score.shape
    width = law.draws * proposals
    row, column = states(draw_seed(CPU, seeded()), slice(0, n), 2 * width)
    words = random_words(row.unsqueeze(1) + column).tolist()
    result = []
    for i in range(n):
        own = list(range(num_sources))
        if scorer.candidates is not None:
            start, size, listed = scorer.candidates
            own = list(range(int(start[i]), int(start[i] + size[i])))
            own = own if listed is None else [int(listed[p]) for p in own]
        if scorer.excluded is not None:
            own.remove(int(scorer.excluded[i]))
        races = []
        for k in range(law.draws):
            time, accepted, found = 0.0, [], set()
            for p in range(proposals):
                word = words[i][k * proposals + p] % 2**64
                gap = words[i][width + k * proposals + p] % 2**bits
                time -= math.log((gap + 0.5) / 2**bits)
                log_time = math.log(time) - math.log(len(own)) - scorer.upper
                j = own[((word >> 32) * len(own)) >> 32]
                level = (word % 2**bits + 0.5) / 2**bits
                last = p == proposals - 1 and not accepted
                sure = math.exp(float(score[i, j]) - scorer.upper)
                again = not law.replace and j in found
                if (level < sure and not again) or last:
                    accepted.append((j, log_time))
                    found.add(j)
            kept = accepted[: law.kept]
            horizon = kept[-1][1] if len(kept) == law.kept else log_time
            seen: set[int] = set()
            arrivals: list[tuple[int, float] | None] = []
            for j, log_time in kept:
                arrivals.append(None if j in seen else (j, log_time))
                seen.add(j)
            arrivals += [None] * (law.kept - len(kept))
            races.append((arrivals, horizon))
        result.append(races)
    return result


CASES: dict[str, dict[str, Any]] = {
    'all': {},
    'excluded': {'excluded': torch.tensor([0, 1, 2, 3])},
    # Hardly any proposal is accepted: places stay empty, the last one counts.
    'rare': {'upper': 4.0},
    'ranges': {
        'candidates': Candidates(torch.tensor([0, 0, 2, 5]), torch.tensor([2, 6, 1, 1]))
    },
    # The first, the last and an inner source of a range, and the only other one.
    'ranges without one': {
        'candidates': Candidates(*torch.tensor([[1, 2, 0, 4], [4, 4, 6, 2]])),
        'excluded': torch.tensor([1, 5, 3, 4]),
    },
    'lists': {
        'candidates': Candidates(
            torch.tensor([0, 2, 3, 3]),
            torch.tensor([2, 1, 4, 4]),
            torch.tensor([5, 1, 4, 0, 2, 3, 5]),
        )
    },
}


LENGTHS = [(12, 4), (60, 9), (3, 5), (1, 1)]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('replace', [True, False])
@pytest.mark.parametrize(('proposals', 'kept'), LENGTHS)
@pytest.mark.parametrize('case', CASES)
def test_against_loops(
    case: str, proposals: int, kept: int, replace: bool, dtype: torch.dtype
) -> None:
    score = scores(4, 6, dtype)
    scorer = matrix_scorer(score)._replace(**{'upper': 0.0, **CASES[case]})
    law = Law(3 if replace else kept, 0.5, replace=replace, num_arrivals=kept)
    found = race_arrivals(scorer, law, proposals, generator=seeded())
    assert found.source.shape == found.noise.shape == (4, law.draws, kept)
    assert found.horizon.shape == (4, law.draws)
    assert found.noise.dtype == found.horizon.dtype == dtype
    bits = 23 if dtype == torch.float32 else 32
    expected = loop_race(score, scorer, law, proposals, bits)
    for i in range(4):
        for k in range(law.draws):
            arrivals, horizon = expected[i][k]
            assert float(found.horizon[i, k]) == pytest.approx(horizon, abs=1e-5)
            for r, arrival in enumerate(arrivals):
                noise = float(found.noise[i, k, r])
                if arrival is None:
                    assert noise == -INF
                    continue
                source, log_time = arrival
                assert int(found.source[i, k, r]) == source
                value = -log_time - float(score[i, source])
                assert noise == pytest.approx(value, abs=1e-5)


def check_form(found: Arrivals, score: Tensor) -> None:
    """What holds of any race: order, horizon, each source once, one at least."""
    listed = found.noise > -INF
    assert bool(listed[..., 0].all())
    for i, k in torch.cartesian_prod(*map(torch.arange, listed.shape[:2])).tolist():
        source = found.source[i, k][listed[i, k]].tolist()
        assert len(set(source)) == len(source)
        noise = found.noise[i, k][listed[i, k]]
        log_time = -(noise + score[i, source])
        assert bool((log_time.diff() > 0).all())
        assert float(log_time[-1]) <= float(found.horizon[i, k]) + 1e-6


@given(st.integers(1, 7), st.integers(1, 40), st.integers(1, 9), st.integers(0, 999))
def test_form(num_sources: int, proposals: int, kept: int, seed: int) -> None:
    # One or two sources and many proposals: nearly all of them are repetitions.
    score = scores(3, num_sources)
    scorer = matrix_scorer(score)._replace(upper=0.5)
    law = Law(2, 0.5, num_arrivals=kept)
    found = race_arrivals(scorer, law, proposals, generator=seeded(seed))
    check_form(found, score)
    assert int(found.source.min()) >= 0
    assert int(found.source.max()) < num_sources


@given(st.integers(1, 10**6))
def test_any_memory_budget_gives_the_same_arrivals(budget: int) -> None:
    scorer = matrix_scorer(scores(9, 50))
    law, found = Law(2, 0.5, num_arrivals=4), []
    for size in (2**25, budget):
        args = {'generator': seeded(), 'memory_budget': size}
        found.append(race_arrivals(scorer, law, 20, **args))
    for whole, blocks in zip(*found, strict=True):
        assert torch.equal(whole, blocks)


def test_blocks_of_rows_are_as_large_as_the_budget_allows() -> None:
    score, seen = scores(9, 50), []
    plain = matrix_scorer(score)

    def compare(rows: slice, neighbours: Any) -> Tensor:
        seen.append(tuple(neighbours.source.shape))
        assert not torch.is_grad_enabled()
        return plain.compare(rows, neighbours)

    # 64 bytes a proposal, two draws of 20 proposals a row: four rows fit.
    scorer = plain._replace(compare=compare)
    race_arrivals(scorer, Law(2, 0.5), 20, memory_budget=4 * 64 * 40 + 63)
    assert seen == [(4, 40), (4, 40), (1, 40)]


def test_the_seed_alone_decides() -> None:
    scorer, law = matrix_scorer(scores(9, 50)), Law(2, 0.5, num_arrivals=4)
    first = race_arrivals(scorer, law, 20, generator=seeded(1))
    again = race_arrivals(scorer, law, 20, generator=seeded(1))
    assert all(map(torch.equal, first, again))
    torch.manual_seed(1)  # The global generator is one generator among others.
    assert all(map(torch.equal, first, race_arrivals(scorer, law, 20)))
    second = race_arrivals(scorer, law, 20)
    assert not torch.equal(first.noise, second.noise)
    state = torch.get_rng_state()
    race_arrivals(scorer, law, 20, generator=seeded(1))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize('upper', [0.0, 5.0])
def test_excluded_sources_are_never_drawn(upper: float) -> None:
    # With a high bound most races accept nothing, and one of what they proposed
    # counts all the same: a node must not be its own neighbour even then. Nor does it
    # stand in a place without an arrival: it is not proposed at all.
    for num_sources, replace in ((300, True), (3, True), (2, True), (3, False)):
        law = Law(3, 0.5, replace=replace, num_arrivals=4)
        own = torch.arange(300) % num_sources
        scorer = matrix_scorer(scores(300, num_sources))
        scorer = scorer._replace(upper=upper, excluded=own)
        found = race_arrivals(scorer, law, 6, generator=seeded())
        assert not bool((found.source == own.view(-1, 1, 1)).any())
        others = (found.source < own.view(-1, 1, 1)).unique().tolist()
        assert others == [False, True]  # On both sides of it.


@pytest.mark.parametrize('upper', [0.0, 5.0])
def test_excluded_sources_of_a_range_are_never_drawn(upper: float) -> None:
    # Graphs of 2 to 5 nodes, one after another.
    size = torch.tensor([2, 3, 4, 5]).repeat(20)
    start, count = torch.stack([size.cumsum(0) - size, size]).repeat_interleave(size, 1)
    own, n = torch.arange(len(start)), len(start)
    scorer = matrix_scorer(scores(n, n))._replace(
        upper=upper, excluded=own, candidates=Candidates(start, count)
    )
    for seed in range(3):
        found = race_arrivals(scorer, Law(3, 0.5), 6, generator=seeded(seed))
        source = found.source.flatten(1)
        assert not bool((source == own.unsqueeze(1)).any())
        assert bool((source >= start.unsqueeze(1)).all())
        assert bool((source < (start + count).unsqueeze(1)).all())


@pytest.mark.parametrize('k', [1, 5])
def test_distinct_neighbours_are_all_found(k: int) -> None:
    # Repetitions among the first k acceptances make room for later ones.
    law = Law(k, 0.5, replace=False)
    scorer = matrix_scorer(scores(400, 8 * k))._replace(upper=0.0)
    proposals = int(num_proposals(law, 1.0))
    found = race_arrivals(scorer, law, proposals, generator=seeded())
    assert found.source.shape == (400, 1, k)
    check_form(found, scorer.rows(slice(0, 400)))
    assert bool((found.noise > -INF).all())


def test_a_race_that_accepts_nothing_keeps_its_last_proposal() -> None:
    score = scores(5, 6)
    scorer, law = matrix_scorer(score)._replace(upper=60.0), Law(2, 0.5, num_arrivals=3)
    found = race_arrivals(scorer, law, 7, generator=seeded())
    assert (found.noise > -INF).tolist() == [[[True, False, False]] * 2] * 5
    row, column = states(draw_seed(CPU, seeded()), slice(0, 5), 28)
    source, _, gap = propose(row, column, 6, torch.float64)
    assert torch.equal(found.source[..., 0], source.view(5, 2, 7)[..., -1])
    log_time = gap.view(5, 2, 7).sum(-1).log() - math.log(6) - 60
    torch.testing.assert_close(found.horizon, log_time)
    own = score.gather(1, found.source[..., 0])
    torch.testing.assert_close(found.noise[..., 0], -log_time - own)


@pytest.mark.parametrize('proposals', [2**15 - 1, 2**15])
def test_ranks_do_not_overflow(proposals: int) -> None:
    # All are accepted: the last has the largest rank.
    scorer = matrix_scorer(torch.zeros(1, 40))
    law = Law(1, 0.5, num_arrivals=4)
    found, few = (
        race_arrivals(scorer, law, number, generator=seeded())
        for number in (proposals, 9)
    )
    assert torch.equal(found.source, few.source)
    assert torch.equal(found.noise > -INF, few.noise > -INF)


def test_no_targets() -> None:
    found = race_arrivals(matrix_scorer(torch.empty(0, 4)), Law(2, 0.5), 9)
    assert [part.shape[0] for part in found] == [0, 0, 0]


def test_propose_draws_what_the_words_say() -> None:
    row, column = states(torch.tensor(9), slice(3, 5), 8)
    words = random_words(row.unsqueeze(1) + column)
    source, level, gap = propose(row, column, 100, torch.float64)
    for i in range(2):
        for p in range(4):
            word, other = (int(w) % 2**64 for w in (words[i, p], words[i, p + 4]))
            assert int(source[i, p]) == (word >> 32) * 100 >> 32
            assert float(level[i, p]) == (word % 2**32 + 0.5) / 2**32
            expected = -math.log((other % 2**32 + 0.5) / 2**32)
            assert float(gap[i, p]) == pytest.approx(expected)
    sizes = torch.tensor([[1], [7]])
    some = propose(row, column, sizes, torch.float32)[0]
    assert some[0].tolist() == [0] * 4
    assert torch.equal(some[1], propose(row, column, 7, torch.float32)[0][1])


@pytest.mark.parametrize('m', [1, 4, 16, 30])
@pytest.mark.parametrize('spread', [0.0, 1.0, 5.0, 60.0])
def test_num_proposals(m: int, spread: float) -> None:
    law = Law(3, 0.5, num_arrivals=m)
    # One arrival at least is seen all the same: 8 acceptances of the rarest are due.
    expected = max(8, m + 2 * m**0.5) * math.exp(spread)
    assert 0 <= num_proposals(law, spread) - expected <= max(1, 1e-9 * expected)
    distinct = Law(m, 0.5, replace=False, num_arrivals=7)
    expected = (2 * m + 6 * m**0.5 + 12) * math.exp(spread)
    assert 0 <= num_proposals(distinct, spread) - expected <= max(1, 1e-9 * expected)


def test_num_proposals_of_some_laws() -> None:
    law = Law(5, 0.25, num_arrivals=4)
    assert num_proposals(law, 0.0) == 8
    assert num_proposals(law, 1.0) == 22
    assert num_proposals(law._replace(replace=False), 1.0) == 97
    assert isinstance(num_proposals(law, 50.0), int)
    assert num_proposals(law, 100.0) == num_proposals(law, INF) == INF
