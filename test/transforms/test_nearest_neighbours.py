import math

import pytest
import torch
from oracles import as_layout, inner, unit

from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import is_sorted_by_target

LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def features(n=12, seed=0, **kwargs):
    """Rows of some zeros, the second of zeros alone."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    x = x * (torch.rand(n, 7, generator=generator) < 0.6)
    x[1] = 0
    return x.to(**kwargs)


def lists(graph, n):
    neighbours = [{} for _ in range(n)]
    for source, target, weight in zip(
        *graph.edge_index.tolist(), graph.edge_weight.tolist(), strict=True
    ):
        neighbours[target][source] = weight
    return neighbours


@LAYOUTS
@pytest.mark.parametrize('similarity', ['linear', 'heat_kernel'])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('memory_budget', [1, 2**25])
def test_against_a_plain_loop(layout, similarity, loop, memory_budget):
    x, n, k = features(), 12, 4
    options = {'loop': loop, 'memory_budget': memory_budget}
    graph = nearest_neighbours(
        as_layout(x, layout), k, similarity=similarity, **options
    )
    assert is_sorted_by_target(graph.edge_index)
    rows = [unit(row) for row in x.tolist()]
    for i, near in enumerate(lists(graph, n)):
        cosines = {j: inner(rows[i], rows[j]) for j in range(n) if loop or j != i}
        assert len(near) == k
        # Where cosines are equal, either node will do.
        best = sorted(cosines.values(), reverse=True)[:k]
        assert sorted((cosines[j] for j in near), reverse=True) == pytest.approx(best)
        for j, weight in near.items():
            expected = cosines[j]
            if similarity == 'heat_kernel':
                distance = math.dist(rows[i], rows[j])
                expected = math.exp(-(distance**2) / 2)
            assert weight == pytest.approx(expected, abs=1e-7)


@LAYOUTS
def test_batch(layout):
    # A graph with too few nodes, one with a lone node, and names with a gap.
    sizes, names = [5, 3, 1, 9], [0, 2, 3, 7]
    x = features(sum(sizes)) + 0.1
    batch = torch.tensor(names).repeat_interleave(torch.tensor(sizes))
    graph = nearest_neighbours(as_layout(x, layout), 4, batch)
    start, expected, weights = 0, [], []
    for size in sizes:
        if size > 1:
            single = nearest_neighbours(x[start : start + size], min(4, size - 1))
            expected.append(single.edge_index + start)
            weights.append(single.edge_weight)
        start += size
    assert torch.equal(graph.edge_index, torch.cat(expected, dim=1))
    torch.testing.assert_close(graph.edge_weight, torch.cat(weights))
    for ids in (batch[:0], None):
        empty = nearest_neighbours(as_layout(x[:0], layout), 4, ids)
        assert empty.edge_index.shape == (2, 0)
        assert empty.edge_weight.shape == (0,)


@LAYOUTS
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(layout, dtype):
    x = features(30).to(dtype) + 0.5
    graph = nearest_neighbours(as_layout(x, layout), 3)
    expected = nearest_neighbours(x.double(), 3)
    assert graph.edge_weight.dtype == dtype
    assert torch.equal(graph.edge_index, expected.edge_index)
    tolerance = torch.finfo(dtype).eps
    torch.testing.assert_close(
        graph.edge_weight.double(), expected.edge_weight, rtol=tolerance, atol=tolerance
    )


@LAYOUTS
def test_duplicates_and_zeros(layout):
    x = torch.randn(4, 5).repeat_interleave(3, dim=0)
    graph = nearest_neighbours(as_layout(x, layout), 2, similarity='heat_kernel')
    for i, near in enumerate(lists(graph, 12)):
        assert {*near, i} == {i // 3 * 3 + j for j in range(3)}
    # Cosines are rounded, but nobody is nearer than a twin.
    x = torch.rand(200, 30).repeat(2, 1)
    heat = nearest_neighbours(as_layout(x, layout), 1, similarity='heat_kernel')
    assert float(heat.edge_weight.max()) <= 1
    zeros = as_layout(torch.zeros(4, 3), layout)
    assert nearest_neighbours(zeros, 2).edge_weight.tolist() == [0.0] * 8
    heat = nearest_neighbours(zeros, 2, similarity='heat_kernel')
    assert heat.edge_weight.tolist() == [1.0] * 8


@LAYOUTS
def test_smallest_inputs(layout):
    row = as_layout(torch.ones(1, 3), layout)
    graph = nearest_neighbours(row, 1, loop=True)
    assert graph.edge_index.tolist() == [[0], [0]]
    assert not graph.edge_weight.requires_grad
    # More neighbours than there are others are all others, as in a batch.
    for k in (4, 5, 100):
        everyone = nearest_neighbours(as_layout(features(5), layout), k)
        assert everyone.edge_index.size(1) == 20


@LAYOUTS
@pytest.mark.parametrize(
    ('k', 'kwargs', 'match'),
    [
        (0, {}, r"'k' must be at least 1 \(got 0\)"),
        (3, {'similarity': 'cosine'}, r"'similarity' must be one of \['linear', 'heat"),
        (3, {'batch': torch.ones(12).long().cumsum(0).flip(0)}, "'batch' must be sor"),
    ],
)
def test_errors(layout, k, kwargs, match):
    with pytest.raises(ValueError, match=match):
        nearest_neighbours(as_layout(features(), layout), k, **kwargs)
