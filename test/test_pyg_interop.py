"""Layers of PyTorch Geometric on sampled graphs."""

import pytest
import torch
from oracles import check_gradients, seeded, to_matrix
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

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
