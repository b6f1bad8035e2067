"""Graphs of models that are stored, and graphs that are dropped."""

import re

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import degree

from torch_geometric_gsl.nn.conv import LatentGraphConv
from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import LinearSimilarity, NeuralGaussianSimilarity
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
)

SAMPLER = GumbelKNNSampler.paper(NeuralGaussianSimilarity(4), k=3)


@pytest.fixture
def data():
    edge_index = torch.tensor([[0, 1, 2, 5, 7], [1, 0, 5, 2, 8]])
    return Data(x=torch.randn(12, 4), edge_index=edge_index)


@pytest.fixture
def model():
    return GSLNet(4, 8, num_layers=2, out_channels=3, eval_k=3, z_channels=None)


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
        other_layer = model.graphs(data.x)[layer - 1]
    assert torch.equal(out.edge_index, expected.edge_index)
    assert torch.equal(out.edge_weight, expected.edge_weight)
    assert not torch.equal(out.edge_weight, other_layer.edge_weight)
    assert not out.edge_weight.requires_grad
    assert degree(out.edge_index[1], 12).tolist() == [3.0] * 12


NULL = {'z_channels': -1, 'eval_k': 2, 'scale': 5.0, 'null_score': 5.0}
PARTS = {
    'layer': LatentGraphConv(4, 8, eval_k=3),
    'sampler': SAMPLER,
    'more neighbours than nodes': GumbelKNNSampler.paper(
        LinearSimilarity(4), eval_k=50
    ),
    'null neighbour': LatentGraphConv(4, 8, 'linear', **NULL),
    'candidates': LatentGraphConv(4, 8, eval_k=2),
}


@pytest.mark.parametrize('name', PARTS)
@pytest.mark.parametrize('layer', [0, -1])
def test_graph_of_a_part(data, name, layer, graph_of):
    module, is_given = PARTS[name].train(), name == 'candidates'
    out = FreezeLatentGraph(module, layer, use_edge_index=is_given)(data)
    assert module.training
    batch = Batch.from_data_list([data, data])
    batch = FreezeLatentGraph(module, use_edge_index=is_given)(batch)
    assert torch.equal(graph_of(batch, 1)[0], out.edge_index)
    module.eval()
    expected = getattr(module, 'graph', module)(data.x, *[data.edge_index][:is_given])
    assert torch.equal(out.edge_index, expected.edge_index)
    torch.testing.assert_close(out.edge_weight, expected.edge_weight)
    assert not out.edge_weight.requires_grad
    assert torch.equal(out.observed_edge_index, data.edge_index)


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


@pytest.mark.parametrize('of', ['model', 'sampler'])
def test_given_candidates(data, model, of):
    frozen = FreezeLatentGraph(model if of == 'model' else SAMPLER, use_edge_index=True)
    candidates = set(zip(*data.edge_index.tolist(), strict=True))
    assert set(zip(*frozen(data).edge_index.tolist(), strict=True)) == candidates
    with pytest.raises(ValueError, match=r"'data\.edge_index' must hold the cand"):
        frozen(Data(x=data.x))


class Listed(torch.nn.Module):
    """A model of somebody else, whose edges are not sorted."""

    def __init__(self, edge_index):
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


def test_indexed_rows_are_not_the_nodes():
    model = GSLNet(4, 8, 2, 3).eval().index(torch.randn(20, 4))
    text = "'model' must have no index (got 20 rows, which are not the nodes of 'data')"
    with pytest.raises(ValueError, match=re.escape(text)):
        FreezeLatentGraph(model)(Data(x=torch.randn(30, 4)))
    assert FreezeLatentGraph(model.clear_index())(Data(x=torch.randn(30, 4))).num_edges
