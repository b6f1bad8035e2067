import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import to_matrix
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import SimpleConv

from torch_geometric_gsl.typing import (
    PairGraph,
    SampledGraph,
    is_sorted_by_target,
    plain_edges,
)

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)
NOTHING = SampledGraph(torch.empty(2, 0, dtype=torch.long), torch.empty(0))


@pytest.fixture
def graph():
    """Three sources, two targets, sorted by target."""
    edge_index = torch.tensor([[0, 2, 0, 1], [0, 0, 1, 1]])
    return SampledGraph(edge_index, torch.tensor([0.25, 0.75, 1.0, 0.0]))


def test_edges_per_target_and_repr(graph):
    # Target 4 has one edge, target 3 has none and does not count.
    edge_index = torch.cat([graph.edge_index, torch.tensor([[1], [4]])], dim=1)
    uneven = SampledGraph(edge_index, torch.ones(5))
    assert uneven.edges_per_target == pytest.approx(5 / 3)
    assert str(uneven) == (
        'SampledGraph(edge_index=[2, 5], edge_weight=[5], edges_per_target=1.7)'
    )
    assert NOTHING.edges_per_target == 0
    # Without values there is nothing to count, but something to print.
    for pair in (SampledGraph(*[tensor.to('meta') for tensor in graph]), ('a', 'b')):
        edges, weights = pair
        expected = f'SampledGraph({edges!r}, {weights!r})'
        assert str(SampledGraph(edges, weights)) == expected


@pytest.mark.parametrize(
    ('threshold', 'remaining'),
    [(-1.0, [0, 1, 2, 3]), (None, [0, 1, 2]), (0.25, [1, 2]), (1.0, [])],
)
def test_prune(graph, threshold, remaining):
    weight = graph.edge_weight.requires_grad_()
    pruned = graph.prune() if threshold is None else graph.prune(threshold)
    assert isinstance(pruned, SampledGraph)
    assert torch.equal(pruned.edge_index, graph.edge_index[:, remaining])
    assert torch.equal(pruned.edge_weight, weight[remaining])
    pruned.edge_weight.sum().backward()
    assert weight.grad.tolist() == [float(i in remaining) for i in range(4)]


def test_neighbours(graph):
    weight = graph.edge_weight.requires_grad_()
    sources, weights = graph.neighbours(0)
    assert sources.tolist() == [2, 0]
    assert torch.equal(weights, weight[[1, 0]])
    weights[0].backward()
    assert weight.grad.tolist() == [0, 1, 0, 0]
    tied = SampledGraph(graph.edge_index, torch.ones(4))
    assert tied.neighbours(torch.tensor(1))[0].tolist() == [0, 1]
    # Node 2 is a source only; of a pair it is no target.
    assert [tensor.tolist() for tensor in graph.neighbours(2)] == [[], []]
    for of, node, size in (
        (graph, 3, 3),
        (graph, -1, 3),
        (PairGraph(*graph), 2, 2),
        (NOTHING, 0, 0),
    ):
        text = rf"'node' must be at least 0 and less than {size} \(got {node}\)"
        with pytest.raises(ValueError, match=text):
            of.neighbours(node)
    with pytest.raises(TypeError, match='integer'):
        graph.neighbours(1.0)


@given(pairs)
def test_is_sorted_by_target(edges):
    expected = [(i, j) for j, i in edges] == sorted((i, j) for j, i in edges)
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    assert is_sorted_by_target(edge_index) is expected
    wrapped = EdgeIndex(edge_index.contiguous(), sparse_size=(4, 4))
    assert type(plain_edges(wrapped)) is Tensor
    assert torch.equal(plain_edges(wrapped), edge_index)


@pytest.mark.parametrize('order', [[0, 1, 2, 3], [3, 0, 2, 1], [1, 0, 2, 3]])
def test_to_adj_t(graph, order):
    sparse = pytest.importorskip('torch_sparse')
    weight = graph.edge_weight.requires_grad_()
    adj_t = SampledGraph(graph.edge_index[:, order], weight[order]).to_adj_t((3, 2))
    assert isinstance(adj_t, sparse.SparseTensor)
    assert adj_t.sizes() == [2, 3]
    # In compressed form, which trusts the order of the edges.
    rowptr, col, value = adj_t.csr()
    assert rowptr.tolist() == [0, 2, 4]
    assert col.tolist() == [0, 2, 0, 1]
    assert value.tolist() == [0.25, 0.75, 1, 0]
    x = torch.randn(3, 2)
    out = SimpleConv()((x, torch.randn(2, 2)), adj_t)
    torch.testing.assert_close(out, to_matrix(*graph, 2, 3) @ x)
    (grad,) = torch.autograd.grad(out.sum(), weight)
    torch.testing.assert_close(grad, x[graph.edge_index[0]].sum(dim=1))


def test_to_adj_t_of_no_edges():
    pytest.importorskip('torch_sparse')
    assert NOTHING.to_adj_t((3, 2)).to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_to_adj_t_without_torch_sparse(graph, monkeypatch):
    monkeypatch.setitem(sys.modules, 'torch_sparse', None)
    text = "'adj_t' needs torch-sparse: pip install .* torch-sparse"
    with pytest.raises(ImportError, match=text):
        graph.to_adj_t((3, 2))


@pytest.mark.parametrize(
    ('size', 'text'), [((2, 2), 'at least 3 sources'), ((3, 1), 'at least 2 targets')]
)
def test_adj_t_of_a_wrong_size(graph, size, text):
    with pytest.raises(ValueError, match=rf"'size' must count {text} \(got"):
        graph.to_adj_t(size)
