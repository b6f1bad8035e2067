"""What tests of several types of nodes share: relations, rows, layers and networks."""

import torch
from sampling import normal

from torch_geometric_gsl import HeteroGSLNet, HeteroLatentGraphConv

IN, HIDDEN, OUT, K, TAU = {'doc': 6, 'word': 5, 'author': 3}, 8, 4, 3, 0.4
SIZE = {'doc': 12, 'word': 9, 'author': 7}
IN_DOC = ('word', 'in', 'doc')
NEAR = ('doc', 'near', 'doc')
OF = ('author', 'of', 'doc')
HAS = ('doc', 'has', 'word')
RELATIONS = [IN_DOC, NEAR, OF, HAS]
BATCH = {name: torch.arange(size) * 2 // size for name, size in SIZE.items()}
# A network that compares its input needs types of one width.
NET_IN = IN | {'word': 6}
NET_X = {t: normal(SIZE[t], NET_IN[t], seed=len(t)) for t in NET_IN}
EDGES = {IN_DOC: torch.stack([torch.arange(36) % 9, torch.arange(36) % 12])}


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
    for bias in conv.biases.values():
        torch.nn.init.normal_(bias)
    return conv


def make_net(target='doc', num_layers=2, relations=RELATIONS, out=OUT, **options):
    """Return a network of the types that the relations join."""
    torch.manual_seed(5)
    sizes = ends(relations, NET_IN), HIDDEN, num_layers, out
    model = HeteroGSLNet(*sizes, relations, target, **{'k': K, **options})
    return model.double()
