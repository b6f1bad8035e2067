"""A given graph, weighed by agreement, with nearest rows added."""

import re

import pytest
import torch
from oracles import seeded
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from torch_geometric_gsl.transforms import RefineGraph
from torch_geometric_gsl.transforms.refine_graph import refine
from torch_geometric_gsl.typing import SampledGraph


def drawn(num_nodes=12, num_edges=40, dtype=torch.double, width=5):
    code = torch.randperm(num_nodes**2)[: min(num_edges, num_nodes**2)]
    return Data(
        x=torch.randn(num_nodes, width, dtype=dtype),
        edge_index=torch.stack([code // num_nodes, code % num_nodes]),
        edge_weight=torch.rand(len(code), dtype=dtype),
        prob=torch.rand(num_nodes, 3, dtype=dtype).softmax(1),
    )


def dense(data):
    adjacency = to_dense_adj(
        data.edge_index, edge_attr=data.edge_weight, max_num_nodes=data.num_nodes
    )
    return adjacency[0].T  # Targets by sources.


def definition(data, k, prob=None, least=None):
    """Return all weights, targets by sources, as the formula has them."""
    x = torch.nn.functional.normalize(data.x)
    cosine = x @ x.T
    weight = dense(data)
    if least is not None:
        weight = weight * (cosine > least)
    order = cosine.clone().fill_diagonal_(-torch.inf)
    is_near = torch.zeros_like(weight)
    if k:
        is_near.scatter_(1, order.topk(min(k, len(x) - 1)).indices, 1.0)
    near = cosine.clamp(min=0)
    weight = weight + (is_near + is_near.T) * near
    if prob is None:
        return weight
    return weight * (prob @ prob.T).fill_diagonal_(1)


@pytest.mark.parametrize('k', [0, 3, 11, 20])
@pytest.mark.parametrize('with_prob', [False, True])
@pytest.mark.parametrize('least', [None, 0.1])
def test_definition(k, with_prob, least):
    data = drawn()
    prob = 'prob' if with_prob else None
    out = RefineGraph(k, prob, min_similarity=least)(data)
    expected = definition(data, k, data.prob if with_prob else None, least)
    torch.testing.assert_close(dense(out), expected)
    assert torch.equal(out.observed_edge_index, data.edge_index)
    assert not out.edge_weight.requires_grad


def test_without_weights_each_edge_weighs_one():
    data = drawn()
    del data.edge_weight
    out = RefineGraph(0)(data)
    assert set(out.edge_weight.tolist()) == {1.0}
    assert out.edge_weight.dtype == torch.double


def test_applied_again_starts_from_the_observed_graph():
    data = drawn()
    refined = RefineGraph(4)(data)
    refined.prob = torch.rand(12, 2, dtype=torch.double).softmax(1)
    again = RefineGraph(4, 'prob')(refined)
    data.prob = refined.prob
    expected = RefineGraph(4, 'prob')(data)
    assert torch.equal(again.edge_index, expected.edge_index)
    torch.testing.assert_close(again.edge_weight, expected.edge_weight)


@pytest.mark.parametrize('dtype', [torch.float, torch.bfloat16])
def test_sparse_rows_and_other_types(dtype):
    data = drawn()
    expected = RefineGraph(3, 'prob')(data)
    cast = drawn(dtype=dtype)
    cast.x, cast.prob = data.x.to(dtype), data.prob.to(dtype)
    cast.edge_index, cast.edge_weight = data.edge_index, data.edge_weight.to(dtype)
    refined = RefineGraph(3, 'prob')(cast)
    assert refined.edge_weight.dtype == dtype
    if dtype == torch.float:
        torch.testing.assert_close(dense(refined).double(), dense(expected))
        cast.x = cast.x.to_sparse_csr()
        sparse = RefineGraph(3, 'prob')(cast)
        torch.testing.assert_close(dense(sparse), dense(refined))


def test_points_are_compared_by_distance():
    data = Data(x=torch.tensor([[0.0, 0], [1, 0], [9, 9]]))
    data.edge_index = torch.tensor([[0, 2], [2, 0]])
    out = RefineGraph(1, min_similarity=0.1)(data)
    assert out.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


def test_gradient_reaches_weights_and_probabilities():
    data = drawn(6, 8)
    nearest = SampledGraph(torch.tensor([[1, 2], [0, 0]]), torch.rand(2).double())
    weight, prob = data.edge_weight.requires_grad_(), data.prob.requires_grad_()

    def refined(weight, prob):
        return refine(SampledGraph(data.edge_index, weight), nearest, prob).edge_weight

    assert torch.autograd.gradcheck(refined, (weight, prob))


def test_edges_of_no_weight_are_left_out():
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1], [1, 0, 1]]))
    data.prob = torch.eye(3)
    out = RefineGraph(0, 'prob')(data)
    assert out.edge_index.tolist() == [[1], [1]]
    assert out.edge_weight.tolist() == [1.0]


PROB = {'prob': 'prob'}


@pytest.mark.parametrize(
    ('change', 'kwargs', 'message'),
    [
        ({'edge_index': None}, {}, "'data.edge_index' must hold the edges to refine"),
        ({'x': None}, {}, "'data.x' must hold node features (got None)"),
        ({'prob': None}, PROB, "'data.prob' must hold class probabilities"),
        (
            {'prob': torch.ones(3, 2) / 2},
            PROB,
            'of shape [num_nodes, num_classes] (got',
        ),
        ({'prob': -torch.ones(12, 2)}, PROB, 'rows that sum to one (got -1..-1)'),
        ({'prob': torch.rand(12, 2) * 100}, PROB, 'rows that sum to one'),
        ({'prob': torch.ones(12, 0)}, PROB, '(got [12, 0] for 12 nodes'),
        ({'prob': torch.eye(12).to_sparse_csr()}, PROB, 'must be dense, of shape'),
        ({'prob': torch.ones(12, 2) / 0}, PROB, "'data.prob' contains NaN"),
        ({'edge_weight': -torch.ones(40)}, {}, "'edge_weight' must not be negative"),
    ],
)
def test_bad_data(change, kwargs, message):
    data = drawn(dtype=torch.float)
    for name, value in change.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        RefineGraph(**kwargs)(data)


@pytest.mark.parametrize(
    ('kwargs', 'error', 'message'),
    [
        ({'k': -1}, ValueError, "'k' must be"),
        ({'k': 2.5}, TypeError, "'k' must be"),
        ({'prob': 3}, TypeError, "'prob' must be the name of an attribute"),
        ({'attr': None}, TypeError, "'attr' must be the name of an attribute"),
        ({'min_similarity': 'high'}, TypeError, "'min_similarity' must be"),
    ],
)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=message):
        RefineGraph(**kwargs)


def test_sparse_points_with_a_least_similarity():
    x = torch.rand(6, 2, generator=seeded())
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    refine = RefineGraph(2, min_similarity=0.5)
    expected = refine(Data(x=x, edge_index=edge_index))
    data = refine(Data(x=x.to_sparse_csr(), edge_index=edge_index))
    assert torch.equal(data.edge_index, expected.edge_index)
    torch.testing.assert_close(data.edge_weight, expected.edge_weight)
