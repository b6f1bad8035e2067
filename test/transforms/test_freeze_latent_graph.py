from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.data.datapipes import DatasetAdapter
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import degree

from torch_geometric_gsl.nn.conv import LatentGraphConv, TransitionGraphConv
from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.transforms import FreezeLatentGraph, ToSparseFeatures


@pytest.fixture
def data() -> Data:
    edge_index = torch.tensor([[0, 1, 2, 5, 7], [1, 0, 5, 2, 8]])
    return Data(x=torch.randn(12, 4), edge_index=edge_index)


@pytest.fixture
def model() -> GSLNet:
    return GSLNet(4, 8, num_layers=2, out_channels=3, k=3)


@pytest.mark.parametrize('layer', [0, 1, -1])
def test_graph_of_a_layer(data, model, layer):
    model.convs[0].eval()
    out = FreezeLatentGraph(model, layer)(data)
    assert model.training
    assert model.convs[1].training
    assert not model.convs[0].training
    model.eval()
    with torch.no_grad():  # As the transform does: another order of the same sums.
        expected = model.graphs(data.x)[layer]
    assert torch.equal(out.edge_index, expected.edge_index)
    assert torch.equal(out.edge_weight, expected.edge_weight)
    assert not out.edge_weight.requires_grad
    assert degree(out.edge_index[1], 12).tolist() == [3.0] * 12


def test_layers_differ(data, model):
    first = FreezeLatentGraph(model)(data)
    last = FreezeLatentGraph(model, -1)(data)
    assert not torch.equal(first.edge_weight, last.edge_weight)


def test_graph_of_a_convolution(data):
    conv = LatentGraphConv(4, 8, k=2)
    out = FreezeLatentGraph(conv)(data)
    conv.eval()
    assert torch.equal(out.edge_index, conv.graph(data.x).edge_index)


def test_k_and_threshold_prune(data):
    conv = LatentGraphConv(4, 8, method='dense').eval()
    weight = torch.zeros(12, 12)
    edge_index, edge_weight = conv.graph(data.x)
    weight[edge_index[1], edge_index[0]] = edge_weight.detach()
    best = FreezeLatentGraph(conv, k=4)(data)
    expected = weight.topk(4).indices.sort().values
    assert torch.equal(best.edge_index[0].view(12, 4), expected)
    limit = float(weight.median())
    strong = FreezeLatentGraph(conv, threshold=limit)(data)
    assert strong.num_edges == int((weight > limit).sum())
    assert bool((strong.edge_weight > limit).all())


def test_given_candidates(data, model):
    out = FreezeLatentGraph(model, use_edge_index=True)(data)
    given = set(zip(*data.edge_index.tolist(), strict=True))
    assert set(zip(*out.edge_index.tolist(), strict=True)) == given
    text = r"'data\.edge_index' must hold the candidates"
    with pytest.raises(ValueError, match=text):
        FreezeLatentGraph(model, use_edge_index=True)(Data(x=data.x))


class Listed(torch.nn.Module):
    """A model of somebody else, whose edges are not sorted."""

    def __init__(self, edge_index: list[list[int]]) -> None:
        super().__init__()
        self.edge_index = torch.tensor(edge_index)

    def graph(self, x):
        return self.edge_index, torch.arange(1.0, 1 + self.edge_index.size(1))


def test_other_models(data):
    out = FreezeLatentGraph(Listed([[3, 1, 0], [2, 0, 2]]))(data)
    assert out.edge_index.tolist() == [[1, 0, 3], [0, 2, 2]]
    assert out.edge_weight.tolist() == [2.0, 3.0, 1.0]
    with pytest.raises(ValueError, match=r"'edge_index' has sources outside 0..11"):
        FreezeLatentGraph(Listed([[12], [0]]))(data)


def test_plain_convolutions_take_it(data, model):
    out = FreezeLatentGraph(model)(data)
    graph = (out.edge_index, out.edge_weight)
    # Row sums of the learned graph are 1: a plain weighted sum tells all.
    weighted = GCNConv(4, 5, normalize=False, bias=False)
    dense = torch.zeros(12, 12)
    dense[graph[0][1], graph[0][0]] = graph[1]
    torch.testing.assert_close(
        weighted(out.x, *graph), dense @ weighted.lin(out.x), atol=1e-5, rtol=1e-4
    )
    assert GCNConv(4, 5)(out.x, *graph).shape == (12, 5)
    assert GATConv(4, 5, edge_dim=1)(out.x, *graph).shape == (12, 5)
    assert SAGEConv(4, 5)(out.x, out.edge_index).shape == (12, 5)


def test_sparse_features(data, model):
    out = FreezeLatentGraph(model)(ToSparseFeatures()(data))
    expected = FreezeLatentGraph(model)(data)
    assert torch.equal(out.edge_index, expected.edge_index)
    torch.testing.assert_close(out.edge_weight, expected.edge_weight)


def test_transition_nodes():
    text = r'run from transition nodes to nodes; .*\(got {}\)'
    conv = TransitionGraphConv(4, 8, num_nodes=12, num_transition_nodes=5)
    with pytest.raises(ValueError, match=text.format('TransitionGraphConv')):
        FreezeLatentGraph(conv)
    model = GSLNet(4, 8, 2, 3, num_transition_nodes=5, num_nodes=12)
    with pytest.raises(ValueError, match=text.format('GSLNet')):
        FreezeLatentGraph(model)


def test_arguments(data, model):
    with pytest.raises(TypeError, match=r"'model' must be a torch.nn.Module \(got int"):
        FreezeLatentGraph(3)
    with pytest.raises(TypeError, match=r"method 'graphs' or 'graph' \(got Linear\)"):
        FreezeLatentGraph(torch.nn.Linear(4, 3))
    with pytest.raises(TypeError, match=r"'layer' must be an integer \(got str\)"):
        FreezeLatentGraph(model, 'last')
    with pytest.raises(ValueError, match=r"'k' must be at least 1 \(got 0\)"):
        FreezeLatentGraph(model, k=0)
    with pytest.raises(TypeError, match=r"'threshold' must be a number"):
        FreezeLatentGraph(model, threshold='a')
    with pytest.raises(TypeError, match=r"'use_edge_index' must be a bool \(got 'no'"):
        FreezeLatentGraph(model, use_edge_index='no')
    for layer in (2, -3):
        text = rf"'layer' must be one of the model's 2 layers \(got {layer}\)"
        with pytest.raises(ValueError, match=text):
            FreezeLatentGraph(model, layer)(data)


def test_functional_name(data, model):
    (out,) = DatasetAdapter([data]).freeze_latent_graph(model, layer=1)
    expected = FreezeLatentGraph(model, layer=1)(data)
    assert torch.equal(out.edge_weight, expected.edge_weight)


def test_repr(model):
    assert str(FreezeLatentGraph(model, k=3)) == (
        f'FreezeLatentGraph({model}, layer=0, k=3, threshold=0.0)'
    )
