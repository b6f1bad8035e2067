"""Lists of the nearest, as heads."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.envelope import bound_scores, make_envelope
from torch_geometric_gsl.ops.nearest_lists import LARGEST, find_nearest
from torch_geometric_gsl.ops.pair_scores import PairScores

FUNCTIONS = {
    'identity': (scores.identity, 'dot', ()),
    'difference': (scores.difference, 'dot', ()),
    'heat_kernel': (scores.heat_kernel, 'squared_distance', (0.5,)),
    'negative': (scores.negative, 'squared_distance', ()),
}


def make_pairs(name, seed=0):
    function, comparison, params = FUNCTIONS[name]
    dst, src = (
        scores.unit_rows(torch.randn(n, 4, generator=seeded(seed + n)))
        for n in (40, 30)
    )
    # Each target has a width of its own.
    params = tuple(p * (0.5 + torch.rand(40, generator=seeded(2))) for p in params)
    return PairScores(dst, src, scores.Response(function, params), comparison, 5.0)


@given(st.sampled_from(sorted(FUNCTIONS)), st.integers(1, 29), st.integers(0, 10**6))
def test_no_score_beyond_the_head_exceeds_its_bound(name, size, seed):
    pairs = make_pairs(name, seed=seed)._replace(upper=math.inf)
    head = find_nearest(pairs, size, memory_budget=1000)
    assert (head.source.diff(dim=1) > 0).all()
    bound = bound_scores(pairs, make_envelope(pairs, None, head), slice(0, 40))
    rest = pairs.rows().scatter(1, head.source, -math.inf)
    assert (rest <= bound).all()
    # It is the best of the rest, up to rounding.
    assert torch.allclose(rest.amax(dim=1), bound[:, 0], atol=1e-2)


@pytest.mark.parametrize('name', sorted(FUNCTIONS))
def test_the_best_by_sorting(name):
    pairs = make_pairs(name)
    assert pairs.response.function in LARGEST
    expected = pairs.rows().argsort(dim=1, descending=True)[:, :7].sort().values
    assert torch.equal(find_nearest(pairs, 7, memory_budget=500).source, expected)
