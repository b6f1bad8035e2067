"""Clusters of sources, cells of targets, and the intervals that these give."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import seeded
from responses import RESPONSES, known_pairs

from torch_geometric_gsl.ops.cells import cells_of, find_members, score_range
from torch_geometric_gsl.ops.clusters import compared_range, enclose, group, k_means
from torch_geometric_gsl.ops.pair_scores import compare_all

COMPARISONS = ['dot', 'squared_distance']
# Embeddings by name: what they are made of, and how long the rows are.
LAYOUTS = ['normal', 'unit', 'equal', 'antipodal', 'zeros', 'far', 'huge', 'tiny']


def embeddings(layout, n, m, seed):
    x = torch.randn(n, m, generator=seeded(seed))
    if layout == 'unit':
        return torch.nn.functional.normalize(x)
    if layout == 'equal':
        return x[:1].expand(n, m).clone()
    if layout == 'antipodal':
        return x[:1] * (1 - 2 * (torch.arange(n) % 2)).unsqueeze(1)
    if layout == 'zeros':
        return x * (torch.arange(n) % 3 > 0).unsqueeze(1)
    if layout == 'far':
        return x + 1e4 * (torch.arange(n) == 0).unsqueeze(1)
    return x * {'normal': 1.0, 'huge': 1e12, 'tiny': 1e-12}[layout]


@given(
    st.sampled_from(COMPARISONS),
    st.sampled_from(LAYOUTS),
    st.sampled_from(LAYOUTS),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(0, 10**6),
)
def test_no_pair_lies_outside_of_its_interval(
    comparison, of_sources, of_targets, n, num_sources, num_clusters, m, seed
):
    src, dst = (
        embeddings(of_sources, num_sources, m, seed),
        embeddings(of_targets, n, m, seed),
    )
    clusters = group(
        torch.randint(num_clusters, (num_sources,), generator=seeded(seed))
    )
    low, high = compared_range(comparison, dst, enclose(comparison, src, clusters))
    cluster = torch.empty_like(clusters.source)
    cluster[clusters.source] = clusters.cluster
    # What float32 computes, and what it rounds.
    for u, v in ((dst, src), (dst.double(), src.double())):
        value = compare_all(comparison, u, v)
        assert (value >= low[:, cluster]).all()
        assert (value <= high[:, cluster]).all()


@pytest.mark.parametrize('comparison', COMPARISONS)
def test_clusters_of_one_are_known_up_to_rounding(comparison):
    x = embeddings('unit', 30, 8, 0)
    low, high = compared_range(
        comparison, x, enclose(comparison, x, group(torch.arange(30)))
    )
    assert (high - low).max() < 0.02
    assert (high - low).median() < 1e-2


def test_k_means_finds_what_is_apart():
    centre = 10 * torch.randn(6, 4, generator=seeded())
    label = torch.arange(60) % 6
    x = centre[label] + 0.1 * torch.randn(60, 4, generator=seeded(1))
    clusters = k_means(x, 20)
    pure = [
        set(label[members].tolist())
        for members in clusters.source.split(clusters.size.tolist())
    ]
    assert all(len(labels) == 1 for labels in pure)


@given(st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_clusters_are_a_partition(n, count, are_equal):
    x = torch.ones(n, 2) if are_equal else torch.randn(n, 2, generator=seeded())
    count = min(n, count)
    clusters = k_means(x, count, memory=100)
    assert clusters.source.sort().values.tolist() == list(range(n))
    assert (clusters.size > 0).all()
    assert clusters.offsets[[0, -1]].tolist() == [0, n]
    assert clusters.size.numel() <= count
    again = k_means(x, count)
    assert torch.equal(clusters.source, again.source)


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
    pairs = known_pairs(x, src, formula, scale, spread=spread)
    low, high = score_range(pairs, find_members(src, clusters))
    score = pairs.rows()[:, clusters.source]
    assert bool((low <= score).all())
    assert bool((score <= high).all())
    # They are intervals of the cell, not of all that there may be.
    assert float((high - low).sum()) >= float((score.amax(0) - score.amin(0)).sum())


def test_bounds_of_a_single_target_are_its_scores():
    x = torch.nn.functional.normalize(torch.randn(30, 6, generator=seeded()))
    pairs = known_pairs(x[:1], x, 'gaussian')
    clusters = k_means(x, 4)
    low, high = score_range(pairs, find_members(x, clusters))
    score = pairs.rows()[0, clusters.source]
    torch.testing.assert_close(low, score, atol=2e-4, rtol=0)
    torch.testing.assert_close(high, score, atol=2e-4, rtol=0)


@given(st.integers(1, 400), st.integers(1, 20))
def test_each_target_stands_in_one_cell(n, count):
    x = torch.randn(n, 3, generator=seeded())
    clusters = k_means(x, min(n, count))
    cells, few = cells_of(known_pairs(x, x, 'identity'), clusters)
    assert torch.cat([*cells, few]).sort().values.tolist() == list(range(n))
    assert all(cell.numel() >= 8 for cell in cells)
