"""Baselines without a learned graph."""

from torch_geometric_gsl.baselines.knn_gcn import KNNGCN
from torch_geometric_gsl.baselines.mlp import MLPClassifier

__all__ = ['KNNGCN', 'MLPClassifier']
