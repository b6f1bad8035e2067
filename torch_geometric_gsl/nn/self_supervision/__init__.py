r"""Losses that train a similarity without labels, on sampled graphs."""

from torch_geometric_gsl.nn.self_supervision.consistency import consistency_loss
from torch_geometric_gsl.nn.self_supervision.losses import GraphContrast, GraphDenoising

__all__ = ['GraphDenoising', 'GraphContrast', 'consistency_loss']
