"""The models and controls that the paper compares with."""

from torch_geometric_gsl.baselines.hesgsl import HESGSL
from torch_geometric_gsl.baselines.idgl import IDGL
from torch_geometric_gsl.baselines.idgl_anchor import IDGLAnchor
from torch_geometric_gsl.baselines.knn_gcn import KNNGCN
from torch_geometric_gsl.baselines.knn_linkx import KNNLINKX
from torch_geometric_gsl.baselines.mlp import MLPClassifier
from torch_geometric_gsl.baselines.nodeformer import NodeFormer
from torch_geometric_gsl.baselines.slaps import SLAPS
from torch_geometric_gsl.baselines.sublime import SUBLIME

__all__ = [
    'KNNGCN',
    'KNNLINKX',
    'SLAPS',
    'SUBLIME',
    'HESGSL',
    'IDGL',
    'IDGLAnchor',
    'NodeFormer',
    'MLPClassifier',
]
