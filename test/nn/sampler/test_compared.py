"""Comparisons of sparse features along given edges are kept while nothing changes."""

import pytest
import torch
from torch.testing import assert_close

from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.sparse_rows import SparseRows


@pytest.fixture
def count(monkeypatch):
    """Count the comparisons of edges."""
    calls = []
    compare = PairScores.compare_edges

    def counted(self, *args, **kwargs):
        calls.append(self.is_sparse)
        return compare(self, *args, **kwargs)

    monkeypatch.setattr(PairScores, 'compare_edges', counted)
    return calls


def inputs():
    torch.manual_seed(0)
    x = torch.randn(30, 12).relu()
    edge_index = torch.randint(30, (2, 200))
    return x, edge_index


def seeded():
    return torch.Generator().manual_seed(1)


def graph(sampler, x, edge_index):
    return sampler(x, edge_index, generator=seeded())


def test_kept_values_give_the_same_graph(count):
    sampler = GumbelKNNSampler(LinearSimilarity(12), scale='learned', null=True)
    x, edge_index = inputs()
    first = graph(sampler, x.to_sparse_csr(), edge_index)
    again = graph(sampler, x.to_sparse_csr(), edge_index.clone())
    assert count == [True]
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.edge_weight, again.edge_weight)
    dense = graph(sampler, x, edge_index)
    assert_close(first.edge_weight, dense.edge_weight)
    # The scale is no part of what is kept, and has its gradient.
    with torch.no_grad():
        sampler.log_scale.fill_(2.0)
    sharp = graph(sampler, x.to_sparse_csr(), edge_index)
    assert_close(sharp.edge_weight, graph(sampler, x, edge_index).edge_weight)
    sharp.edge_weight.square().sum().backward()
    assert sampler.log_scale.grad != 0
    assert count == [True, False, False]


@pytest.mark.parametrize('change', ['edge', 'value', 'in place', 'pair', 'dtype'])
def test_a_change_is_seen(count, change):
    sampler = GumbelKNNSampler(LinearSimilarity(12), scale=3.0).eval()
    x, edge_index = inputs()
    sparse = x.to_sparse_csr()
    graph(sampler, sparse, edge_index)
    now = sparse
    if change == 'edge':
        edge_index = edge_index[:, edge_index[1] > 0]
    elif change == 'value':
        x = x.roll(1, 0)
        now = x.to_sparse_csr()
    elif change == 'in place':
        sparse.values().copy_(torch.rand(sparse.values().shape))
        x = sparse.to_dense()
    elif change == 'dtype':
        x, now = x.double(), x.double().to_sparse_csr()
    else:
        x = x, x.roll(1, 0)
        now = tuple(part.to_sparse_csr() for part in x)
    found = graph(sampler, now, edge_index)
    assert count == [True, True]
    expected = graph(sampler, x, edge_index)
    assert torch.equal(found.edge_index, expected.edge_index)
    assert_close(found.edge_weight, expected.edge_weight)


def test_dense_features_are_compared_anew(count):
    sampler = GumbelKNNSampler(LinearSimilarity(12))
    x, edge_index = inputs()
    for _ in range(2):
        graph(sampler, x, edge_index)
    assert count == [False, False]


@pytest.mark.parametrize('is_pair', [False, True])
def test_rows_that_are_both_sides_are_looked_at_once(is_pair, monkeypatch):
    looks, equals = [], SparseRows.equals

    def counted(self, other):
        looks.append(self)
        return equals(self, other)

    monkeypatch.setattr(SparseRows, 'equals', counted)
    sampler = GumbelKNNSampler(LinearSimilarity(12))
    x, edge_index = inputs()
    x = x.to_sparse_csr()
    for _ in range(2):
        graph(sampler, (x, x.clone()) if is_pair else x, edge_index)
    assert len(looks) == 1 + is_pair
