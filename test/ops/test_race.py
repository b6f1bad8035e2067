"""The race, replayed: one seed gives the words that a plain loop can read, too."""

import math

import pytest
import torch
from oracles import matrix_pairs, seeded

from torch_geometric_gsl.ops import race_block, scan
from torch_geometric_gsl.ops._native import compiled
from torch_geometric_gsl.ops.clusters import group
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.envelope import make_envelope
from torch_geometric_gsl.ops.noise import STEP, draw_seed, race_states, random_words
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.race import race_arrivals, worst_case_proposals
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scan import stream_arrivals

INF = float('inf')
CPU = torch.device('cpu')


def scores(n, num_sources, dtype=torch.float64):
    # From -1 to 0, so that about half of the proposals are accepted.
    return -torch.rand(n, num_sources, generator=seeded(1), dtype=dtype)


def words_of(state, start, count):
    """Random words of a race, as unsigned numbers."""
    position = torch.arange(start + 1, start + count + 1)
    return [word % 2**64 for word in random_words(state + position * STEP).tolist()]


def candidates_of(pairs, i):
    candidates = list(range(pairs.src.size(0)))
    if pairs.candidates is not None:
        start, size, listed = pairs.candidates
        candidates = list(range(int(start[i]), int(start[i] + size[i])))
        candidates = (
            candidates if listed is None else [int(listed[p]) for p in candidates]
        )
    if pairs.excluded is not None:
        candidates.remove(int(pairs.excluded[i]))
    return candidates


def loop_race(score, pairs, options, num_proposals, bits):
    """Arrivals (source, log time) of each race in order, and its log horizon."""
    races = options.num_races
    states = race_states(draw_seed(CPU, seeded()), 0, len(score) * races)
    result = []
    for race, state in enumerate(states):
        i = race // races
        candidates = candidates_of(pairs, i)
        sure = {j: math.exp(float(score[i, j]) - pairs.upper) for j in candidates}
        total = math.log(len(candidates)) + pairs.upper
        clock, accepted, begin, width = 0.0, [], 0, num_proposals
        while len(accepted) < options.num_arrivals:
            if begin * race_block.SCAN_FACTOR >= len(candidates):
                accepted += scanned(
                    score[i], pairs, i, state, begin, clock, total, accepted
                )
                break
            words = words_of(state, 2 * begin, 2 * width)
            for word, second_word in zip(words[::2], words[1::2], strict=True):
                clock -= math.log((second_word % 2**bits + 0.5) / 2**bits)
                j = candidates[((word >> 32) * len(candidates)) >> 32]
                level = (word % 2**bits + 0.5) / 2**bits
                again = not options.replace and j in [a for a, _ in accepted]
                if level < sure[j] and not again:
                    accepted.append((j, math.log(clock) - total))
            begin, width = begin + width, 2 * width
        arrived = accepted[: options.num_arrivals]
        is_full = len(arrived) == options.num_arrivals
        arrivals = [
            None if j in [a for a, _ in arrived[:r]] else (j, time)
            for r, (j, time) in enumerate(arrived)
        ]
        arrivals += [None] * (options.num_arrivals - len(arrived))
        result.append((arrivals, arrived[-1][1] if is_full else INF))
    return [result[i : i + races] for i in range(0, len(result), races)]


def scanned(score, pairs, i, state, begin, clock, total, accepted):
    """What has not arrived by the last proposal arrives later."""
    ranked = sorted(candidates_of(pairs, i), key=lambda j: -float(score[j]))
    late = []
    words = words_of(state, 2 * begin, len(ranked))
    for j, word in zip(ranked, words, strict=True):
        if j not in [a for a, _ in accepted]:
            wait = -math.log((word % 2**32 + 0.5) / 2**32) / math.exp(float(score[j]))
            late.append((j, math.log(clock / math.exp(total) + wait)))
    return sorted(late, key=lambda arrival: arrival[1])


CASES = {
    'all': {},
    'excluded': {'excluded': torch.tensor([0, 1, 2, 3])},
    # Hardly any proposal is accepted: all candidates are looked at in the end.
    'rare': {'upper': 4.0},
    'rare without one': {'upper': 5.0, 'excluded': torch.tensor([5, 2, 0, 3])},
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


@pytest.fixture(params=[1, 8])
def share(request, monkeypatch):
    """How early races look at all candidates: 1 is after many rounds."""
    for module in (race_block, scan):  # The kernel reads that of `scan`.
        monkeypatch.setattr(module, 'SCAN_FACTOR', request.param)
    return request.param


@pytest.fixture
def definition(monkeypatch):
    """No kernel serves."""
    monkeypatch.setattr(compiled, 'load', lambda name: None)


@pytest.fixture(params=['C++', 'definition'])
def kernel(request):
    """The kernel where it serves, and none."""
    if request.param == 'definition':
        request.getfixturevalue('definition')


@pytest.mark.usefixtures('share', 'kernel')
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('replace', [True, False])
@pytest.mark.parametrize(('num_proposals', 'num_arrivals'), LENGTHS)
@pytest.mark.parametrize('case', CASES)
def test_against_loops(case, num_proposals, num_arrivals, replace, dtype):
    score = scores(4, 6, dtype)
    pairs = matrix_pairs(score)._replace(**{'upper': 0.0, **CASES[case]})
    options = DrawOptions(
        3 if replace else num_arrivals, 0.5, num_arrivals, replace=replace
    )
    drawn, _ = race_arrivals(pairs, options, num_proposals, generator=seeded())
    races = options.num_races
    assert races == (3 if replace else 1)
    assert drawn.source.shape == drawn.noise.shape == (4, races, num_arrivals)
    assert drawn.horizon.shape == (4, races)
    assert drawn.noise.dtype == drawn.horizon.dtype == dtype
    bits = 23 if dtype == torch.float32 else 32
    expected = loop_race(score, pairs, options, num_proposals, bits)
    for i in range(4):
        for k in range(races):
            arrivals, horizon = expected[i][k]
            assert float(drawn.horizon[i, k]) == pytest.approx(horizon, abs=1e-5)
            for r, arrival in enumerate(arrivals):
                noise = float(drawn.noise[i, k, r])
                if arrival is None:
                    assert noise == -INF
                    continue
                source, log_time = arrival
                assert int(drawn.source[i, k, r]) == source
                value = -log_time - float(score[i, source])
                assert noise == pytest.approx(value, abs=1e-5)


@pytest.fixture
def shapes(spy, definition):
    """The shapes of the blocks of proposals that are scored."""

    def note(_, pairs, rows, neighbours):
        assert not torch.is_grad_enabled()
        return tuple(neighbours.source.shape)

    return spy(PairScores, 'compare', note)


def test_blocks_of_rows_are_as_large_as_the_budget_allows(shapes):
    # Every proposal is accepted: all races end with their first round.
    pairs, args = matrix_pairs(torch.zeros(9, 50)), (DrawOptions(2, 0.5, 8), 20)
    # 64 bytes a proposal and a bound, two draws of 20 proposals a row: four rows fit.
    race_arrivals(pairs._replace(memory=4 * 64 * 41), *args)
    assert shapes == [(4, 40), (4, 40), (1, 40)]
    shapes.clear()
    # A row that is too large is cut into its races.
    race_arrivals(pairs._replace(memory=64 * 20), *args)
    assert shapes == [(1, 20)] * 18


def test_rounds_go_on_until_all_have_arrived(shapes):
    # Nothing is accepted, so rounds of 3, 6 and 12 end in a look at all 160, of which
    # they are an eighth.
    pairs = matrix_pairs(torch.zeros(2, 160))._replace(upper=60.0)
    arrivals, _ = race_arrivals(pairs, DrawOptions(1, 0.5, 4), 3, generator=seeded())
    assert shapes == [(2, 3), (2, 6), (2, 12)]
    assert arrivals.source.sort().values.diff().all()
    assert (arrivals.noise > -INF).all()
    assert arrivals.horizon.isfinite().all()


def test_no_round_is_a_look_at_all_candidates(shapes):
    pairs, options = matrix_pairs(scores(9, 50)), DrawOptions(2, 0.5, 4)
    arrivals, _ = race_arrivals(pairs, options, 0, generator=seeded())
    plain = stream_arrivals(pairs, 2, 4, generator=seeded())
    assert all(map(torch.equal, arrivals[:3], plain[:3]))
    assert not shapes  # No candidate is proposed.


@pytest.mark.parametrize('m', [1, 4, 16, 30])
@pytest.mark.parametrize('spread', [0.0, 1.0, 5.0, 39.9])
def test_worst_case_proposals(m, spread):
    # One arrival at least is seen all the same: 8 acceptances of the rarest are due.
    for needed, replace in (
        (max(8, m + 2 * m**0.5), True),
        (2 * m + 6 * m**0.5 + 12, False),
    ):
        expected = needed * math.exp(spread)
        length = worst_case_proposals(m, spread, replace=replace)
        assert isinstance(length, int)
        assert 0 <= length - expected <= max(1, 1e-9 * expected)
        assert worst_case_proposals(m, 40.0, replace=replace) == INF


def test_tails_of_a_block_fit_into_the_budget(spy, definition):
    seen = spy(race_block, 'propose', lambda _, level, word, *args: tuple(word.shape))
    pairs = matrix_pairs(scores(9, 150))
    envelope = make_envelope(pairs, group(torch.arange(150) % 3))
    # 64 bytes a source of the tail or a bound, two tails of 100 a row: four rows fit.
    pairs = pairs._replace(memory=4 * 64 * (200 + 3) + 63)
    args = pairs, DrawOptions(2, 0.5, 4, num_tail=100), 20, envelope
    _, tail = race_arrivals(*args)
    assert tail.source.shape == (9, 200)
    assert [size for size in seen if size[1] == 100] == [(8, 100), (8, 100), (2, 100)]


@pytest.mark.parametrize('scale', [40.0, 1000.0])
def test_rounding_is_within_the_bounds(scale):
    # 1 - t of equal rows is not exactly zero, times the scale.
    score = scale * torch.tensor([[-3e-7, 0.5, 1.0, 2.0 + 3e-7]]).expand(4, 4)
    pairs = matrix_pairs(score)._replace(lower=0.0, upper=2 * scale)
    race_arrivals(pairs, DrawOptions(3, 0.5, 9), 20, generator=seeded())


@pytest.mark.parametrize(
    ('bounds', 'shown'), [((0.0, 2.0), r'\[0, 2\]'), ((-1.0, 0.5), r'\[-1, 0.5\]')]
)
def test_scores_beyond_their_bounds_raise(bounds, shown):
    lower, upper = bounds
    score = torch.tensor([[-0.25, 0.25, 0.75]]).expand(4, 3)
    pairs = matrix_pairs(score)._replace(lower=lower, upper=upper)
    text = rf"'similarity' must lie between its 'bounds' \(got .* for {shown}, times "
    with pytest.raises(ValueError, match=text):
        race_arrivals(pairs, DrawOptions(3, 0.5, 9), 20, generator=seeded())
    pairs = matrix_pairs(score)._replace(lower=-0.25, upper=0.75)
    race_arrivals(pairs, DrawOptions(3, 0.5, 9), 20, generator=seeded())
