"""Lists of the nearest, as heads."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from responses import RESPONSES

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.envelope import bound_scores, make_envelope
from torch_geometric_gsl.ops.nearest_lists import find_nearest
from torch_geometric_gsl.ops.pair_scores import PairScores

MONOTONIC = sorted(name for name, row in RESPONSES.items() if row.cls.monotonic)


def make_pairs(name, seed=0):
    row = RESPONSES[name]
    dst, src = (
        scores.unit_rows(torch.randn(n, 4, generator=seeded(seed + n)))
        for n in (40, 30)
    )
    # Each target has a width of its own.
    params = (p * (0.5 + torch.rand(40, generator=seeded(2))) for p in row.params)
    return PairScores(dst, src, row.cls(*params), row.comparison, 5.0)


@given(st.sampled_from(MONOTONIC), st.integers(1, 29), st.integers(0, 10**6))
def test_no_score_beyond_the_head_exceeds_its_bound(name, size, seed):
    pairs = make_pairs(name, seed=seed)._replace(upper=math.inf)
    head = find_nearest(pairs, size, memory_budget=1000)
    assert (head.source.diff(dim=1) > 0).all()
    bound = bound_scores(pairs, make_envelope(pairs, None, head), slice(0, 40))
    rest = pairs.rows().scatter(1, head.source, -math.inf)
    assert (rest <= bound).all()
    # It is the best of the rest, up to rounding.
    assert torch.allclose(rest.amax(dim=1), bound[:, 0], atol=1e-2)


@pytest.mark.parametrize('name', MONOTONIC)
def test_the_best_by_sorting(name):
    pairs = make_pairs(name)
    expected = pairs.rows().argsort(dim=1, descending=True)[:, :7].sort().values
    assert torch.equal(find_nearest(pairs, 7, memory_budget=500).source, expected)
