r"""Give :class:`torch_geometric.data.Data` another graph, or none."""

from torch_geometric_gsl.transforms.drop_observed_graph import DropObservedGraph
from torch_geometric_gsl.transforms.freeze_latent_graph import FreezeLatentGraph
from torch_geometric_gsl.transforms.sampled_latent_graph import SampledLatentGraph
from torch_geometric_gsl.transforms.similarity_knn_graph import SimilarityKNNGraph
from torch_geometric_gsl.transforms.to_sparse_features import ToSparseFeatures

__all__ = [
    'SimilarityKNNGraph',
    'SampledLatentGraph',
    'FreezeLatentGraph',
    'DropObservedGraph',
    'ToSparseFeatures',
]
