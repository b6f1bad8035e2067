r"""Losses that train a similarity without a network, on sampled graphs."""

from reproduction.self_supervision.consistency import consistency_loss
from reproduction.self_supervision.label_loss import leave_one_out_loss
from reproduction.self_supervision.losses import GraphContrast, GraphDenoising

__all__ = [
    'GraphDenoising',
    'GraphContrast',
    'consistency_loss',
    'leave_one_out_loss',
]
