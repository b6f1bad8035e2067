"""Small models that generate their graph, and their method in whole matrices."""

import pytest
import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from torch_geometric_gsl.baselines import HESGSL, SLAPS, SUBLIME

N, IN, OUT, K = 9, 5, 3, 3
MASK = torch.tensor([0, 3, 4])
MODELS = {
    SLAPS: {'denoising_channels': 6, 'mask_ratio': 2.0},
    HESGSL: {'denoising_channels': 6, 'mask_ratio': 2.0, 'num_hops': 2},
    SUBLIME: {'encoder_channels': 5, 'embedding_channels': 4, 'projected_channels': 4},
}
MODEL_KINDS = pytest.mark.parametrize('kind', MODELS)
GENERATORS = pytest.mark.parametrize('graph_generator', ['mlp', 'mlp_d'])
LAYOUTS = pytest.mark.parametrize('layout', ['dense', 'sparse'])


def words(n=N, seed=0):
    """Words of positive weight, and a node without any."""
    generator = seeded(seed)
    x = torch.rand(n, IN, generator=generator, dtype=torch.float64) + 0.1
    x = x * (torch.rand(n, IN, generator=generator) < 0.6)
    x[:, 0] += 0.1
    x[2] = 0
    return x


def labels():
    """Labels of a few nodes; those of the others are not to be read."""
    y = torch.full((N,), -1)
    y[MASK] = torch.tensor([2, 0, 2])
    return y


def as_layout(x, layout):
    return x if layout == 'dense' else x.to_sparse_csr()


def build(kind, randomize=True, in_channels=IN, out_channels=OUT, **options):
    """A small model with parameters that are no longer those of its beginning."""
    torch.manual_seed(7)
    options = {'k': K, **MODELS[kind], **options}
    model = kind(in_channels, 4, 2, out_channels, **options).double().eval()
    if randomize:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter) / 2
    return model


def graph_matrix(model, x):
    """Row i holds the weights of the sources of node i."""
    return to_matrix(*model.graphs(x)[0], len(x), len(x))


# The method written out for whole matrices.


def adjacency(model, x, act, k=K):
    """Embed nodes, keep the nearest of each, and normalise both directions."""
    squash = {'tanh': torch.tanh, 'relu': torch.relu}[act]
    state = model.graph_generator.state_dict()
    if 'weight' in state:
        z = squash(x * state['weight'][0]) * state['weight'][1]
    else:
        h = squash(x @ state['first.weight'].t() + state['first.bias'])
        z = h @ state['second.weight'].t() + state['second.bias']
    z = F.normalize(z, dim=1)
    cosine = z @ z.t()
    nearest = cosine.argsort(dim=1, descending=True, stable=True)[:, : k + 1]
    kept = torch.zeros_like(cosine).scatter(1, nearest, cosine.gather(1, nearest))
    both = (kept.relu() + kept.relu().t()) / 2
    degree = both.sum(dim=1)
    scale = degree.where(degree > 0, 1).rsqrt()
    return scale.unsqueeze(1) * both * scale


def gcn(layers, a, h):
    for number, layer in enumerate(layers):
        h = a @ (h.relu() if number else h) @ layer.lin.weight.t() + layer.bias
    return h
