"""Intervals of the scores of a cell of targets with each source."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from responses import RESPONSES, comparison_of

from torch_geometric_gsl.ops.cells import cells_of, find_members, score_range
from torch_geometric_gsl.ops.clusters import group, k_means
from torch_geometric_gsl.ops.pair_scores import PairScores


def make(x, src, formula='gaussian', scale=1.0, spread=0.0):
    """Scores of one of the known responses, whose parameters may differ by target."""
    params = tuple(
        base + spread * torch.rand(x.size(0), generator=seeded(3))
        for base in (0.5, 0.3)[: len(RESPONSES[formula].params)]
    )
    comparison = comparison_of(formula)
    return PairScores(x, src, RESPONSES[formula].cls(*params), comparison, scale)


@given(
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from(list(RESPONSES)),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([-3.0, 0.1, 40.0]),
)
def test_bounds_hold(n, num_sources, seed, formula, spread, scale):
    generator = seeded(seed)
    middle = torch.randn(3, generator=generator)
    x = middle + 0.1 * torch.randn(n, 3, generator=generator)
    src = torch.randn(num_sources, 3, generator=generator)
    clusters = group(torch.randint(5, (num_sources,), generator=generator))
    pairs = make(x, src, formula, scale, spread)
    low, high = score_range(pairs, find_members(src, clusters))
    score = pairs.rows()[:, clusters.source]
    assert bool((low <= score).all())
    assert bool((score <= high).all())
    # They are intervals of the cell, not of all that there may be.
    assert float((high - low).sum()) >= float((score.amax(0) - score.amin(0)).sum())


def test_bounds_of_a_single_target_are_its_scores():
    x = torch.nn.functional.normalize(torch.randn(30, 6, generator=seeded()))
    pairs = make(x[:1], x)
    clusters = k_means(x, 4)
    low, high = score_range(pairs, find_members(x, clusters))
    score = pairs.rows()[0, clusters.source]
    torch.testing.assert_close(low, score, atol=2e-4, rtol=0)
    torch.testing.assert_close(high, score, atol=2e-4, rtol=0)


@given(st.integers(1, 400), st.integers(1, 20))
def test_each_target_stands_in_one_cell(n, count):
    x = torch.randn(n, 3, generator=seeded())
    clusters = k_means(x, min(n, count))
    found, few = cells_of(make(x, x, 'identity'), clusters)
    assert torch.cat([*found, few]).sort().values.tolist() == list(range(n))
    assert all(cell.numel() >= 8 for cell in found)
