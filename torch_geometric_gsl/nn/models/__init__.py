r"""Models that learn a graph."""

from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet

__all__ = ['GSLNet', 'NodeClassifier']
