"""What tests of several types of nodes share: relations, rows and layers."""

import torch
from sampling import normal

from torch_geometric_gsl import HeteroLatentGraphConv

IN, OUT, K, TAU = {'doc': 6, 'word': 5, 'author': 3}, 4, 3, 0.4
SIZE = {'doc': 12, 'word': 9, 'author': 7}
IN_DOC = ('word', 'in', 'doc')
NEAR = ('doc', 'near', 'doc')
OF = ('author', 'of', 'doc')
HAS = ('doc', 'has', 'word')
RELATIONS = [IN_DOC, NEAR, OF, HAS]
BATCH = {name: torch.arange(size) * 2 // size for name, size in SIZE.items()}


def rows(**sizes):
    """Return rows of all types, of other numbers where these are given."""
    sizes = SIZE | sizes
    return {t: normal(sizes[t], IN[t], seed=len(t)) for t in IN}


def single(x):
    """Return the same rows in single precision."""
    return {t: value.float() for t, value in x.items()}


def ends(relations, values):
    """Return what there is of each type that relations join."""
    return {end: values[end] for relation in relations for end in relation[::2]}


def make(relations=RELATIONS, **options):
    """Return a layer whose biases have left their beginning."""
    torch.manual_seed(5)
    options = {'k': K, 'tau': TAU, **options}
    widths = ends(relations, IN)
    conv = HeteroLatentGraphConv(widths, OUT, relations, **options).double()
    for bias in conv.root.biases.values():
        torch.nn.init.normal_(bias)
    return conv


class Stack(torch.nn.Module):
    """Layers in turn; a type that a layer does not update keeps its rows."""

    def __init__(self, *convs):
        super().__init__()
        self.convs = torch.nn.ModuleList(convs)

    def graphs(self, x_dict, **kwargs):
        graphs = []
        for conv in self.convs:
            x = {t: x_dict[t] for t in conv.node_types}
            out, graph = conv(x, **kwargs, return_graph=True)
            x_dict = x_dict | {t: h.relu() for t, h in out.items()}
            graphs.append(graph)
        return graphs
