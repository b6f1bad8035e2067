import importlib.util
import math
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_geometric_gsl import knn_graph, radius_graph
from torch_geometric_gsl.nn import points
from torch_geometric_gsl.ops import points as blocks

ALL_PAIRS = {'_TREE_COLUMNS': 0}
# Every target is searched again, for ties.
ALL_OPEN = {'_SPARE': 0}


def sorted_edges(x_src, x_dst, ids_src, ids_dst, is_own):
    """All edges within clouds by the definition: the nearest first, ties by index."""
    edges, distances = [], []
    for i, (row, cloud) in enumerate(zip(x_dst.double(), ids_dst, strict=True)):
        distance = (row - x_src.double()).square().sum(dim=1)
        near = [j for j in range(len(x_src)) if ids_src[j] == cloud]
        near = [j for j in near if j != i or not is_own]
        near.sort(key=lambda j: (float(distance[j]), j))
        edges.append([(j, i) for j in near])
        distances.append(distance[near])
    return edges, distances


def as_edges(edges):
    flat = [edge for row in edges for edge in row]
    return torch.tensor(flat, dtype=torch.long).reshape(-1, 2).T


DISTRIBUTIONS = {
    'grid': lambda random, size: random.integers(0, 3, size),
    'normal': lambda random, size: random.normal(size=size),
    # A few values, in single precision.
    'far': lambda random, size: 1e4 + 0.002 * random.normal(size=size),
    'copies': lambda random, size: np.repeat(random.normal(size=size), 4, 0)[: size[0]],
    'tails': lambda random, size: np.exp(9 * random.normal(size=size)),
}


@st.composite
def inputs(draw):
    """Points with or without ties and duplicates; clouds, pairs."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    is_pair, has_batch = (draw(st.booleans()) for _ in range(2))
    name, width = draw(st.sampled_from([*DISTRIBUTIONS])), draw(st.integers(1, 3))

    def rows():
        size = draw(st.integers(0, 24)), width
        return torch.from_numpy(DISTRIBUTIONS[name](random, size)).float()

    x = (rows(), rows()) if is_pair else rows()
    pair = x if is_pair else (x, x)
    ids = [torch.zeros(len(each), dtype=torch.long) for each in pair]
    if has_batch:
        ids = [torch.from_numpy(np.sort(random.integers(0, 4, len(r)))) for r in pair]
        ids = ids if is_pair else [ids[0], ids[0]]
    batch = None if not has_batch else (tuple(ids) if is_pair else ids[0])
    return x, pair, batch, ids


@settings(max_examples=200, deadline=None)
@given(
    drawn=inputs(),
    k=st.integers(1, 8),
    loop=st.booleans(),
    memory_budget=st.sampled_from([2**25, 3000, 1]),
    changes=st.sampled_from([ALL_PAIRS, ALL_OPEN, {'_SPARE': 8}]),
)
def test_edges_equal_the_definition(drawn, k, loop, memory_budget, changes):
    with mock.patch.multiple(blocks, **changes):
        compare(*drawn, k, loop, memory_budget)


def compare(x, pair, batch, ids, k, loop, memory_budget):
    is_own = not loop and not isinstance(x, tuple)
    edges, distances = sorted_edges(*pair, *ids, is_own)
    options = {'loop': loop, 'memory_budget': memory_budget}
    expected = as_edges(row[:k] for row in edges)
    assert torch.equal(knn_graph(x, k, batch, **options), expected)
    inside = [
        [edge for edge, square in zip(row, squares, strict=True) if square <= 1]
        for row, squares in zip(edges, distances, strict=True)
    ]
    assert torch.equal(radius_graph(x, 1.0, batch, **options), as_edges(inside))
    limit = {'max_num_neighbors': k}
    expected = as_edges(row[:k] for row in inside)
    assert torch.equal(radius_graph(x, 1.0, batch, **options, **limit), expected)


@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('on_grid', [True, False])
def test_a_search_by_bounds_breaks_ties_as_well(monkeypatch, loop, on_grid):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    x = (2 * x).round() if on_grid else x
    expected = knn_graph(x, 5, loop=loop), knn_graph((x, x[::7]), 5)
    monkeypatch.setattr(blocks, '_TREE_COLUMNS', 0)
    monkeypatch.setattr(points, '_BOUNDED', 0)
    with mock.patch.object(points, '_search', wraps=points._search) as search:
        out = knn_graph(x, 5, loop=loop), knn_graph((x, x[::7]), 5)
    assert search.call_count == 2
    assert all(map(torch.equal, out, expected))


@pytest.mark.parametrize('width', [1, 2, 3])
@pytest.mark.parametrize('form', ['cube', 'grid', 'tails', 'equal', 'tiny'])
def test_a_tree_changes_no_edge(monkeypatch, width, form):
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(1100, width, generator=generator).double()
    scale = {'tails': x.square().exp(), 'grid': 2, 'equal': 0, 'tiny': 1e-161}
    x = x * scale.get(form, 1)
    x = x.round() if form in ('grid', 'equal') else x
    batch = torch.arange(1100) // 550

    def graphs():
        options = {'memory_budget': 2**20}
        yield knn_graph(x, 9, **options)
        yield knn_graph(x, 9, cosine=True, **options)
        yield knn_graph((x, x[::3]), 9, **options)
        yield knn_graph(x, 9, batch, loop=True, **options)
        yield knn_graph(x, 2000, **options)[:, ::1000]
        yield radius_graph(x, 0.2, max_num_neighbors=9, **options)
        yield radius_graph((x, x + 0.1), 0.2, (batch, batch), **options)

    with mock.patch.object(blocks, '_TREE_COLUMNS', 0):
        expected = [*graphs()]
    with mock.patch.object(blocks, '_TreeSearch', wraps=blocks._TreeSearch) as search:
        out = [*graphs()]
    assert search.call_count == 9
    assert all(map(torch.equal, out, expected))


def test_a_tree_leaves_out_most_pairs():
    x = torch.rand(4096, 3, generator=torch.Generator().manual_seed(0)).double()
    ids = torch.zeros(4096, dtype=torch.long)
    for k, radius in ((5, math.inf), (None, 0.01)):
        searched = blocks.cloud_blocks(x, x, ids, ids, k, radius, 2**25)
        count = sum(each.source.numel() * each.target.size(1) for each in searched)
        assert 4096 <= count < 0.01 * 4096**2


def test_edges_without_scipy(monkeypatch):
    x = torch.randn(1100, 3, generator=torch.Generator().manual_seed(0))
    expected = knn_graph(x, 4)
    monkeypatch.setitem(sys.modules, 'scipy.spatial', None)
    with pytest.raises(ImportError):
        knn_graph(x, 4)
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    assert torch.equal(knn_graph(x, 4), expected)


def test_near_points_far_from_the_origin_are_told_apart():
    x = torch.tensor([[0.0], [3e-4], [1e-4], [1e4]]).double() + 1e4
    assert knn_graph(x, 1)[0].tolist() == [2, 2, 0, 1]


@pytest.mark.parametrize('memory_budget', [2**25, 1])
def test_points_whose_squared_distances_overflow(memory_budget):
    options = {'memory_budget': memory_budget}
    x = torch.tensor([[0.0], [1e200], [-1e200]], dtype=torch.double)
    assert knn_graph(x, 1, **options)[0].tolist() == [1, 0, 0]
    assert torch.equal(radius_graph(x, 1e200, **options), knn_graph(x, 2))
    x = torch.arange(20.0, dtype=torch.double).unsqueeze(1) * 9e306
    assert knn_graph(x, 1, **options)[0].tolist() == [1, *[0] * 19]


def test_directions():
    x = torch.tensor([[1.0, 0.0], [0.1, 0.09], [0.0, 5.0], [9.0, 0.1]])
    assert knn_graph(x, 1, cosine=True)[0].tolist() == [3, 3, 1, 0]
    assert knn_graph(x, 1)[0].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_strides(dtype):
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).to(dtype).T
    expected = knn_graph(x.double().contiguous(), 4)
    assert torch.equal(knn_graph(x, 4), expected)
    assert not knn_graph(x.requires_grad_(), 4).requires_grad


@pytest.mark.parametrize(
    ('call', 'error', 'text'),
    [
        (lambda x: knn_graph(x, 0), ValueError, r"'k' must be at least 1 \(got 0\)"),
        (lambda x: knn_graph(x.numpy(), 1), TypeError, "'x' must be a torch.Tensor"),
        (lambda x: knn_graph(x[0], 1), ValueError, "'x' must have shape"),
        (lambda x: knn_graph(x / 0, 1), ValueError, "'x' contains NaN"),
        (lambda x: knn_graph(x.to_sparse_csr(), 1), ValueError, "'x' must be dense"),
        (lambda x: knn_graph(x, 1, loop=1), TypeError, "'loop' must be a bool"),
        (lambda x: knn_graph((x, x[:, :1]), 1), ValueError, "'x_dst'"),
        (lambda x: knn_graph(x, 1, torch.tensor([1, 0, 0])), ValueError, 'sorted'),
        (lambda x: radius_graph(x, -1.0), ValueError, r"'r' must be .*\(got -1.0\)"),
        (lambda x: knn_graph(x[:, :0], 1), ValueError, "'x' must have columns"),
        (lambda x: knn_graph(x, 1, memory_budget=0), ValueError, "'memory_budget'"),
        (
            lambda x: radius_graph(x, 1.0, max_num_neighbors=0),
            ValueError,
            r"'max_num_neighbors' must be at least 1 \(got 0\)",
        ),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call(torch.ones(3, 2))


class _Joined(torch.nn.Module):
    def __init__(self, join):
        super().__init__()
        self.join = join

    def forward(self, x, batch):
        return self.join(x, batch)


@pytest.mark.parametrize(
    ('join', 'text'),
    [
        (lambda x, batch: knn_graph(x, 1, batch), "'batch' must be None during"),
        (lambda x, batch: radius_graph(x, 1.0), "'radius_graph' cannot be exported"),
    ],
)
def test_programs_whose_number_of_edges_is_open_are_refused(join, text):
    batch = torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match=text):
        torch.export.export(_Joined(join), (torch.randn(4, 2), batch))


@pytest.mark.parametrize('num_places', [6000, 60])
def test_a_large_cloud_beside_many_small_ones_keeps_the_budget(meter, num_places):
    budget = 2**20
    batch = torch.cat([torch.arange(3000), torch.full((3000,), 3000)])
    x = torch.randn(num_places, 2)[torch.arange(6000) % num_places]
    with meter() as made:
        edges = knn_graph(x, 2, batch, memory_budget=budget)
    assert made.largest * 8 <= budget
    assert torch.equal(edges, 3000 + knn_graph(x[3000:], 2))
