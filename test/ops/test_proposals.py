import torch
from oracles import check_law
from scipy import stats

from torch_geometric_gsl.ops.noise import STEP, random_words
from torch_geometric_gsl.ops.proposals import draw_kinds, draw_uniform, propose

NUM_RACES, NUM_PROPOSALS = 4, 5000
STATE = random_words(torch.arange(NUM_RACES))
PLACE = 2 * torch.arange(NUM_PROPOSALS) + 1
COLUMN = torch.stack([PLACE, PLACE + 1]).unsqueeze(1) * STEP


def test_uniform_draws_of_each_race():
    count = torch.tensor([[2], [3], [7], [500]])
    place, level, gap = draw_uniform(STATE, COLUMN, count, torch.float64)
    for row in range(NUM_RACES):
        size = int(count[row])
        check_law(place[row].bincount(minlength=size).tolist(), [1 / size] * size)
        assert stats.kstest(level[row], 'uniform').pvalue > 1e-3
        assert stats.kstest(gap[row], 'expon').pvalue > 1e-3
    only, _, _ = draw_uniform(STATE, COLUMN, torch.ones_like(count), torch.float64)
    assert (only == 0).all()
    # What is proposed says nothing of when.
    assert abs(stats.spearmanr(level.flatten(), gap.flatten()).statistic) < 0.03


def test_a_draw_knows_only_its_own_words():
    count = torch.full((NUM_RACES, 1), 9)
    every = draw_uniform(STATE, COLUMN, count, torch.float32)
    some = draw_uniform(STATE[2:3], COLUMN[..., 7:9], count[2:3], torch.float32)
    for found, expected in zip(some, every, strict=True):
        assert torch.equal(found, expected[2:3, 7:9])


# Two clusters, of the sources 3, 0 and of 2, 1, 4, and a head of one source each: half
# of the rates belong to the first cluster, a fourth to the second, one to the head.
SHARE = torch.tensor([[0, 2**30, 2**31 - 1]]).int().expand(2, 3).contiguous()
BOUND = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
SOURCE, OFFSETS = torch.tensor([3, 0, 2, 1, 4]), torch.tensor([0, 2, 5])
HEAD = torch.tensor([[1], [3]])


def test_proposed_sources_have_the_bound_of_their_kind():
    kind = torch.tensor([[-(2**31), -1, 0, 2**30 - 1, 2**30, 2**31 - 2]] * 2).int()
    word = random_words(torch.arange(12).view(2, 6))
    args = SHARE, BOUND, SOURCE, OFFSETS, HEAD
    source, bound, is_void = propose(kind, word, torch.tensor([0, 1]), *args)
    assert bound.tolist() == [[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6]]
    assert source[:, 4:].tolist() == [[1, 1], [3, 3]]
    assert set(source[:, :2].flatten().tolist()) <= {0, 3}
    assert set(source[:, 2:4].flatten().tolist()) <= {1, 2, 4}
    # A member of the head is void where a cluster proposes it.
    void = (source == HEAD) & (torch.arange(6) < 4)
    assert torch.equal(is_void, void)
    # Without a head there are two kinds, and nothing is void.
    args = SHARE[:, 1:].contiguous(), BOUND[:, :2], SOURCE, OFFSETS, None
    _, bound, is_void = propose(kind[:1], word[:1], torch.tensor([1]), *args)
    assert bound.tolist() == [[4, 4, 4, 4, 5, 5]]
    assert is_void is None


def test_kinds_are_drawn_by_their_shares():
    row = torch.arange(NUM_RACES) % 2
    args = SHARE, BOUND, SOURCE, OFFSETS, HEAD
    found = draw_kinds(STATE, COLUMN, torch.float64, row, *args)
    _, bound, _, level, gap = found
    for i in range(NUM_RACES):
        counts = [int((bound[i] == limit).sum()) for limit in BOUND[row[i]]]
        check_law(counts, [0.5, 0.25, 0.25])
        assert stats.kstest(level[i], 'uniform').pvalue > 1e-3
        assert stats.kstest(gap[i], 'expon').pvalue > 1e-3
