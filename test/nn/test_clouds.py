from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_geometric_gsl import knn_graph, radius_graph
from torch_geometric_gsl.nn import clouds
from torch_geometric_gsl.ops import boxes

SMALL_BOXES = {'_BOXED': 1, '_SIZE': 2, '_FIRST': 1, '_WIDE': 2}
ALL_PAIRS = {'_BOXED': 2**40}


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
    flat = [edge for some in edges for edge in some]
    return torch.tensor(flat, dtype=torch.long).reshape(-1, 2).T


@st.composite
def inputs(draw):
    """Points on a grid, with ties and duplicates, or anywhere; clouds, pairs."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    is_pair, has_batch, on_grid = (draw(st.booleans()) for _ in range(3))
    width = draw(st.integers(1, 3))

    def points():
        size = draw(st.integers(0, 24)), width
        rows = random.integers(0, 3, size) if on_grid else random.normal(size=size)
        return torch.from_numpy(rows).float()

    x = (points(), points()) if is_pair else points()
    pair = x if is_pair else (x, x)
    ids = [torch.zeros(len(rows), dtype=torch.long) for rows in pair]
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
    changes=st.sampled_from([ALL_PAIRS, SMALL_BOXES]),
)
def test_edges_equal_the_definition(drawn, k, loop, memory_budget, changes):
    with mock.patch.multiple(boxes, **changes):
        compare(*drawn, k, loop, memory_budget)


def compare(x, pair, batch, ids, k, loop, memory_budget):
    is_own = not loop and not isinstance(x, tuple)
    edges, distances = sorted_edges(*pair, *ids, is_own)
    options = {'loop': loop, 'memory_budget': memory_budget}
    wanted = as_edges(some[:k] for some in edges)
    assert torch.equal(knn_graph(x, k, batch, **options), wanted)
    inside = [
        [edge for edge, square in zip(some, squares, strict=True) if square <= 1]
        for some, squares in zip(edges, distances, strict=True)
    ]
    assert torch.equal(radius_graph(x, 1.0, batch, **options), as_edges(inside))
    most = {'max_num_neighbors': k}
    wanted = as_edges(some[:k] for some in inside)
    assert torch.equal(radius_graph(x, 1.0, batch, **options, **most), wanted)


@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('on_grid', [True, False])
def test_a_search_by_bounds_breaks_ties_as_well(monkeypatch, loop, on_grid):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    x = (2 * x).round() if on_grid else x
    wanted = knn_graph(x, 5, loop=loop)
    monkeypatch.setattr(clouds, '_BOUNDED', 0)
    assert torch.equal(knn_graph(x, 5, loop=loop), wanted)
    some = x[::7]
    monkeypatch.undo()
    wanted = knn_graph((x, some), 5)
    monkeypatch.setattr(clouds, '_BOUNDED', 0)
    assert torch.equal(knn_graph((x, some), 5), wanted)


@pytest.mark.parametrize('width', [1, 2, 3])
@pytest.mark.parametrize('kind', ['cube', 'grid', 'tails', 'equal'])
def test_boxes_change_no_edge(monkeypatch, width, kind):
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(1100, width, generator=generator)
    scale = {'cube': 1, 'grid': 2, 'tails': x.square().exp(), 'equal': 0}[kind]
    x = x * scale if kind in ('cube', 'tails') else (x * scale).round()
    batch = torch.arange(1100) // 550

    def graphs():
        yield knn_graph(x, 9)
        yield knn_graph((x, x[::3]), 9)
        yield knn_graph(x, 9, batch, loop=True)
        yield radius_graph(x, 0.2, max_num_neighbors=9)
        yield radius_graph((x, x + 0.1), 0.2, (batch, batch))

    monkeypatch.setattr(boxes, '_BOXED', 2**40)
    wanted = [*graphs()]
    monkeypatch.setattr(boxes, '_BOXED', 0)
    found = [*graphs()]
    assert all(map(torch.equal, found, wanted))


def test_boxes_leave_out_most_pairs():
    x = torch.rand(4096, 3, generator=torch.Generator().manual_seed(0)).double()
    near, inside = (
        boxes.box_blocks(x, x, boxes.Near(5)),
        boxes.box_blocks(x, x, boxes.Near(square=1e-4)),
    )
    counts = [
        sum(block.source.numel() * block.target.size(1) for block in blocks)
        for blocks in (near, inside)
    ]
    assert 0.0 < counts[0] < 0.1 * 4096**2
    assert 0.0 < counts[1] < 0.02 * 4096**2


def test_near_points_far_from_the_origin_are_told_apart():
    x = torch.tensor([[0.0], [3e-4], [1e-4], [1e4]]).double() + 1e4
    assert knn_graph(x, 1)[0].tolist() == [2, 2, 0, 1]


@pytest.mark.parametrize('changes', [ALL_PAIRS, SMALL_BOXES])
def test_points_whose_squared_distances_overflow(monkeypatch, changes):
    for name, value in changes.items():
        monkeypatch.setattr(boxes, name, value)
    x = torch.tensor([[0.0], [1e200], [-1e200]], dtype=torch.double)
    assert knn_graph(x, 1)[0].tolist() == [1, 0, 0]
    assert torch.equal(radius_graph(x, 1e200), knn_graph(x, 2))
    x = torch.arange(20.0, dtype=torch.double).unsqueeze(1) * 9e306
    assert knn_graph(x, 1)[0].tolist() == [1, *[0] * 19]


def test_directions():
    x = torch.tensor([[1.0, 0.0], [0.1, 0.09], [0.0, 5.0], [9.0, 0.1]])
    assert knn_graph(x, 1, cosine=True)[0].tolist() == [3, 3, 1, 0]
    assert knn_graph(x, 1)[0].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_types_and_strides(dtype):
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).to(dtype).T
    wanted = knn_graph(x.double().contiguous(), 4)
    assert torch.equal(knn_graph(x, 4), wanted)
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


def test_a_large_cloud_beside_many_small_ones_keeps_the_budget(meter):
    budget = 2**20
    batch = torch.cat([torch.arange(3000), torch.full((3000,), 3000)])
    x = torch.randn(6000, 2)
    with meter() as made:
        edges = knn_graph(x, 2, batch, memory_budget=budget)
    assert made.largest * 8 <= budget
    assert torch.equal(edges, 3000 + knn_graph(x[3000:], 2))
