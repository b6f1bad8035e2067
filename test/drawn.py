"""What tests of self-supervision share: nodes, samplers, and networks as matrices."""

import torch
from oracles import seeded, to_matrix
from torch.nn import functional as F

from reproduction.self_supervision.functional import hide_channels, mask_features
from reproduction.self_supervision.networks import Denoiser
from torch_geometric_gsl import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity

N, IN, HIDDEN, K = 12, 6, 5, 3
BATCH = torch.arange(N) // 6
# A list of candidates inside of the graphs of the batch, some with fewer than others.
EDGES = torch.tensor(
    [(j, i) for i in range(N) for j in range(N) if i // 6 == j // 6 and (i * j) % 4 < 3]
).t()
CALLS = {
    'all': {},
    'candidates': {'edge_index': EDGES},
    'batch': {'batch': BATCH},
    'both': {'edge_index': EDGES, 'batch': BATCH},
}


def words(n=N, seed=0, dtype=torch.double):
    """Return words of positive weight, some of which are absent."""
    generator = seeded(seed)
    x = torch.rand(n, IN, generator=generator, dtype=torch.double) + 0.1
    return (x * (torch.rand(n, IN, generator=generator) < 0.7)).to(dtype)


def embeddings(n=N, width=4, seed=1):
    """Return rows that a similarity may compare."""
    return torch.randn(n, width, generator=seeded(seed), dtype=torch.double)


def make_sampler(width=4, name='neural_gaussian', **kwargs):
    """Return a sampler with parameters that are not those of its beginning."""
    torch.manual_seed(5)
    given = {'k': K, 'tau': 0.8, 'scale': 3.0, 'train_scale': True, **kwargs}
    sampler = GumbelKNNSampler.paper(resolve_similarity(name, width), **given).double()
    with torch.no_grad():
        for parameter in sampler.similarity.parameters():
            parameter += torch.randn_like(parameter) / 3
    return sampler


def move(module):
    """Add noise to the parameters of a network: biases begin as zeros."""
    torch.manual_seed(6)
    with torch.no_grad():
        for parameter in module.network.parameters():
            parameter += torch.randn_like(parameter) / 3
    return module


def matrix(graph, n=N):
    """Return the matrix of a graph, whose row i holds what node i hears."""
    return to_matrix(graph.edge_index, graph.edge_weight, n, n)


def reference(network, x, graph, generator, anchor=None):
    """Compute a loss from whole matrices, with the random numbers of the network."""

    def adjacency(graph):
        edge_index, weight = graph
        if network.training and (dropout := network.adjacency_dropout) > 0:
            keep = torch.empty(weight.numel())
            keep = keep.bernoulli_(1 - dropout, generator=generator)
            weight = weight * keep / (1 - dropout)
        return to_matrix(edge_index, weight, len(x), len(x))

    def two_layers(a, h):
        h = (a @ h @ network.first.lin.weight.t() + network.first.bias).relu()
        return a @ h @ network.last.lin.weight.t() + network.last.bias

    if isinstance(network, Denoiser):
        ratio = network.negative_ratio if network.binary else None
        masked = mask_features(x, network.mask_ratio, ratio, generator=generator)
        assert 5 < masked.target.numel() < x.numel()
        place = masked.row, masked.column
        hidden = x if network.sees_hidden else x.index_put(place, x.new_zeros(()))
        out = two_layers(adjacency(graph), hidden)[place]
        if network.binary:
            return (-torch.where(x[place] > 0, out, -out)).exp().log1p().mean()
        return (out - x[place]).square().mean()
    views = []
    for edges, rate in zip((anchor, graph), network.mask_rate, strict=True):
        hidden = hide_channels(x, rate, generator)
        h = two_layers(adjacency(edges), hidden)
        h = h @ network.project_first.weight.t() + network.project_first.bias
        views.append(network.project_last(h.relu()))
    return contrast(*views, network.temperature)


def contrast(first, second, temperature):
    """Compute the contrast of two views, a pair of nodes at a time."""
    n, terms = len(first), []
    cosine = [
        [F.cosine_similarity(a, b, dim=0) / temperature for b in second] for a in first
    ]
    for i in range(n):
        row = torch.stack([cosine[i][j].exp() for j in range(n)]).sum()
        column = torch.stack([cosine[j][i].exp() for j in range(n)]).sum()
        terms += [cosine[i][i] - row.log(), cosine[i][i] - column.log()]
    return -torch.stack(terms).sum() / (2 * n)
