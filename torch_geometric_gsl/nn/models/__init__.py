r"""Models that learn a graph."""

from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.idgl import IDGL
from torch_geometric_gsl.nn.models.idgl_anchor import IDGLAnchor
from torch_geometric_gsl.nn.models.knn_gcn import KNNGCN
from torch_geometric_gsl.nn.models.knn_linkx import KNNLINKX
from torch_geometric_gsl.nn.models.mlp import MLPClassifier
from torch_geometric_gsl.nn.models.nodeformer import NodeFormer
from torch_geometric_gsl.nn.models.slaps import SLAPS

__all__ = [
    'NodeClassifier',
    'GSLNet',
    'KNNGCN',
    'KNNLINKX',
    'SLAPS',
    'IDGL',
    'IDGLAnchor',
    'NodeFormer',
    'MLPClassifier',
]
