"""Graphs of the features, of the nearest and sampled ones."""

import math

import numpy as np
import pytest
import torch
from oracles import as_layout, inner, unit
from torch_geometric.data import Batch, Data
from torch_geometric.utils import degree, to_dense_adj

from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import (
    GaussianSimilarity,
    HeatKernelSimilarity,
    LinearSimilarity,
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES
from torch_geometric_gsl.transforms import (
    SampledLatentGraph,
    SimilarityKNNGraph,
)
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import is_sorted_by_target

NAMES = ('linear', 'difference', 'gaussian', 'heat_kernel')
EUCLIDEAN = HeatKernelSimilarity(3, normalize=False)
TRAINED = NeuralGaussianSimilarity(3, 2)


def assert_nearest(data, score, k, loop):
    score = score if loop else score.clone().fill_diagonal_(-torch.inf)
    best = score.topk(k).indices.sort().values
    assert torch.equal(data.edge_index[0].view(-1, k), best)


@pytest.mark.parametrize(
    ('similarity', 'module'),
    [(name, SIMILARITIES[name](3)) for name in NAMES]
    + [(EUCLIDEAN, EUCLIDEAN), (TRAINED, TRAINED)],
)
@pytest.mark.parametrize('options', [{'memory_budget': 1}, {'loop': True}])
def test_against_the_similarity_of_all_pairs(similarity, module, options):
    x = torch.randn(15, 3, dtype=torch.float64)
    module.double().train()
    state = torch.get_rng_state()
    data = SimilarityKNNGraph(3, similarity, **options)(Data(x=x))
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training
    assert not data.edge_weight.requires_grad
    score = module(x).detach()
    order = -torch.cdist(x, x) if module is EUCLIDEAN else score
    assert_nearest(data, order, 3, options.get('loop', False))
    source, target = data.edge_index
    torch.testing.assert_close(data.edge_weight, score[target, source])


def test_force_undirected():
    # Widths differ between targets, hence phi is not symmetric.
    similarity = NeuralGaussianSimilarity(3)
    x = torch.randn(10, 3)
    plain = SimilarityKNNGraph(2, similarity)(Data(x=x))
    both = SimilarityKNNGraph(2, similarity, force_undirected=True)(Data(x=x))
    weight = to_dense_adj(plain.edge_index, edge_attr=plain.edge_weight)[0]
    adjacency = to_dense_adj(plain.edge_index)[0]
    total = adjacency + adjacency.t()
    expected = (weight + weight.t()) / total.clamp(min=1)
    result = to_dense_adj(both.edge_index, edge_attr=both.edge_weight)[0]
    torch.testing.assert_close(result, expected)
    assert both.num_edges == int((total > 0).sum())


def test_sparse_features():
    examples = [Data(x=torch.randn(n, 6).relu()) for n in (5, 8)]
    sparse = [Data(x=data.x.to_sparse_csr()) for data in examples]
    for similarity in (GaussianSimilarity(6, 3), 'gaussian', 'linear', 'heat_kernel'):
        transform = SimilarityKNNGraph(2, similarity)
        expected = transform(Batch.from_data_list(examples))
        result = transform(Batch.from_data_list(sparse))
        assert torch.equal(result.edge_index, expected.edge_index)
        torch.testing.assert_close(result.edge_weight, expected.edge_weight)
    with pytest.raises(ValueError, match=r"'x' is sparse .* needs a projection"):
        SimilarityKNNGraph(2, HeatKernelSimilarity(6))(sparse[0])


def test_angles_of_one_column_mean_nothing():
    with pytest.raises(ValueError, match=r"must use distances .* one column.*'distan"):
        SimilarityKNNGraph(3, 'gaussian')(Data(x=torch.randn(9, 1)))
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    edges = SimilarityKNNGraph(1, 'distance')(Data(x=x)).edge_index
    assert edges[0].tolist() == [1, 0, 1, 2]


@pytest.fixture
def data():
    return Data(x=torch.randn(20, 4))


def sums(data):
    zeros = torch.zeros(data.num_nodes)
    return zeros.index_add(0, data.edge_index[1], data.edge_weight)


def test_is_what_the_sampler_draws(data):
    generator = torch.Generator().manual_seed(7)
    sampler = GumbelKNNSampler(LinearSimilarity(4), k=3, scale=2.0)
    edge_index, edge_weight = sampler(data.x, generator=generator)
    out = SampledLatentGraph(k=3, scale=2.0, seed=7)(data)
    assert torch.equal(out.edge_index, edge_index)
    torch.testing.assert_close(out.edge_weight, edge_weight)
    torch.testing.assert_close(sums(out), torch.ones(20))


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_options_reach_the_sampler(data, method):
    out = SampledLatentGraph(k=3, hard=True, method=method)(data)
    assert bool((out.edge_weight > 0.3).all())  # No edges of zero weight.
    assert out.num_edges <= 60
    torch.testing.assert_close(sums(out), torch.ones(20))
    out = SampledLatentGraph(k=3, replace=False, loop=False, method=method)(data)
    assert degree(out.edge_index[1], 20).tolist() == [3.0] * 20
    assert not out.has_self_loops()


def test_seed(data):
    seeds = 3, np.int64(3), 4, 2**64 - 1
    weight, *weights = (SampledLatentGraph(3, seed=s)(data).edge_weight for s in seeds)
    assert [torch.equal(weight, w) for w in weights] == [True, False, False]
    # Without a seed the global generator draws.
    state = torch.get_rng_state()
    weight, next_weight = (SampledLatentGraph(k=3)(data).edge_weight for _ in range(2))
    torch.set_rng_state(state)
    assert torch.equal(weight, SampledLatentGraph(k=3)(data).edge_weight)
    assert not torch.equal(weight, next_weight)


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
