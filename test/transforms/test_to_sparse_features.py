import pytest
import torch
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from torch_geometric_gsl.transforms import ToSparseFeatures


@pytest.fixture
def data():
    x = torch.randn(6, 5).relu()
    return Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.arange(6))


def test_same_values(data):
    out = ToSparseFeatures()(data)
    assert out.x.layout == torch.sparse_csr
    assert out.x.values().numel() == int((data.x > 0).sum())
    assert torch.equal(out.x.to_dense(), data.x)
    assert data.x.layout == torch.strided
    assert out.edge_index is data.edge_index
    assert (out.num_nodes, out.num_features) == (6, 5)
    assert torch.equal(ToSparseFeatures()(out).x.to_dense(), data.x)


def test_batch_before_and_after(data, tmp_path):
    other = Data(x=torch.eye(5)[:3], edge_index=data.edge_index, y=torch.arange(3))
    dense = Batch.from_data_list([data, other])
    after = ToSparseFeatures()(dense)
    sparse = [ToSparseFeatures()(one) for one in (data, other)]
    before = next(iter(DataLoader(sparse, batch_size=2)))
    InMemoryDataset.save(sparse, tmp_path / 'data.pt')
    dataset = InMemoryDataset()
    dataset.load(tmp_path / 'data.pt')
    assert torch.equal(dataset[0].x.to_dense(), data.x)
    for batch in (after, before):
        assert batch.x.layout == torch.sparse_csr
        assert torch.equal(batch.x.to_dense(), dense.x)
        assert torch.equal(batch.edge_index, dense.edge_index)
        assert torch.equal(batch.batch, dense.batch)
