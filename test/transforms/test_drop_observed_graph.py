from __future__ import annotations

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.datapipes import DatasetAdapter

from torch_geometric_gsl.transforms import DropObservedGraph, SimilarityKNNGraph


def test_drops_edges_and_what_belongs_to_them(examples):
    data = examples[0]
    data.kind = torch.arange(10)
    out = DropObservedGraph()(data)
    assert set(out.keys()) == {'x', 'y', 'mask'}
    assert out.num_nodes == 6
    assert out.num_edges == 0
    assert data.num_edges == 10


def test_drops_what_a_transform_has_kept(examples):
    out = T.Compose([SimilarityKNNGraph(k=2), DropObservedGraph()])(examples[0])
    assert set(out.keys()) == {'x', 'y', 'mask'}


def test_drops_sparse_matrices(examples):
    out = DropObservedGraph()(T.ToSparseTensor()(examples[0]))
    assert set(out.keys()) == {'x', 'y', 'mask'}
    out = DropObservedGraph()(T.ToDense()(examples[0]))
    assert 'adj' not in out


def test_number_of_nodes_without_features():
    adj_t = T.ToSparseTensor()(
        Data(edge_index=torch.tensor([[0], [1]]), num_nodes=7)
    ).adj_t
    out = DropObservedGraph()(Data(adj_t=adj_t))
    assert set(out.keys()) == {'num_nodes'}
    assert out.num_nodes == 7
    given = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=5)
    assert DropObservedGraph()(given).num_nodes == 5


def test_number_of_nodes_in_a_batch_without_features():
    def make(num_nodes):
        edge_index = torch.tensor([[0], [1]])
        data = T.ToSparseTensor()(Data(edge_index=edge_index, num_nodes=num_nodes))
        return Data(adj_t=data.adj_t)

    batch = DropObservedGraph()(Batch.from_data_list([make(3), make(4)]))
    assert batch.num_nodes == 7
    assert [data.num_nodes for data in batch.to_data_list()] == [3, 4]
    assert 'adj_t' not in batch[0]


def test_batch(examples):
    batch = Batch.from_data_list(examples)
    out = DropObservedGraph()(batch)
    for data, single in zip(out.to_data_list(), examples, strict=True):
        assert set(data.keys()) == {'x', 'y', 'mask'}
        assert torch.equal(data.x, single.x)
    assert torch.equal(batch[0].edge_index, examples[0].edge_index)


def test_no_graph():
    assert DropObservedGraph()(Data()).to_dict() == {}


def test_heterogeneous_data():
    with pytest.raises(TypeError, match=r"'data' must be .* \(got HeteroData\)"):
        DropObservedGraph()(HeteroData())


def test_functional_name(examples):
    outs = list(DatasetAdapter(examples).drop_observed_graph())
    assert all('edge_index' not in out for out in outs)


def test_repr():
    assert str(DropObservedGraph()) == 'DropObservedGraph()'
