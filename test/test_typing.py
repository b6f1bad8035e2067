from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import SimpleConv

from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)


@pytest.fixture
def graph() -> SampledGraph:
    """Three sources, two targets, sorted by target."""
    edge_index = torch.tensor([[0, 2, 0, 1], [0, 0, 1, 1]])
    return SampledGraph(edge_index, torch.tensor([0.25, 0.75, 1.0, 0.0]))


def dense(graph: SampledGraph, size: tuple[int, int]) -> Tensor:
    matrix = torch.zeros(size[1], size[0])
    for (source, target), weight in zip(
        graph.edge_index.t().tolist(), graph.edge_weight.tolist(), strict=True
    ):
        matrix[target, source] += weight
    return matrix


def test_unpacks_into_the_arguments_of_a_convolution(graph: SampledGraph) -> None:
    assert graph._fields == ('edge_index', 'edge_weight')
    edge_index, edge_weight = graph
    assert edge_index is graph.edge_index
    assert edge_weight is graph.edge_weight
    x_src, x_dst = torch.randn(3, 2), torch.randn(2, 2)
    out = SimpleConv()((x_src, x_dst), *graph)
    torch.testing.assert_close(out, dense(graph, (3, 2)) @ x_src)


@pytest.mark.parametrize(
    ('threshold', 'kept'),
    [(-1.0, [0, 1, 2, 3]), (0.0, [0, 1, 2]), (0.25, [1, 2]), (1.0, [])],
)
def test_prune(graph: SampledGraph, threshold: float, kept: list[int]) -> None:
    pruned = graph.prune(threshold)
    assert isinstance(pruned, SampledGraph)
    assert torch.equal(pruned.edge_index, graph.edge_index[:, kept])
    assert torch.equal(pruned.edge_weight, graph.edge_weight[kept])


def test_prune_drops_zeros_by_default(graph: SampledGraph) -> None:
    assert graph.prune().edge_weight.tolist() == [0.25, 0.75, 1.0]


def test_prune_passes_the_gradient_on(graph: SampledGraph) -> None:
    weight = graph.edge_weight.requires_grad_()
    (graph.prune(0.5).edge_weight * torch.tensor([2.0, 3.0])).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0, 2, 3, 0]


@given(pairs)
def test_is_sorted_by_target(edges: list[tuple[int, int]]) -> None:
    expected = [(i, j) for j, i in edges] == sorted((i, j) for j, i in edges)
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
    assert is_sorted_by_target(edge_index) is expected


@pytest.mark.parametrize('order', [[0, 1, 2, 3], [3, 0, 2, 1], [1, 0, 2, 3]])
def test_to_adj_t(graph: SampledGraph, order: list[int]) -> None:
    sparse = pytest.importorskip('torch_sparse')
    shuffled = SampledGraph(graph.edge_index[:, order], graph.edge_weight[order])
    adj_t = shuffled.to_adj_t((3, 2))
    assert isinstance(adj_t, sparse.SparseTensor)
    assert adj_t.sizes() == [2, 3]
    assert torch.equal(adj_t.to_dense(), dense(graph, (3, 2)))
    # In compressed form as well, which trusts the order of the edges.
    rowptr, col, value = adj_t.csr()
    assert rowptr.tolist() == [0, 2, 4]
    assert col.tolist() == [0, 2, 0, 1]
    assert value.tolist() == [0.25, 0.75, 1, 0]


def test_to_adj_t_serves_convolutions_and_gradients(graph: SampledGraph) -> None:
    pytest.importorskip('torch_sparse')
    x, weight = torch.randn(3, 2), graph.edge_weight.requires_grad_()
    out = SimpleConv()((x, torch.randn(2, 2)), graph.to_adj_t((3, 2)))
    torch.testing.assert_close(out, SimpleConv()((x, torch.randn(2, 2)), *graph))
    (grad,) = torch.autograd.grad(out.sum(), weight)
    torch.testing.assert_close(grad, x[graph.edge_index[0]].sum(dim=1))


def test_to_adj_t_of_no_edges() -> None:
    pytest.importorskip('torch_sparse')
    nothing = SampledGraph(torch.empty(2, 0, dtype=torch.long), torch.empty(0))
    assert nothing.to_adj_t((3, 2)).to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_to_adj_t_without_torch_sparse(
    graph: SampledGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'torch_sparse', None)
    text = r"'adj_t' needs torch-sparse: .* 'torch_geometric_gsl\[sparse\]'"
    with pytest.raises(ImportError, match=text):
        graph.to_adj_t((3, 2))


def test_adj_t_of_a_wrong_size() -> None:
    graph = SampledGraph(torch.tensor([[3, 0], [0, 1]]), torch.ones(2))
    with pytest.raises(ValueError, match=r"'size' must count at least 4 sources \(got"):
        graph.to_adj_t((3, 2))
    with pytest.raises(ValueError, match=r"'size' must count at least 2 targets \(got"):
        graph.to_adj_t((4, 1))
