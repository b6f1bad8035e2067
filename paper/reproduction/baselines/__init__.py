"""The models that the paper compares with: published ones, and controls."""

from reproduction.baselines.idgl import IDGL, IDGLAnchor
from reproduction.baselines.knn_gcn import KNNGCN
from reproduction.baselines.knn_linkx import KNNLINKX
from reproduction.baselines.mlp import MLPClassifier
from reproduction.baselines.nodeformer import NodeFormer
from reproduction.baselines.slaps import HESGSL, SLAPS
from reproduction.baselines.sublime import SUBLIME

__all__ = [
    'MLPClassifier',
    'KNNGCN',
    'KNNLINKX',
    'SLAPS',
    'SUBLIME',
    'HESGSL',
    'IDGL',
    'IDGLAnchor',
    'NodeFormer',
]
