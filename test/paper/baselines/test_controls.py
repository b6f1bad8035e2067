"""KNNGCN, KNNLINKX and MLPClassifier against plain loops and PyG's models."""

import math

import pytest
import torch
from oracles import as_layout, inner, seeded, unit
from torch.nn import functional as F
from torch_geometric.nn import GCNConv
from torch_geometric.nn.models import LINKX

from reproduction.baselines import KNNGCN, KNNLINKX, MLPClassifier

N, IN, OUT = 14, 5, 3
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def features(n=N):
    return torch.randn(n, IN, generator=seeded(0), dtype=torch.float64)


def make(model_class, num_layers=2, **kwargs):
    torch.manual_seed(1)
    options = {KNNGCN: {'k': 3}, MLPClassifier: {}}
    model = model_class(
        IN, 6, num_layers, OUT, **{**options[model_class], **kwargs}
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def plain_adjacency(x, k, heat):
    """The normalised adjacency with loops, row by row."""
    n = len(x)
    rows = [unit(row) for row in x]
    weight = [[0.0] * n for _ in range(n)]
    for i in range(n):
        cosine = [inner(rows[i], row) for row in rows]
        neighbours = sorted((j for j in range(n) if j != i), key=lambda j: -cosine[j])
        for j in neighbours[:k]:
            distance = math.dist(rows[i], rows[j]) ** 2
            weight[i][j] = math.exp(-distance / 2) if heat else max(cosine[j], 0.0)
        weight[i][i] = 1.0
    degree = [math.fsum(row) for row in weight]
    return [
        [weight[i][j] / math.sqrt(degree[i] * degree[j]) for j in range(n)]
        for i in range(n)
    ]


@pytest.mark.parametrize('root_weight', [True, False])
@pytest.mark.parametrize('similarity', ['linear', 'heat_kernel'])
@LAYOUTS
def test_gcn_against_a_plain_loop(root_weight, similarity, layout):
    # With eleven neighbours some cosines are negative.
    options = {'root_weight': root_weight, 'similarity': similarity}
    model = make(KNNGCN, 3, k=11, **options).eval()
    h = features()
    x = as_layout(h, layout)
    graphs = model.graphs(x)
    assert len(graphs) == 3
    assert all(graph is graphs[0] for graph in graphs)
    edge_index, weight = graphs[0]
    assert torch.bincount(edge_index[1], minlength=N).tolist() == [11] * N
    assert float(weight.min()) == 0 if similarity == 'linear' else weight.min() > 0
    adjacency = torch.tensor(
        plain_adjacency(h.tolist(), 11, similarity == 'heat_kernel'),
        dtype=torch.float64,
    )
    for index, conv in enumerate(model.convs):
        out = adjacency @ (h @ conv.lin.weight.t()) + conv.bias
        if root_weight:
            out = out + h @ model.roots[index].weight.t()
        h = F.elu(out) if index < 2 else out
    torch.testing.assert_close(model(x), h)


def test_gcn_is_pyg_s_on_a_given_graph():
    model, x = make(KNNGCN, 1).eval(), features()
    edge_index = torch.randint(0, N, (2, 30))
    weight = torch.rand(30, dtype=torch.float64, requires_grad=True)
    conv = GCNConv(IN, OUT).double()
    conv.load_state_dict(model.convs[0].state_dict())
    out = model(x, edge_index, edge_weight=weight)
    torch.testing.assert_close(out, conv(x, edge_index, weight))
    out.square().sum().backward()
    assert float(weight.grad.abs().min()) > 0
    torch.testing.assert_close(model(x, edge_index), conv(x, edge_index))


def test_a_lone_node_and_a_node_without_features():
    model, x = make(KNNGCN).eval(), features()
    x[3] = 0
    assert bool(model(x[3:4], batch=torch.zeros(1).long()).isfinite().all())
    assert bool(model(x).isfinite().all())


@LAYOUTS
def test_mlp_against_layers(layout):
    model, h = make(MLPClassifier, 3).eval(), features()
    expected = h
    for index, lin in enumerate(model.lins):
        expected = expected @ lin.weight.t() + lin.bias
        expected = F.elu(expected) if index < 2 else expected
    torch.testing.assert_close(model(as_layout(h, layout)), expected)


@pytest.mark.parametrize('model_class', [KNNGCN, MLPClassifier])
def test_dropout_follows_hidden_layers_only(model_class):
    model, received = make(model_class, 3, dropout=0.25, act=None), []
    lins = (
        model.lins
        if model_class is MLPClassifier
        else [conv.lin for conv in model.convs]
    )
    for lin in lins:
        lin.register_forward_pre_hook(lambda _, args: received.append(args[0]))
    out = model(features(400))
    shares = [float((h == 0).double().mean()) for h in (*received, out)]
    assert shares == pytest.approx([0, 0.25, 0.25, 0], abs=0.05)


def test_a_loaded_state_brings_no_graph_of_other_rows():
    x = features()
    model, loaded = (make(KNNGCN, cached=True).eval() for _ in range(2))
    expected = model(x)
    loaded(x.flip(0))
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(loaded(x), expected)


def test_the_graph_cannot_be_exported():
    with pytest.raises(ValueError, match='KNNGCN cannot be exported'):
        torch.export.export(make(KNNGCN).eval(), (features(),))


def make_linkx(num_layers=2, **kwargs):
    torch.manual_seed(1)
    model = KNNLINKX(IN, 6, num_layers, OUT, k=3, num_nodes=N, **kwargs).double()
    with torch.no_grad():
        # As a training leaves them: a fresh norm does nothing and could be left out.
        for name, value in model.state_dict().items():
            if name.endswith('running_var'):
                value.uniform_(0.2, 1.2)
            elif value.is_floating_point():
                value.normal_()
    return model


def linkx_of(model):
    """PyG's model, with the same weights."""
    sizes = IN, 6, OUT, model.num_layers
    expected = LINKX(N, *sizes, dropout=model.dropout).to(model.linkx.edge_lin.bias)
    expected.load_state_dict(model.linkx.state_dict())
    return expected.train(model.training)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('num_layers', [1, 2, 3])
@LAYOUTS
@pytest.mark.parametrize('num_graphs', [1, 2])
def test_linkx_is_pyg_s_on_the_nearest_neighbours(
    layout, num_layers, num_graphs, training
):
    model = make_linkx(num_layers, dropout=0.0).train(training)
    x, batch = features(), torch.arange(N) * num_graphs // N
    cosine = F.normalize(x) @ F.normalize(x).t()
    apart = (batch.unsqueeze(1) != batch) | torch.eye(N, dtype=torch.bool)
    source = cosine.masked_fill(apart, -2).topk(3).indices
    edge_index = torch.stack([source, torch.arange(N).unsqueeze(1).expand(N, 3)])
    expected = linkx_of(model)(x, edge_index.flatten(1))
    laid_out = as_layout(x, layout)
    batch = None if num_graphs == 1 else batch
    torch.testing.assert_close(model(laid_out, batch=batch), expected)
    assert model.graphs(laid_out, batch=batch)[0].edge_weight.tolist() == [1.0] * 3 * N


def test_linkx_is_pyg_s_on_a_given_graph():
    model, x = make_linkx(dropout=0.3), features()
    edge_index, weight = torch.randint(0, N, (2, 30)), torch.rand(30).double()
    edge_index[:, 1] = edge_index[:, 0]
    for training in (True, False):
        expected = linkx_of(model.train(training))
        torch.manual_seed(2)
        out = model(x, edge_index, edge_weight=weight)
        torch.manual_seed(2)
        torch.testing.assert_close(out, expected(x, edge_index, weight))
