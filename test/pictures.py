"""Graphs and layers to draw, and what stands on axes."""

import torch
from matplotlib.collections import LineCollection, PathCollection

from torch_geometric_gsl.diagnostics.summaries import LayerSummary
from torch_geometric_gsl.typing import SampledGraph

NOTHING = SampledGraph(torch.empty(2, 0, dtype=torch.long), torch.empty(0))


def layer(name='convs.0.sampler', b=None, c=None):
    nothing = torch.empty(0)
    return LayerSummary(name, 'Sampler()', *[nothing] * 3, 1.0, b, c, {})


def bells(name='convs.0.sampler'):
    b, c = torch.tensor([0.2, 0.3, 0.4]), torch.tensor([0.02, 0.04, 0.08])
    return layer(name, b, c)


def ring(num_nodes):
    node = torch.arange(num_nodes)
    edge_index = torch.stack([node, (node + 1) % num_nodes])
    return SampledGraph(edge_index, torch.linspace(0.1, 1, num_nodes))


def lines_of(ax):
    return {
        artist.get_gid(): artist
        for artist in ax.collections
        if isinstance(artist, LineCollection)
    }


def dots_of(ax):
    return [a for a in ax.collections if isinstance(a, PathCollection)]
