r"""Models that learn a graph."""

from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.models.table_net import TableNet

__all__ = ['GSLNet', 'NodeClassifier', 'TableNet']
