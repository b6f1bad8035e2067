"""The models and controls that the paper compares with."""

from torch_geometric_gsl.baselines.idgl import IDGL, IDGLAnchor
from torch_geometric_gsl.baselines.knn import KNNGCN, KNNLINKX
from torch_geometric_gsl.baselines.mlp import MLPClassifier
from torch_geometric_gsl.baselines.nodeformer import NodeFormer
from torch_geometric_gsl.baselines.slaps import HESGSL, SLAPS
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
