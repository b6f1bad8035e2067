r"""Replace the graph of :class:`torch_geometric.data.Data`."""

from torch_geometric_gsl.transforms.feature_graphs import (
    SampledLatentGraph,
    SimilarityKNNGraph,
)
from torch_geometric_gsl.transforms.refine_graph import RefineGraph
from torch_geometric_gsl.transforms.stored_graphs import FreezeLatentGraph

__all__ = [
    'SimilarityKNNGraph',
    'SampledLatentGraph',
    'RefineGraph',
    'FreezeLatentGraph',
]
