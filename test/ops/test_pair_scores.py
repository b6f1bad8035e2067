import math
from itertools import product

import pytest
import torch
from responses import OF_USERS, RESPONSES

from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_groups, exclude

INF = math.inf
COMPARISONS = ('dot', 'squared_distance')
ROWS = {**RESPONSES, **OF_USERS}
EVERY = pytest.mark.parametrize(
    ('formula', 'comparison'), list(product(ROWS, COMPARISONS))
)


def make(formula='gaussian', comparison='dot', loop=True):
    """Scores of which each target has parameters of its own."""
    dst, src = torch.randn(5, 3), torch.randn(7, 3)
    row = ROWS[formula]
    response = row.cls(*(torch.rand(len(row.params), 5) + 0.1))
    excluded = None if loop else torch.arange(5)
    return PairScores(dst, src, response, comparison, scale=2.5, excluded=excluded)


def loop_scores(pairs):
    """All scores, number by number; nothing is excluded."""
    params = [param.tolist() for param in pairs.response.params]
    (formula,) = (
        row.formula for row in ROWS.values() if row.cls is type(pairs.response)
    )
    result = []
    for i, u in enumerate(pairs.dst.tolist()):
        for v in pairs.src.tolist():
            value = sum(a * b for a, b in zip(u, v, strict=True))
            if pairs.comparison == 'squared_distance':
                value = math.dist(u, v) ** 2
            own = [param[i] for param in params]
            result.append(pairs.scale * formula(value, *own))
    return torch.tensor(result).view(pairs.dst.size(0), pairs.src.size(0))


def check(found, expected):
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('loop', [True, False])
@EVERY
def test_rows_pairs_and_edges(formula, comparison, loop):
    pairs = make(formula, comparison, loop=loop)
    expected, rows = loop_scores(pairs), slice(1, 4)
    source = torch.randint(0, 7, (3, 4))
    listed = Neighbours(source, 7)
    own = expected[rows].gather(1, source)
    check(pairs.pairs(rows, listed), own)
    check(pairs.respond(rows, pairs.compare(rows, listed)), own)
    edge_index = torch.stack([torch.randint(0, 7, (9,)), torch.randint(0, 5, (9,))])
    for budget in (1, 2**25):
        value = pairs._replace(memory=budget).compare_edges(edge_index)
        for found in (pairs.edges(edge_index), pairs.edges(edge_index, value)):
            check(found, expected[edge_index[1], edge_index[0]])
    if not loop:  # Rows alone leave the target itself out.
        expected[torch.arange(5), torch.arange(5)] = -INF
    check(pairs.rows(), expected)
    check(pairs.rows(rows), expected[rows])
    assert pairs.most == 7
    assert pairs.available == 7 - (not loop)


@pytest.mark.parametrize('formula', ROWS)
def test_weights(formula):
    pairs, tau = make(formula, ROWS[formula].comparison)._replace(upper=3.0), 0.7
    expected = ((loop_scores(pairs) - 3) / tau).exp()
    found = pairs.weights(slice(1, 4), slice(2, 7), tau)
    check(found, expected[1:4, 2:7])


@EVERY
def test_take_split_and_select(formula, comparison):
    pairs = make(formula, comparison, loop=False)
    whole = pairs.rows()
    target = torch.tensor([3, 0, 3])
    sets = Candidates(torch.tensor([0, 1, 2]), torch.tensor([2, 6, 3]))
    taken = pairs.take(target, sets)
    torch.testing.assert_close(taken.rows(), whole[target])
    assert taken.candidates is sets
    assert (taken.most, taken.available) == (6, 5)
    assert make(formula).take(target, sets).excluded is None

    blocks = pairs.split([2, 1, 2])
    for block, rows in zip(blocks, whole.split([2, 1, 2]), strict=True):
        torch.testing.assert_close(block.rows(), rows)
    assert [part.excluded for part in make(formula).split([2, 3])] == [None, None]

    # Some of the excluded sources are not among those that are left.
    source = torch.tensor([6, 2, 0])
    torch.testing.assert_close(pairs.select(source).rows(), whole[:, source])
    some = make(formula).select(source)
    assert some.excluded is None
    assert some.src.size(0) == 3


@pytest.mark.parametrize('group', [1, 2, 3, 16])
@pytest.mark.parametrize('comparison', COMPARISONS)
def test_compare_groups(comparison, group):
    groups = math.ceil(7 / group)
    dst, src = torch.randn(7, 4), torch.randn(groups, 5, 4)
    found = compare_groups(comparison, dst, src, group)
    groups = src[torch.arange(7) // group]
    expected = (dst.unsqueeze(1) * groups).sum(2)
    if comparison == 'squared_distance':
        expected = (dst.unsqueeze(1) - groups).square().sum(2)
    torch.testing.assert_close(found, expected)


def test_exclude():
    # Rows 2 and 3 of a matrix with five sources, without a change in place.
    block = torch.ones(2, 5)
    found = exclude(block, torch.tensor([2, 3]))
    assert found.isinf().nonzero().tolist() == [[0, 2], [1, 3]]
    assert bool((found <= 1).all())
    assert torch.equal(block, torch.ones(2, 5))
    assert not exclude(block, torch.tensor([5, -1])).isinf().any()
    listed = exclude(block[:, :3], torch.tensor([4, 0]), torch.tensor([[4, 3, 4]] * 2))
    assert listed.isinf().nonzero().tolist() == [[0, 0], [0, 2]]
