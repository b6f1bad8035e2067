from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn.models import LINKX

from torch_geometric_gsl.nn.models._neighbours import nearest_neighbours
from torch_geometric_gsl.nn.models.knn_linkx import KNNLINKX

N, IN, OUT = 14, 5, 3


def features(n: int = N) -> Tensor:
    return torch.randn(n, IN, generator=torch.Generator().manual_seed(0))


def make(**kwargs: Any) -> KNNLINKX:
    torch.manual_seed(1)
    return KNNLINKX(IN, 6, 2, OUT, **{'num_nodes': N, 'k': 3, **kwargs})


def test_repr() -> None:
    model = KNNLINKX(16, 32, num_layers=2, out_channels=7, num_nodes=100)
    assert str(model) == (
        'KNNLINKX(16, 32, num_layers=2, out_channels=7, num_nodes=100, k=5)'
    )


@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_the_adjacency_has_no_weights(layout: str) -> None:
    model, x = make().eval(), features()
    edge_index, _ = nearest_neighbours(x, 3)
    adjacency = torch.zeros(N, N)
    adjacency[edge_index[1], edge_index[0]] = 1
    (graph,) = model.graphs(x if layout == 'dense' else x.to_sparse_csr())
    assert torch.equal(graph.edge_index, edge_index)
    assert graph.edge_weight.tolist() == [1.0] * 3 * N
    # The formula of the docstring, with dense matrices.
    part = model.linkx
    of_edges = adjacency @ part.edge_lin.weight + part.edge_lin.bias
    of_nodes = part.node_mlp.lins[0](x)
    both = of_edges + part.cat_lin1(of_edges) + of_nodes + part.cat_lin2(of_nodes)
    expected = part.final_mlp(both.relu())
    out = model(x if layout == 'dense' else x.to_sparse_csr())
    torch.testing.assert_close(out, expected)


def test_is_pyg_s_linkx_on_a_given_graph() -> None:
    model, x = make(dropout=0.3), features()
    other = LINKX(N, IN, 6, OUT, 2, dropout=0.3)
    other.load_state_dict(model.linkx.state_dict())
    edge_index, weight = torch.randint(0, N, (2, 30)), torch.rand(30)
    for training in (True, False):
        torch.manual_seed(2)
        out = model.train(training)(x, edge_index, edge_weight=weight)
        torch.manual_seed(2)
        expected = other.train(training)(x, edge_index, weight)
        torch.testing.assert_close(out, expected)


def test_cached_graph() -> None:
    model, x = make(cached=True).eval(), features()
    out = model(x)
    (graph,) = model.graphs(x)
    # Of other features it has the same graph.
    assert model.graphs(x.flip(1))[0] is graph
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x), out)
    model.reset_parameters()
    assert model.graphs(x.flip(1) * torch.arange(1, 6))[0] is not graph


def test_loss_trains() -> None:
    model, y = make(dropout=0.0), torch.arange(N) % OUT
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.loss(features(), y, y >= 0)
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.2


def test_lazy_channels() -> None:
    model = KNNLINKX(-1, 6, 2, OUT, num_nodes=N, k=3)
    assert model(features()).shape == (N, OUT)


@pytest.mark.parametrize(
    ('error', 'kwargs', 'match'),
    [
        (ValueError, {'num_nodes': 0}, r"'num_nodes' must be at least 1 \(got 0\)"),
        (ValueError, {'k': 0}, r"'k' must be at least 1 \(got 0\)"),
        (TypeError, {'cached': None}, r"'cached' must be a bool \(got None\)"),
        (ValueError, {'dropout': 1}, r"'dropout' must lie in \[0, 1\) \(got 1\)"),
    ],
)
def test_bad_arguments(error: type[Exception], kwargs: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        make(**kwargs)


def test_bad_inputs() -> None:
    match = r"'x' must have num_nodes=14 rows \(got 9\); the weights of the edges belo"
    with pytest.raises(ValueError, match=match):
        make()(features(9))
    with pytest.raises(ValueError, match=r"'x' must have 5 channels \(got 4\)"):
        make()(features()[:, :4])
    edges, weight = torch.tensor([[0], [1]]), torch.tensor([-1.0])
    with pytest.raises(ValueError, match="'edge_weight' must not be negative"):
        make()(features(), edges, edge_weight=weight)
