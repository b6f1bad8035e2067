r"""Graph convolutions on learned graphs."""

from torch_geometric_gsl.nn.conv.hetero_latent_graph_conv import HeteroLatentGraphConv
from torch_geometric_gsl.nn.conv.knn_edge_conv import KNNEdgeConv
from torch_geometric_gsl.nn.conv.latent_graph_conv import LatentGraphConv
from torch_geometric_gsl.nn.conv.sensor_graph_conv import SensorGraphConv
from torch_geometric_gsl.nn.conv.transition_graph_conv import TransitionGraphConv

__all__ = [
    'LatentGraphConv',
    'SensorGraphConv',
    'TransitionGraphConv',
    'HeteroLatentGraphConv',
    'KNNEdgeConv',
]
