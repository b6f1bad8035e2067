import math
from unittest import mock

import pytest
import torch
from oracles import inner, unit
from torch_geometric.nn import GCNConv

from torch_geometric_gsl.baselines.knn_gcn import KNNGCN

N, IN, OUT = 14, 5, 3
ROOTS = pytest.mark.parametrize('root_weight', [True, False])


def features(seed=0, n=N):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, IN, generator=generator, dtype=torch.float64)


def make(num_layers=2, **kwargs):
    torch.manual_seed(1)
    model = KNNGCN(IN, 6, num_layers, OUT, **{'k': 3, **kwargs}).double()
    for conv in model.convs:
        torch.nn.init.normal_(conv.bias)
    return model


def plain_adjacency(x, k, heat):
    """The normalised adjacency with loops, row by row."""
    n = len(x)
    rows = [unit(row) for row in x]
    weight = [[0.0] * n for _ in range(n)]
    for i in range(n):
        cosine = [inner(rows[i], row) for row in rows]
        others = sorted((j for j in range(n) if j != i), key=lambda j: -cosine[j])
        for j in others[:k]:
            distance = math.dist(rows[i], rows[j]) ** 2
            weight[i][j] = math.exp(-distance / 2) if heat else max(cosine[j], 0.0)
        weight[i][i] = 1.0
    degree = [math.fsum(row) for row in weight]
    return [
        [weight[i][j] / math.sqrt(degree[i] * degree[j]) for j in range(n)]
        for i in range(n)
    ]


@ROOTS
@pytest.mark.parametrize('similarity', ['linear', 'heat_kernel'])
@pytest.mark.parametrize('layout', ['dense', 'sparse'])
def test_against_a_plain_loop(root_weight, similarity, layout):
    # With eleven neighbours some cosines are negative.
    model = make(3, k=11, root_weight=root_weight, similarity=similarity).eval()
    h = features()
    x = h if layout == 'dense' else h.to_sparse_csr()
    weight = model.graphs(x)[0].edge_weight
    assert float(weight.min()) == 0 if similarity == 'linear' else weight.min() > 0
    adjacency = torch.tensor(
        plain_adjacency(h.tolist(), 11, similarity == 'heat_kernel'),
        dtype=torch.float64,
    )
    for number, conv in enumerate(model.convs):
        out = adjacency @ (h @ conv.lin.weight.t()) + conv.bias
        if root_weight:
            out = out + h @ model.roots[number].weight.t()
        h = torch.where(out > 0, out, torch.expm1(out)) if number < 2 else out
    torch.testing.assert_close(model(x), h)


def test_is_pyg_s_gcn_on_a_given_graph():
    model, x = make(1).eval(), features()
    edge_index = torch.randint(0, N, (2, 30))
    weight = torch.rand(30, dtype=torch.float64, requires_grad=True)
    conv = GCNConv(IN, OUT).double()
    conv.load_state_dict(model.convs[0].state_dict())
    out = model(x, edge_index, edge_weight=weight)
    torch.testing.assert_close(out, conv(x, edge_index, weight))
    out.square().sum().backward()
    assert float(weight.grad.abs().min()) > 0
    torch.testing.assert_close(model(x, edge_index), conv(x, edge_index))
    given = model.graphs(x, edge_index)[0]
    assert torch.equal(given.edge_index, edge_index)
    assert given.edge_weight.tolist() == [1.0] * 30


def test_a_lone_node_and_a_node_without_features():
    model = make().eval()
    lone = torch.zeros(1, IN, dtype=torch.float64)
    assert bool(model(lone, batch=torch.zeros(1).long()).isfinite().all())
    x = features()
    x[3] = 0
    assert bool(model(x).isfinite().all())


def test_dropout_follows_hidden_layers_only():
    model, x = make(3, dropout=0.25, act='relu'), features(n=400)
    inputs = []
    with mock.patch(
        'torch_geometric_gsl.baselines.knn_gcn.dropout',
        side_effect=lambda h, p, training, generator: inputs.append(h) or h,
    ) as dropout:
        out = model(x)
    given = [call.args[1:] for call in dropout.mock_calls]
    assert given == [(0.25, True, None)] * 2
    assert all(float(h.detach().min()) == 0 for h in inputs)  # After the activation.
    torch.testing.assert_close(out, model.eval()(x))


def test_graphs():
    model, x = make(3), features()
    graphs = model.graphs(x)
    assert len(graphs) == 3
    degree = torch.bincount(graphs[0].edge_index[1], minlength=N)
    assert degree.tolist() == [3] * N
    assert all(graph is graphs[0] for graph in graphs)
    assert not bool((graphs[0].edge_index[0] == graphs[0].edge_index[1]).any())
