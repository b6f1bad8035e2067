"""A small table net in double precision, and rows for it."""

import torch
from oracles import seeded
from torch.nn import functional as F

from torch_geometric_gsl.nn.models.table_net import TableNet

IN, HIDDEN = 4, 8


def make(out_channels=1, **options):
    torch.manual_seed(2)
    options = {'num_frequencies': 0, 'dropout': 0.0, 'graph_dropout': 0.0, **options}
    return TableNet(IN, HIDDEN, out_channels, **options).double()


def draw_rows(n=30, seed=0):
    x = torch.randn(n, IN, generator=seeded(seed)).double()
    return x, torch.randn(n, generator=seeded(seed + 1)).double()


def after_the_sum(net, h):
    """Apply what follows the sum over neighbours."""
    for block in net.blocks:
        h = h + block.lin2(F.mish(block.lin1(block.norm(h))))
    return net.head(net.head_norm(h).relu())
