from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl.nn.models import GSLNet
from torch_geometric_gsl.transforms import (
    FreezeLatentGraph,
    SampledLatentGraph,
    SimilarityKNNGraph,
)


def _frozen() -> FreezeLatentGraph:
    return FreezeLatentGraph(GSLNet(4, 8, num_layers=2, out_channels=3, k=3))


@pytest.fixture(
    params=[
        lambda: SimilarityKNNGraph(k=3),
        lambda: SimilarityKNNGraph(k=3, force_undirected=True),
        lambda: SampledLatentGraph(k=3, seed=12),
        _frozen,
    ],
    ids=['knn', 'undirected', 'sampled', 'frozen'],
)
def transform(request: pytest.FixtureRequest) -> BaseTransform:
    return request.param()


@pytest.fixture
def examples() -> list[Data]:
    """Graphs of different sizes; the third one has as many edges as nodes."""
    made = []
    for num_nodes, num_edges in ((6, 10), (9, 1), (7, 7), (5, 0)):
        made.append(
            Data(
                x=torch.randn(num_nodes, 4),
                edge_index=torch.randint(num_nodes, (2, num_edges)),
                edge_attr=torch.randn(num_edges, 2),
                edge_weight=torch.rand(num_edges),
                y=torch.tensor([num_nodes]),
                mask=torch.rand(num_nodes) > 0.5,
            )
        )
    return made
