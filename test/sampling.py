"""What tests of the sampler share: features, samplers and a check of graphs."""

import torch
from oracles import seeded

from torch_geometric_gsl import Budget, GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.methods import BY_NAME
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity


def normal(*size, seed=3, dtype=torch.double):
    """Return normal numbers, the same for each call."""
    return torch.randn(*size, generator=seeded(seed), dtype=dtype)


def make(name='neural_gaussian', width=None, dtype=torch.double, **kwargs):
    """Return a sampler of nodes with six features."""
    torch.manual_seed(5)
    similarity = resolve_similarity(name, 6, out_channels=width)
    return GumbelKNNSampler.paper(similarity, **{'k': 3, **kwargs}).to(dtype)


def every_pair(form, x):
    """Return features, and what makes all pairs of them candidates in a form."""
    if form == 'edge_index':
        return x, {form: torch.ones(len(x), len(x)).nonzero().t().flip(0)}
    if form == 'batch':
        return x, {form: torch.zeros(len(x), dtype=torch.long)}
    return ((x, x) if form == 'pair' else x), {}


def limits(method, options=(), **budget):
    """Return a budget without numbers that a method has no use for."""
    is_whole = method in BY_NAME and not BY_NAME[method].is_truncated
    if is_whole or not dict(options).get('replace', True):
        budget = {
            name: v for name, v in budget.items() if name not in ('arrivals', 'tail')
        }
    return Budget(**budget)


def assert_graph(graph, total, num_sources=None):
    """Check edges and the sums of weights of targets, and return the edges."""
    (source, target), weight = graph
    num_sources = num_sources or total.numel()
    key = target * num_sources + source
    assert bool((key[1:] > key[:-1]).all())  # Sorted by target, no duplicates.
    assert int(source.min()) >= 0
    assert int(source.max()) < num_sources
    assert weight.shape == source.shape
    assert bool((weight >= 0).all())
    sums = torch.zeros(total.numel()).double()
    sums.index_add_(0, target, weight.detach().double())
    atol = 20 * torch.finfo(weight.dtype).eps
    torch.testing.assert_close(sums, total.double(), atol=atol, rtol=0)
    return source, target
