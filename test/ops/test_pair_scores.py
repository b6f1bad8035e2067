import math
from itertools import product

import pytest
import torch
from responses import OF_USERS, RESPONSES

from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import PairScores

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
            of_target = [param[i] for param in params]
            result.append(pairs.scale * formula(value, *of_target))
    return torch.tensor(result).view(pairs.dst.size(0), pairs.src.size(0))


def check(score, expected):
    assert score.dtype == torch.float32
    torch.testing.assert_close(score, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('loop', [True, False])
@EVERY
def test_rows_pairs_and_edges(formula, comparison, loop):
    pairs = make(formula, comparison, loop=loop)
    expected, rows = loop_scores(pairs), slice(1, 4)
    source = torch.randint(0, 7, (3, 4))
    of_sources = expected[rows].gather(1, source)
    check(pairs.listed(source, rows), of_sources)
    value = pairs.compare(rows, Neighbours(source, 7))
    check(pairs.respond(rows, value), of_sources)
    edge_index = torch.stack([torch.randint(0, 7, (9,)), torch.randint(0, 5, (9,))])
    for budget in (1, 2**25):
        value = pairs._replace(memory=budget).compare_edges(edge_index)
        for score in (pairs.edges(edge_index), pairs.edges(edge_index, value)):
            check(score, expected[edge_index[1], edge_index[0]])
    if not loop:  # Rows alone leave the target itself out.
        expected[torch.arange(5), torch.arange(5)] = -INF
    check(pairs.rows(), expected)
    check(pairs.rows(rows), expected[rows])
    assert pairs.num_candidates == 7
    assert pairs.available == 7 - (not loop)
