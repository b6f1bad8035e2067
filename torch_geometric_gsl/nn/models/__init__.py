r"""Models that learn a graph."""

from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.hetero_gsl_net import HeteroGSLNet

__all__ = ['GSLNet', 'HeteroGSLNet', 'NodeClassifier']
