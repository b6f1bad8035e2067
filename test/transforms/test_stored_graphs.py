"""Graphs of models that are stored, and graphs that are dropped."""

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data
from torch_geometric.utils import degree

from torch_geometric_gsl.nn.conv import LatentGraphConv
from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.nn.sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity import LinearSimilarity, NeuralGaussianSimilarity
from torch_geometric_gsl.transforms import (
    DropObservedGraph,
    FreezeLatentGraph,
    SimilarityKNNGraph,
)

SAMPLER = GumbelKNNSampler(NeuralGaussianSimilarity(4), k=3)


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
        other = model.graphs(data.x)[layer - 1]
    assert torch.equal(out.edge_index, expected.edge_index)
    assert torch.equal(out.edge_weight, expected.edge_weight)
    assert not torch.equal(out.edge_weight, other.edge_weight)
    assert not out.edge_weight.requires_grad
    assert degree(out.edge_index[1], 12).tolist() == [3.0] * 12


@pytest.mark.parametrize('part', [LatentGraphConv(4, 8, eval_k=3), SAMPLER])
@pytest.mark.parametrize('layer', [0, -1])
def test_graph_of_a_part(data, part, layer, graph_of):
    part.train()
    out = FreezeLatentGraph(part, layer)(data)
    assert part.training
    batch = FreezeLatentGraph(part)(Batch.from_data_list([data, data]))
    assert torch.equal(graph_of(batch, 1)[0], out.edge_index)
    part.eval()
    expected = getattr(part, 'graph', part)(data.x)
    assert torch.equal(out.edge_index, expected.edge_index)
    torch.testing.assert_close(out.edge_weight, expected.edge_weight)
    assert not out.edge_weight.requires_grad


@pytest.mark.parametrize('loop', [True, False])
def test_a_small_graph_has_all_its_nodes_as_neighbours(loop):
    x = torch.randn(3, 4)
    sampler = GumbelKNNSampler(LinearSimilarity(4), eval_k=5, loop=loop)
    graph = FreezeLatentGraph(sampler)(Data(x=x))
    pairs = {(i, j) for i in range(3) for j in range(3) if loop or i != j}
    assert set(zip(*graph.edge_index.tolist(), strict=True)) == pairs


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
    given = set(zip(*data.edge_index.tolist(), strict=True))
    assert set(zip(*frozen(data).edge_index.tolist(), strict=True)) == given
    with pytest.raises(ValueError, match=r"'data\.edge_index' must hold the cand"):
        frozen(Data(x=data.x))


def test_a_null_neighbour_has_the_share_that_the_layer_gives_it(data):
    options = {'z_channels': -1, 'eval_k': 2, 'scale': 5.0, 'null_score': 5.0}
    layer = LatentGraphConv(4, 8, 'linear', **options).eval()
    frozen = FreezeLatentGraph(layer)(data.clone())
    total = torch.zeros(data.num_nodes)
    total = total.index_add(0, frozen.edge_index[1], frozen.edge_weight)
    ones = torch.ones(data.num_nodes, 1)
    expected = layer.sampler.propagate(data.x, ones).squeeze(1)
    torch.testing.assert_close(total, expected.detach())
    assert float(total.max()) < 0.9


def test_a_prior_is_mixed_in(data):
    model = GSLNet(4, 8, num_layers=1, out_channels=3, eval_k=2, observed='prior')
    with torch.no_grad():
        model.convs[0].prior.logit.fill_(1.0)
    graph = FreezeLatentGraph(model, use_edge_index=True)(data.clone())
    own = FreezeLatentGraph(model)(Data(x=data.x))
    matrix, learned, given = torch.zeros(3, 12, 12)
    matrix[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
    learned[own.edge_index[1], own.edge_index[0]] = own.edge_weight
    given[data.edge_index[1], data.edge_index[0]] = 1
    count = given.sum(dim=1, keepdim=True)
    share = torch.tensor(1.0).sigmoid() * (count > 0)
    expected = share * given / count.clamp(min=1) + (1 - share) * learned
    torch.testing.assert_close(matrix, expected)
    assert torch.equal(graph.observed_edge_index, data.edge_index)


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


EDGE = torch.tensor([[0], [1]])
# What may tell the number of nodes.
NODES = {
    'x': lambda size: torch.randn(size, 2),
    'pos': lambda size: torch.randn(size, 2),
    'num_nodes': lambda size: size,
    'node_type': lambda size: torch.zeros(size),
    'batch': lambda size: torch.zeros(size, dtype=torch.long),
}


def ring(size, **kwargs):
    edge_index = torch.stack([torch.arange(size), torch.arange(size).roll(-1)])
    mask = torch.arange(size) < 2
    return Data(y=torch.arange(size), mask=mask, edge_index=edge_index, **kwargs)


@pytest.mark.parametrize(
    'before', [T.Compose([]), SimilarityKNNGraph(k=2), T.ToSparseTensor(), T.ToDense()]
)
def test_drops_the_graph_in_every_form(examples, before):
    data = before(examples[0])
    if 'adj' not in data:
        data.kind = torch.arange(data.num_edges)
    out = DropObservedGraph()(data)
    assert set(out.keys()) == {'x', 'y', 'mask'}
    assert (out.num_nodes, out.num_edges, examples[0].num_edges) == (6, 0, 10)


def test_number_of_nodes_without_features():
    assert DropObservedGraph()(Data(edge_index=EDGE, num_nodes=5)).num_nodes == 5
    made = T.ToSparseTensor()(Data(edge_index=EDGE, num_nodes=3))
    del made.num_nodes
    assert DropObservedGraph()(made).to_dict() == {'num_nodes': 3}


def test_batch(examples):
    batch = Batch.from_data_list(examples, follow_batch=['edge_attr'])
    out = DropObservedGraph()(batch)
    assert set(out.keys()) == {'x', 'y', 'mask', 'batch', 'ptr'}
    assert torch.equal(batch[0].edge_index, examples[0].edge_index)
    with pytest.raises(RuntimeError, match='Cannot reconstruct'):
        out.to_data_list()


@pytest.mark.parametrize('key', NODES)
def test_labels_of_the_nodes_of_rings(key):
    # As many edges as nodes: neither labels nor masks belong to the edges.
    rings = [ring(n, edge_norm=torch.rand(n), **{key: NODES[key](n)}) for n in (4, 3)]
    for data in (
        rings[:1] if key == 'batch' else (rings[0], Batch.from_data_list(rings))
    ):
        out = DropObservedGraph()(data)
        kept = {'y', 'mask', key}
        assert kept <= set(out.keys()) <= kept | {'num_nodes', 'batch', 'ptr'}
        assert out.num_nodes == data.num_nodes
        assert out.y is data.y


def test_labels_given_to_a_batch_itself():
    rings = [Data(edge_index=ring(n).edge_index, num_nodes=n) for n in (4, 3)]
    batch = Batch.from_data_list(rings)
    batch.x, batch.y = torch.randn(7, 2), torch.arange(7)
    assert {'x', 'y'} <= set(DropObservedGraph()(batch).keys())
    batch = T.ToSparseTensor()(Batch.from_data_list(rings))
    batch.y = torch.arange(7)
    assert 'y' in DropObservedGraph()(batch)


@pytest.mark.parametrize('in_batch', [False, True])
@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")
def test_unknown_number_of_nodes(in_batch):
    # Three nodes have edges, the fourth one has a label only.
    edge_index = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    data = Data(edge_index=edge_index, y=torch.arange(4), edge_norm=torch.rand(4))
    if in_batch:
        data = Batch.from_data_list([data, data])
    out = DropObservedGraph()(data)
    assert 'y' in out
    assert not {'edge_index', 'edge_norm'} & set(out.keys())
    # Features tell that there are three, and labels for each of four edges.
    data.x = torch.randn(6 if in_batch else 3, 2)
    assert 'y' not in DropObservedGraph()(data)
