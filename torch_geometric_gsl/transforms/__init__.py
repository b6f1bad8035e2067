r"""Give :class:`torch_geometric.data.Data` another graph, or none."""

from torch_geometric_gsl.transforms.feature_graphs import (
    SampledLatentGraph,
    SimilarityKNNGraph,
)
from torch_geometric_gsl.transforms.freeze_latent_graph import FreezeLatentGraph
from torch_geometric_gsl.transforms.plain_transforms import (
    DropObservedGraph,
    ToSparseFeatures,
)

__all__ = [
    'SimilarityKNNGraph',
    'SampledLatentGraph',
    'FreezeLatentGraph',
    'DropObservedGraph',
    'ToSparseFeatures',
]
