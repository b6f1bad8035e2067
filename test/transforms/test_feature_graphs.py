"""Graphs of the features, of the nearest and sampled ones."""

import numpy as np
import pytest
import torch
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
