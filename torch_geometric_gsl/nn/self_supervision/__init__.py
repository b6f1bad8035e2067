r"""Losses that teach a similarity without labels, on the graph that is drawn."""

from torch_geometric_gsl.nn.self_supervision.consistency import consistency_loss
from torch_geometric_gsl.nn.self_supervision.losses import GraphContrast, GraphDenoising

__all__ = ['GraphDenoising', 'GraphContrast', 'consistency_loss']
