import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data

from torch_geometric_gsl.transforms import DropObservedGraph, SimilarityKNNGraph

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
