"""Calls at run time: from `ops` none go up into `nn`; gradients are not derived."""

import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from oracles import seeded

import torch_geometric_gsl
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.scores import Response

PACKAGE = str(Path(torch_geometric_gsl.__file__).parent) + '/'
OPS, NN = PACKAGE + 'ops/', PACKAGE + 'nn/'
N = 130
BATCH = torch.zeros(N, dtype=torch.long)
EDGES = (torch.ones(N, N) > 0).nonzero().t().flip(0)
# A method and the form of the candidates: all ways to draw neighbours.
WAYS = {
    'race': ('race', {}),
    'stream': ('stream', {}),
    'dense': ('dense', {}),
    'lists': ('dense', {'edge_index': EDGES}),
    'own candidates': ('race', {'edge_index': EDGES}),
    'batch': ('race', {'batch': BATCH}),
}


class OwnResponse(Response):
    @staticmethod
    def value(value, b):
        return (-((value - b) ** 2)).exp()


class Own(Similarity):
    """A similarity of a user: bells around a value of each target."""

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def response(self, z):
        return OwnResponse(z[:, 0])


def calls_from_ops(run, *files):
    """Count the calls of functions in files that the floor of `ops` makes."""
    count = 0

    def note(frame, event, _):
        nonlocal count
        if event != 'call' or not frame.f_code.co_filename.startswith(files):
            return
        caller = frame.f_back
        while caller and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller and caller.f_code.co_filename.startswith(OPS):
            count += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def make(name, way, **options):
    method, given = WAYS[way]
    options = {'k': 2, 'scale': 0.5, **options}
    similarity = Own(6) if name == 'own' else resolve_similarity(name, 6)
    sampler = GumbelKNNSampler(similarity, method=method, **options)
    x = torch.randn(N, 6, generator=seeded(0), requires_grad=True)
    assert sampler.plan(x, **given).method == method
    return sampler, x, given


def step(name, way):
    sampler, x, given = make(name, way)

    def run():
        for training in (True, False):
            sampler.train(training)
            total = sampler(x, **given).edge_weight.square().sum()
            (sampler.propagate(x, x, **given).sum() + total).backward()
            sampler.distribution(x, **given)

    return run


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', ['neural_gaussian', 'heat_kernel', 'own'])
def test_ops_call_nothing_above_but_the_response_of_a_user(name, way):
    run = step(name, way)
    assert calls_from_ops(run, NN) == 0
    assert calls_from_ops(run, OPS) > 50  # Calls are seen.
    assert (calls_from_ops(run, __file__) >= 3) is (name == 'own')


@pytest.mark.parametrize('output', ['sum', 'graph'])
@pytest.mark.parametrize('way', WAYS)
def test_second_derivatives(way, output):
    sampler, x, given = make('neural_gaussian', way)
    if output == 'sum':
        out = sampler.propagate(x, x.detach(), **given)
    else:
        out = sampler(x, **given).edge_weight
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    text = r'second derivatives are not implemented: the gradient of \w+ cannot'
    with pytest.raises(RuntimeError, match=text):
        grad.square().sum().backward()
