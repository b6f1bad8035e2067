import math
from itertools import product

import pytest
import torch
from oracles import seeded
from responses import OF_USERS, RESPONSES

from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import (
    PairScores,
    Sources,
    centre_of,
    distances_as_dots,
)
from torch_geometric_gsl.ops.pool import pool_softmax, pool_sum
from torch_geometric_gsl.ops.scores import Negative

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


def with_outlier(size, n=4096, channels=64):
    z = torch.randn(n, channels, generator=seeded())
    z[n // 3] = size
    return z, torch.arange(n) != n // 3


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.double])
@pytest.mark.parametrize('n', [0, 1, 2, 63, 64, 65, 127, 1000])
def test_the_centre_lies_within_the_rows(n, dtype):
    rows = torch.randn(n, 3, generator=seeded()).to(dtype).requires_grad_()
    centre = centre_of(rows)
    assert centre.shape == (3,)
    assert centre.dtype == dtype
    assert not centre.requires_grad
    for column, value in zip(rows.detach().double().T, centre.double(), strict=True):
        # It is one of the middle values, of a few rows at least near them.
        rank = int((column < value).sum())
        assert n == 0 or abs(rank - (n - 1) // 2) <= (0 if n <= 64 else 0.25 * n)


@pytest.mark.parametrize('value', [torch.nan, torch.inf, -torch.inf, 1e30])
def test_few_rows_do_not_move_the_centre(value):
    rows = torch.randn(500, 4, generator=seeded())
    rows[::3] = value
    assert bool((centre_of(rows).abs() < 1).all())
    rows[:] = value
    assert bool(centre_of(rows).isfinite().all())


# Errors are 4e-5 each; about the mean they were 5e-5, 4e-4, 4 and 5e4.
@pytest.mark.parametrize('size', [10.0, 1e4, 1e6, 1e8])
def test_an_outlier_leaves_the_distances_of_the_others(size):
    z, is_inlier = with_outlier(size)
    pairs = PairScores(z[:100], z[is_inlier], Negative(), 'squared_distance')
    dots = distances_as_dots(pairs, Sources.of(z))
    scores = dots._replace(src=dots.src[is_inlier]).rows().double()
    expected = torch.cdist(z[:100].double(), z[is_inlier].double()).square()
    # What is left is a number of each target.
    error = scores + expected
    error -= error.mean(dim=1, keepdim=True)
    assert float(error.abs().max()) < 2e-4


# Errors are 1e-6 each; about the mean they were 0.002 and 3.
@pytest.mark.parametrize('size', [1e4, 1e6])
def test_an_outlier_leaves_the_sums_of_the_others(size):
    z, is_inlier = with_outlier(size, n=200, channels=8)
    h, targets = torch.randn(200, 3, generator=seeded(1)), torch.arange(200)
    pairs = PairScores(z, z, Negative(), 'squared_distance', excluded=targets)
    double = pairs._replace(dst=z.double(), src=z.double())
    expected = double.rows().softmax(dim=1) @ h.double()
    error = (pool_sum(h, pairs, pool_softmax) - expected)[is_inlier]
    assert float(error.abs().max()) < 1e-5
