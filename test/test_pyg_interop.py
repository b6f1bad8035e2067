"""Layers of PyTorch Geometric on sampled graphs, and its `to_hetero` on our layers."""

import pytest
import torch
from oracles import check_gradients, seeded, to_matrix
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    GCNConv,
    GraphConv,
    SAGEConv,
    to_hetero,
    to_hetero_with_bases,
)

import torch_geometric_gsl as gsl
from torch_geometric_gsl import GumbelKNNSampler, NeuralGaussianSimilarity

N, IN, OUT = 12, 6, 5
OPTIONS = [{}, {'hard': True}, {'replace': False}, {'loop': False}]


def features(num_nodes=N, seed=3):
    return torch.randn(num_nodes, IN, generator=seeded(seed))


def make(**kwargs):
    torch.manual_seed(5)
    return GumbelKNNSampler.paper(NeuralGaussianSimilarity(IN, 4), k=3, **kwargs)


@pytest.mark.parametrize('training', [True, False])
def test_candidates_as_an_edge_index(training):
    sampler, x = make().train(training), features()
    plain = torch.randint(N, (2, 40), generator=seeded(1))
    graphs = []
    for edge_index in (plain, EdgeIndex(plain, sparse_size=(N, N))):
        sampler.train(training)
        args = {'edge_index': edge_index}
        twins = [seeded(2) for _ in range(2)]
        graph = sampler(x, **args, generator=twins[0])
        graphs.append([*graph, sampler.propagate(x, x, **args, generator=twins[1])])
    for tensor, twin in zip(*graphs, strict=True):
        assert type(twin) is Tensor
        assert torch.equal(tensor, twin)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('layer', [GCNConv, GraphConv, SAGEConv])
def test_layers_against_matrices(layer, options, training):
    sampler = make(**options).train(training)
    kwargs = {'add_self_loops': False} if layer is GCNConv else {}
    conv = layer(IN, OUT, **kwargs)
    edge_index, edge_weight = sampler(x := features())
    weights = () if layer is SAGEConv else (edge_weight,)
    out = conv(x, edge_index, *weights)
    matrix = to_matrix(edge_index, edge_weight.detach(), N, N)
    if layer is GCNConv:  # The rows sum to 1, so its normalisation does nothing.
        expected = matrix @ conv.lin(x) + conv.bias
    elif layer is GraphConv:
        expected = conv.lin_rel(matrix @ x) + conv.lin_root(x)
    else:  # It has no use for weights.
        is_edge = to_matrix(edge_index, torch.ones_like(edge_weight), N, N)
        mean = is_edge @ x / is_edge.sum(dim=1, keepdim=True)
        expected = conv.lin_l(mean) + conv.lin_r(x)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    check_gradients(conv, *([sampler] if weights else []))
    is_reached = [parameter.grad is not None for parameter in sampler.parameters()]
    assert all(is_reached) if weights else not any(is_reached)


@pytest.mark.parametrize('training', [True, False])
def test_adj_t(training):
    pytest.importorskip('torch_sparse')
    results = []
    for return_adj_t in (True, False):
        sampler = make().train(training)
        conv = GCNConv(IN, OUT, add_self_loops=False)
        x = features().requires_grad_()
        torch.manual_seed(1)
        graph = sampler(x, return_adj_t=return_adj_t)
        out = conv(x, graph) if return_adj_t else conv(x, *graph)
        out.square().sum().backward()
        check_gradients(sampler, conv)
        results.append([out.detach(), x.grad, *(p.grad for p in sampler.parameters())])
    torch.testing.assert_close(*results)


METADATA = (['a', 'b'], [('a', 'to', 'b'), ('b', 'of', 'a')])
REASON = "this module learns a graph on nodes of one type. Use 'HeteroLatentGraphConv'"
MODULES = {
    'LatentGraphConv': lambda: gsl.LatentGraphConv(IN, OUT),
    'SensorGraphConv': lambda: gsl.SensorGraphConv(IN, OUT, N),
    'TransitionGraphConv': lambda: gsl.TransitionGraphConv(IN, OUT, N, 3),
    'GSLNet': lambda: gsl.GSLNet(IN, 8, 2, OUT),
    'GumbelKNNSampler': lambda: gsl.GumbelKNNSampler.paper(gsl.LinearSimilarity(IN)),
}


class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.lin = torch.nn.Linear(IN, IN)
        self.inner = inner

    def forward(self, x):
        return self.inner(self.lin(x))


@pytest.mark.parametrize('name', MODULES)
def test_to_hetero(name):
    module = MODULES[name]()
    with pytest.raises(TypeError, match=rf"got 'to_hetero'\): {REASON}"):
        to_hetero(module, METADATA)
    with pytest.raises(TypeError, match=REASON):
        to_hetero_with_bases(module, METADATA, num_bases=2)
    x = {'a': torch.randn(3, IN), 'b': torch.randn(4, IN)}
    with pytest.raises(TypeError, match=rf'got a dict\): {REASON}'):
        module(x)
    with pytest.raises(TypeError, match=rf'got a HeteroData\): {REASON}'):
        module(HeteroData(a={'x': x['a']}))


def test_a_layer_inside_a_module_is_copied_for_each_type():
    outer = to_hetero(Outer(gsl.LatentGraphConv(IN, OUT)).eval(), METADATA)
    x = {'a': torch.randn(3, IN), 'b': torch.randn(4, IN)}
    out = outer(x)
    assert {name: rows.shape for name, rows in out.items()} == {
        'a': (3, OUT),
        'b': (4, OUT),
    }
    alone = outer({**x, 'b': x['b'] + 1})  # No graph joins the types.
    assert torch.equal(alone['a'], out['a'])


def test_data_is_no_tensor():
    data = Data(x=torch.randn(3, IN))
    with pytest.raises(TypeError, match=r'such as data.x \(got Data\)'):
        gsl.LatentGraphConv(IN, OUT)(data)


def test_other_tracers_are_left_alone():
    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, gsl.LatentGraphConv | torch.nn.Linear)

    outer = Outer(gsl.LatentGraphConv(IN, OUT)).eval()
    traced = torch.fx.GraphModule(outer, Tracer().trace(outer))
    x = torch.randn(N, IN, generator=seeded())
    assert torch.equal(traced(x), outer(x))
