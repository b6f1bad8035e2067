import torch
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from torch_geometric_gsl.transforms import ToSparseFeatures


def test_values_batches_and_data_sets(tmp_path):
    edge_index = torch.tensor([[0, 1], [1, 0]])
    data = Data(x=torch.randn(6, 5).relu(), edge_index=edge_index, y=torch.arange(6))
    out = ToSparseFeatures()(data)
    assert out.x.layout == torch.sparse_csr
    assert out.x.values().numel() == int((data.x > 0).sum())
    assert torch.equal(out.x.to_dense(), data.x)
    assert data.x.layout == torch.strided
    assert out.edge_index is data.edge_index
    assert (out.num_nodes, out.num_features) == (6, 5)
    assert torch.equal(ToSparseFeatures()(out).x.to_dense(), data.x)

    other = Data(x=torch.eye(5)[:3], edge_index=data.edge_index, y=torch.arange(3))
    dense = Batch.from_data_list([data, other])
    sparse = [ToSparseFeatures()(one) for one in (data, other)]
    for batch in (ToSparseFeatures()(dense), next(iter(DataLoader(sparse, 2)))):
        assert batch.x.layout == torch.sparse_csr
        assert torch.equal(batch.x.to_dense(), dense.x)
        assert torch.equal(batch.edge_index, dense.edge_index)
        assert torch.equal(batch.batch, dense.batch)
    InMemoryDataset.save(sparse, tmp_path / 'data.pt')
    dataset = InMemoryDataset()
    dataset.load(tmp_path / 'data.pt')
    assert torch.equal(dataset[0].x.to_dense(), data.x)
