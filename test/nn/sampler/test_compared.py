"""Comparisons of constant features along given edges are kept from call to call."""

import copy

import pytest
import torch
from torch.testing import assert_close

from torch_geometric_gsl import GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.nn.sampler._compared import ComparedEdges
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


@pytest.mark.parametrize('is_sparse', [False, True])
def test_kept_values_give_the_same_graph(count, is_sparse):
    x, edge_index = inputs()
    given = x.to_sparse_csr() if is_sparse else x
    sampler = GumbelKNNSampler(LinearSimilarity(12), train_scale=True, null_score=0.0)
    first = graph(sampler, given, edge_index)
    again = graph(sampler, given.clone(), edge_index.clone())
    assert count == [is_sparse]
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.edge_weight, again.edge_weight)
    fresh = copy.deepcopy(sampler)
    fresh._compared = ComparedEdges()
    assert_close(first.edge_weight, graph(fresh, x, edge_index).edge_weight)
    # The scale is no part of what is kept, and has its gradient.
    with torch.no_grad():
        sampler.log_scale.fill_(2.0)
        fresh.log_scale.fill_(2.0)
    sharp = graph(sampler, given, edge_index)
    sharp.edge_weight.square().sum().backward()
    fresh._compared = ComparedEdges()
    graph(fresh, x, edge_index).edge_weight.square().sum().backward()
    assert_close(sampler.log_scale.grad, fresh.log_scale.grad)
    assert count == [is_sparse, False, False]


@pytest.mark.parametrize('is_sparse', [False, True])
@pytest.mark.parametrize(
    'change', ['edge', 'value', 'in place', 'pair', 'dtype', 'layout']
)
def test_a_change_is_seen(count, change, is_sparse):
    def made(x):
        return x.to_sparse_csr() if is_sparse else x.clone()

    sampler = GumbelKNNSampler(LinearSimilarity(12), scale=3.0, eval_k=5).eval()
    x, edge_index = inputs()
    given = now = made(x)
    graph(sampler, given, edge_index)
    if change == 'edge':
        edge_index = edge_index[:, edge_index[1] > 0]
    elif change == 'value':
        x = x.roll(1, 0)
        now = made(x)
    elif change == 'in place':
        entries = given.values() if is_sparse else given
        entries.copy_(torch.rand(entries.shape))
        x = given.to_dense()
    elif change == 'dtype':
        x, now = x.double(), made(x.double())
    elif change == 'layout':
        now = x if is_sparse else x.to_sparse_csr()
    else:
        x = x, x.roll(1, 0)
        now = tuple(made(part) for part in x)
    found = graph(sampler, now, edge_index)
    if change == 'dtype':  # Double precision ranks either, by the same values.
        assert count == [is_sparse]
    else:
        assert count == [is_sparse, is_sparse != (change == 'layout')]
    fresh = GumbelKNNSampler(LinearSimilarity(12), scale=3.0, eval_k=5).eval()
    expected = graph(fresh, x, edge_index)
    assert torch.equal(found.edge_index, expected.edge_index)
    assert_close(found.edge_weight, expected.edge_weight)


@pytest.mark.parametrize('row', [0, 29])
@pytest.mark.parametrize('step', [1e-3, -1e-5])
def test_a_small_change_of_one_entry_is_seen(count, row, step):
    sampler = GumbelKNNSampler(LinearSimilarity(12)).eval()
    x, edge_index = inputs()
    graph(sampler, x, edge_index)
    x[row, 5] += step
    graph(sampler, x, edge_index)
    assert count == [False, False]


def test_rows_that_are_trained_are_compared_anew(count):
    x, edge_index = inputs()
    trained = GumbelKNNSampler(LinearSimilarity(12, 4))
    leaf = x.clone().requires_grad_()
    for _ in range(2):
        graph(trained, x, edge_index)
        weight = graph(GumbelKNNSampler(LinearSimilarity(12)), leaf, edge_index)
        weight.edge_weight.square().sum().backward()
        with torch.no_grad():
            graph(trained, x, edge_index)
    assert count == 6 * [False]
    assert leaf.grad.abs().sum() > 0


@pytest.mark.parametrize('is_sparse', [False, True])
def test_inference_leaves_nothing_that_training_cannot_use(is_sparse):
    x, edge_index = inputs()
    x = x.to_sparse_csr() if is_sparse else x
    sampler = GumbelKNNSampler(LinearSimilarity(12), train_scale=True)
    with torch.inference_mode():
        graph(sampler, x, edge_index)
    graph(sampler, x, edge_index).edge_weight.square().sum().backward()
    assert sampler.log_scale.grad != 0


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
