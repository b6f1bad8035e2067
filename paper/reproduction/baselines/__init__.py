"""The published models that the paper compares with."""

from reproduction.baselines.idgl import IDGL, IDGLAnchor
from reproduction.baselines.knn_linkx import KNNLINKX
from reproduction.baselines.nodeformer import NodeFormer
from reproduction.baselines.slaps import HESGSL, SLAPS
from reproduction.baselines.sublime import SUBLIME

__all__ = [
    'KNNLINKX',
    'SLAPS',
    'SUBLIME',
    'HESGSL',
    'IDGL',
    'IDGLAnchor',
    'NodeFormer',
]
