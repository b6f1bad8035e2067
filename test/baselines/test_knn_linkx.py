from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn.models import LINKX

from torch_geometric_gsl.baselines.knn_linkx import KNNLINKX
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours

N, IN, OUT = 14, 5, 3
Rows = list[list[float]]


def features(n: int = N) -> Tensor:
    return torch.randn(n, IN, generator=torch.Generator().manual_seed(0))


def make(num_layers: int = 2, **kwargs: Any) -> KNNLINKX:
    torch.manual_seed(1)
    return KNNLINKX(IN, 6, num_layers, OUT, **{'num_nodes': N, 'k': 3, **kwargs})


def neighbour_rows(x: Rows, k: int, batch: list[int]) -> Rows:
    """The adjacency of the nodes of largest cosine, row by row."""
    n = len(x)
    unit = [[a / math.hypot(*row) for a in row] for row in x]
    adjacency = [[0.0] * n for _ in range(n)]
    for i in range(n):
        cosine = [math.fsum(map(float.__mul__, unit[i], unit[j])) for j in range(n)]
        others = [j for j in range(n) if j != i and batch[j] == batch[i]]
        for j in sorted(others, key=lambda j: -cosine[j])[:k]:
            adjacency[i][j] = 1.0
    return adjacency


def affine(rows: Rows, weight: Rows, bias: list[float]) -> Rows:
    """Rows times the transposed weight, plus the bias."""
    return [
        [
            math.fsum(map(float.__mul__, row, out)) + shift
            for out, shift in zip(weight, bias, strict=True)
        ]
        for row in rows
    ]


def relu(rows: Rows) -> Rows:
    return [[max(value, 0.0) for value in row] for row in rows]


def batch_norm(rows: Rows, state: dict[str, Any], name: str, training: bool) -> Rows:
    columns = []
    for channel, column in enumerate(zip(*rows, strict=True)):
        mean = state[f'{name}.running_mean'][channel]
        variance = state[f'{name}.running_var'][channel]
        if training:
            mean = math.fsum(column) / len(column)
            variance = math.fsum((a - mean) ** 2 for a in column) / len(column)
        scale = state[f'{name}.weight'][channel] / math.sqrt(variance + 1e-5)
        shift = state[f'{name}.bias'][channel]
        columns.append([(a - mean) * scale + shift for a in column])
    return [list(row) for row in zip(*columns, strict=True)]


def plain_linkx(model: KNNLINKX, x: Rows, adjacency: Rows) -> Tensor:
    """The equation of the paper, from the stored tensors alone."""
    state = {name: value.tolist() for name, value in model.linkx.state_dict().items()}

    def lin(rows: Rows, name: str) -> Rows:
        return affine(rows, state[f'{name}.weight'], state[f'{name}.bias'])

    # The weight of the edges has a row for each node.
    of_nodes = [list(column) for column in zip(*state['edge_lin.weight'], strict=True)]
    h_a = affine(adjacency, of_nodes, state['edge_lin.bias'])
    h_x = lin(x, 'node_mlp.lins.0')
    # W [h_A; h_X] is stored as two halves with a bias each.
    halves = lin(h_a, 'cat_lin1'), lin(h_x, 'cat_lin2')
    h = [
        list(map(math.fsum, zip(*rows, strict=True)))
        for rows in zip(*halves, h_a, h_x, strict=True)
    ]
    h = relu(h)
    for number in range(model.num_layers - 1):
        h = relu(lin(h, f'final_mlp.lins.{number}'))
        h = batch_norm(h, state, f'final_mlp.norms.{number}.module', model.training)
    h = lin(h, f'final_mlp.lins.{model.num_layers - 1}')
    return torch.tensor(h, dtype=torch.float64)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('num_layers', [1, 2, 3])
@pytest.mark.parametrize('layout', ['dense', 'sparse'])
@pytest.mark.parametrize('num_graphs', [1, 2])
def test_against_plain_loops(
    layout: str, num_layers: int, num_graphs: int, training: bool
) -> None:
    model = make(num_layers, dropout=0.0).double().train(training)
    with torch.no_grad():
        # As a training leaves them: a fresh norm does nothing and could be left out.
        for name, value in model.linkx.state_dict().items():
            if name.endswith('running_var'):
                value.uniform_(0.2, 1.2)
            elif value.is_floating_point():
                value.normal_()
    x, batch = features().double(), torch.arange(N) * num_graphs // N
    adjacency = neighbour_rows(x.tolist(), 3, batch.tolist())
    assert adjacency != [list(column) for column in zip(*adjacency, strict=True)]
    expected = plain_linkx(model, x.tolist(), adjacency)
    given = x if layout == 'dense' else x.to_sparse_csr()
    out = model(given, batch=None if num_graphs == 1 else batch)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize('training', [True, False])
def test_given_edges_against_plain_loops(training: bool) -> None:
    model, x = make(dropout=0.0).double().train(training), features().double()
    edge_index = torch.randint(0, N, (2, 30))
    edge_index[:, 1] = edge_index[:, 0]
    weight = torch.rand(30, dtype=torch.float64)
    adjacency = [[0.0] * N for _ in range(N)]
    for (j, i), value in zip(edge_index.t().tolist(), weight.tolist(), strict=True):
        adjacency[i][j] += value
    expected = plain_linkx(model, x.tolist(), adjacency)
    torch.testing.assert_close(model(x, edge_index, edge_weight=weight), expected)


@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_the_adjacency_has_no_weights(layout: str) -> None:
    model, x = make().eval(), features()
    edge_index, _ = nearest_neighbours(x, 3)
    (graph,) = model.graphs(x if layout == 'dense' else x.to_sparse_csr())
    assert torch.equal(graph.edge_index, edge_index)
    assert graph.edge_weight.tolist() == [1.0] * 3 * N


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


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('num_layers', [1, 2])
def test_sparse_half_precision(num_layers: int, training: bool) -> None:
    model, x = make(num_layers, dropout=0.0).train(training), features()
    sparse, exact = x.to_sparse_csr(), model(x).detach()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        of_autocast = model(sparse)
    model = model.bfloat16()
    for out in (of_autocast, model(x.bfloat16().to_sparse_csr())):
        assert out.dtype == torch.bfloat16
        torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
        assert not torch.equal(out.float(), exact)
    out.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
