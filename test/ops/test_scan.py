"""What has not arrived by a time arrives as if the race began then."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import check_law, matrix_pairs, plackett_luce, seeded, to_matrix

from torch_geometric_gsl.ops import scan as scan_module
from torch_geometric_gsl.ops.aggregate import drawn_graph
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.noise import STEP, race_states, random_words
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scan import is_repeated, scan_arrivals, stream_arrivals
from torch_geometric_gsl.ops.scores import Identity
from torch_geometric_gsl.ops.tail import draw_tail

RUNS = 20_000
DOUBLE = {'dtype': torch.float64}
# With two best candidates a race of one arrival proposes the six others.
SCORE = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.5, -0.7, 1.0, 0.2], **DOUBLE)
LATE = 0.7


def scan(pairs, arrived, num_arrivals, races=1, **options):
    """Find arrivals after a time, of races that have drawn four random words."""
    n = pairs.dst.size(0)
    state = race_states(torch.tensor(3), 0, n * races).view(n, races)
    late = torch.full((n, races), LATE, **DOUBLE).log()
    listed = torch.tensor(arrived).expand(n, races, len(arrived))
    return scan_arrivals(
        pairs, state, num_arrivals, num_words=4, horizon=late, arrived=listed, **options
    )


def loop_scan(score, state, num_arrivals, arrived):
    """Read the words of a race one by one: the next arrivals and their times."""
    ranked = sorted(range(len(score)), key=lambda j: -score[j])
    num_best = 2 * num_arrivals + len(arrived)
    best, remaining = ranked[:num_best], sorted(ranked[num_best:])
    position = 4

    def word():
        nonlocal position
        position += 1
        at = (int(state) + position * STEP + 2**63) % 2**64 - 2**63
        return int(random_words(torch.tensor(at))) % 2**64

    def wait():
        return -math.log((word() % 2**32 + 0.5) / 2**32)

    time = {j: LATE + wait() / math.exp(score[j]) for j in best}
    time = {j: at for j, at in time.items() if j not in arrived}
    total, clock = sum(math.exp(score[j]) for j in remaining), LATE
    while clock < sorted(time.values())[num_arrivals - 1]:
        level, sources = ((word() >> 12) + 0.5) / 2**52 * total, iter(remaining)
        source = next(sources)
        while level >= math.exp(score[source]):
            level -= math.exp(score[source])
            source = next(sources)
        clock += wait() / total
        if source not in arrived:
            time.setdefault(source, clock)
    order = sorted(time, key=time.get)[:num_arrivals]
    return order, [math.log(time[j]) for j in order]


@pytest.mark.parametrize('arrived', [[-1], [7, 150, -1, 31]])
@pytest.mark.parametrize(('m', 'scale'), [(1, 1.0), (4, 1.0), (4, 8.0), (25, 0.5)])
def test_against_loops(m, scale, arrived):
    score = scale * torch.rand(3, 200, **DOUBLE)
    if m == 25:  # Half of the candidates hardly ever arrive.
        score[:, 100:] -= 20
    arrivals = scan(matrix_pairs(score), arrived, m, races=2)
    states = race_states(torch.tensor(3), 0, 6).view(3, 2)
    for i in range(3):
        for k in range(2):
            order, times = loop_scan(score[i].tolist(), states[i, k], m, arrived)
            assert arrivals.source[i, k].tolist() == order
            assert arrivals.log_time[i, k].tolist() == pytest.approx(times)
            noise = [-t - float(score[i, j]) for j, t in zip(order, times, strict=True)]
            assert arrivals.noise[i, k].tolist() == pytest.approx(noise)


def test_proposals_go_on_until_enough_have_arrived(monkeypatch, spy):
    pairs = matrix_pairs(torch.rand(20, 300, **DOUBLE))
    expected = scan(pairs, [-1], 12, races=2)
    shapes = spy(scan_module, '_look_up', lambda _, rates, level: level.shape)
    monkeypatch.setattr(scan_module, '_EXTRA', 3 - 12)
    again = scan(pairs, [-1], 12, races=2)
    num_targets, num_proposals = zip(*shapes, strict=True)
    assert len(shapes) > 2
    assert num_proposals == tuple(2 * 3 * 2**i for i in range(len(shapes)))
    # Only the targets of which a race lacks arrivals go on.
    assert num_targets[0] == 20 > num_targets[-1]
    # Logarithms round in other ways at the end of another tensor.
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-15)


def test_the_law_of_the_next_arrival():
    # Source 2 has arrived, source 4 is excluded.
    pairs = matrix_pairs(SCORE.expand(RUNS, 8))
    pairs = pairs._replace(excluded=torch.full((RUNS,), 4))
    arrivals = scan(pairs, [2], 1)
    left = [0, 1, 3, 5, 6, 7]
    rate = SCORE[left].exp()
    counts = arrivals.source.flatten().bincount(minlength=8)
    assert counts[[2, 4]].tolist() == [0, 0]
    check_law(counts[left].tolist(), (rate / rate.sum()).tolist())
    # Exp(1), in ten parts of equal probability.
    wait = (arrivals.log_time.exp().flatten() - LATE) * rate.sum()
    tenth = (10 * (1 - (-wait).exp())).long().clamp(0, 9)
    check_law(tenth.bincount(minlength=10).tolist(), [0.1] * 10)


@pytest.mark.parametrize('scale', [1.0, 3.0])
def test_the_law_of_two_arrivals(scale):
    # Two of ten: six are proposed, and heavy ones again and again.
    score = scale * torch.cat([SCORE, SCORE[:2] + 0.1])
    outcomes, law = plackett_luce(score.tolist(), 2)
    state = race_states(torch.tensor(3), 0, RUNS).unsqueeze(1)
    arrivals = scan_arrivals(matrix_pairs(score.expand(RUNS, 10)), state, 2)
    count = Counter(map(tuple, arrivals.source[:, 0].tolist()))
    assert set(count) <= set(outcomes)
    check_law([count[outcome] for outcome in outcomes], law)


def test_arrivals_stand_in_their_order_and_end():
    arrivals = scan(matrix_pairs(SCORE[:5].expand(6, 5)), [0], 7)
    source, log_time = arrivals.source[:, 0], arrivals.log_time[:, 0]
    assert all(sorted(row[:4].tolist()) == [1, 2, 3, 4] for row in source)
    assert (log_time.diff(dim=1)[:, :3] > 0).all()
    assert log_time[:, :4].isfinite().all()
    assert (log_time[:, 4:] == torch.inf).all()
    assert (arrivals.noise[:, 0, 4:] == -torch.inf).all()


def test_given_candidates():
    sets = Candidates(
        torch.tensor([0, 1]), torch.tensor([1, 3]), torch.tensor([4, 0, 2, 3])
    )
    pairs = matrix_pairs(SCORE[:5].expand(2, 5))._replace(candidates=sets)
    arrivals = scan(pairs, [-1], 3)
    source, is_none = arrivals.source[:, 0], arrivals.log_time[:, 0] == torch.inf
    assert (source[0, 0], sorted(source[1].tolist())) == (4, [0, 2, 3])
    assert is_none.tolist() == [[False, True, True], [False] * 3]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=9))
def test_repeated(row):
    source, counts = (torch.tensor(x) for x in zip(*row, strict=True))
    seen, expected = set(), []
    for value, is_counted in row:
        expected.append(is_counted and value in seen)
        seen |= {value} if is_counted else set()
    assert is_repeated(source, counts).tolist() == expected


def sample(score, options, loop=True, **kwargs):
    """Draw the graph of the first arrivals, and of a tail if there is to be one."""
    pairs = matrix_pairs(score, loop=loop)
    count = min(options.num_arrivals, pairs.available)
    races = options.num_races
    arrivals = stream_arrivals(pairs, races, count, generator=seeded(), **kwargs)
    tail = draw_tail(pairs, options, generator=seeded(6))
    return drawn_graph(pairs, arrivals, tail, options)


@pytest.mark.parametrize('count', [10, 20])
def test_one_seed_gives_the_first_of_the_same_arrivals(count):
    # Of 40 candidates all have a time of their own: no other is proposed.
    pairs = matrix_pairs(torch.rand(5, 40, **DOUBLE))
    every = stream_arrivals(pairs, 3, 40, generator=seeded())
    assert every.source.shape == every.noise.shape == (5, 3, 40)
    value = (
        pairs.dst.unsqueeze(1).expand(5, 3, 40).gather(2, every.source) + every.noise
    )
    assert (value.diff(dim=-1) < 0).all()
    torch.testing.assert_close(every.horizon, -value[..., -1])
    arrivals = stream_arrivals(pairs, 3, count, generator=seeded())
    assert torch.equal(arrivals.source, every.source[..., :count])
    # All arrivals until the time of the last one are listed.
    torch.testing.assert_close(arrivals.horizon, -value[..., count - 1])


@pytest.mark.parametrize('hard', [False, True])
def test_distinct_draws_at_a_large_scale(hard):
    # The k largest perturbed scores, however far they lie below the largest.
    score = 1e3 * torch.stack([torch.randperm(60) for _ in range(6)]).double()
    graph = sample(score, DrawOptions(8, 0.25, 8, hard=hard, replace=False))
    present = to_matrix(graph.edge_index, torch.ones(48), 6, 60)
    assert torch.equal(present.bool(), score >= 52e3)
    if hard:
        assert graph.edge_weight.tolist() == [1 / 8] * 48


def test_small_budgets_give_small_blocks(meter, heights):
    n, k, count = 512, 4, 1
    sizes, arrivals = [], []
    # Whole numbers: products are exact, however many rows are multiplied at once.
    dst, src = torch.randint(-9, 9, (2, n, 2)).float()
    pairs = PairScores(dst, src, Identity())
    # Scores and rates of eight rows in float32, and five proposals of each draw.
    for budget in (8 * 4 * (4 * n + 128 * k * 5), 2**25):
        with meter() as allocated:
            bounded = pairs._replace(memory=budget)
            arrivals.append(stream_arrivals(bounded, k, count, generator=seeded()))
        sizes.append(allocated.largest)
    assert all(map(torch.equal, *(result[:3] for result in arrivals)))
    assert heights == [8] * 64 + [512]
    # The draws look into five blocks of 32 each; nothing has more entries.
    assert sizes == [8 * k * 5 * 32, n * k * 5 * 32]
