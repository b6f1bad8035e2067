import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)

TRANSFORMS = {
    'knn': lambda **kwargs: SimilarityKNNGraph(k=3, **kwargs),
    'undirected': lambda **kwargs: SimilarityKNNGraph(
        k=3, force_undirected=True, **kwargs
    ),
    'sampled': lambda **kwargs: SampledLatentGraph(k=3, seed=12, **kwargs),
    'frozen': lambda **kwargs: FreezeLatentGraph(GSLNet(4, 8, 2, 3, k=3), **kwargs),
}


@pytest.fixture
def graph_of():
    """Finds the edges of an example of a batch, counted from its first node."""

    def find(batch, i):
        in_graph = batch.batch[batch.edge_index[1]] == i
        return batch.edge_index[:, in_graph] - batch.ptr[i], batch.edge_weight[in_graph]

    return find


@pytest.fixture(params=TRANSFORMS)
def make(request):
    return TRANSFORMS[request.param]


@pytest.fixture
def transform(make):
    return make()


@pytest.fixture
def examples():
    """Graphs of different sizes; the third one has as many edges as nodes."""
    return [
        Data(
            x=torch.randn(num_nodes, 4),
            edge_index=torch.randint(num_nodes, (2, num_edges)),
            edge_attr=torch.randn(num_edges, 2),
            edge_weight=torch.rand(num_edges),
            y=torch.tensor([num_nodes]),
            mask=torch.rand(num_nodes) > 0.5,
        )
        for num_nodes, num_edges in ((6, 10), (9, 1), (7, 7), (5, 0))
    ]
