"""Calls at run time: from `ops` none go up into `nn`; gradients are not derived."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest
import torch
from oracles import seeded
from torch import Tensor

import torch_geometric_gsl
from torch_geometric_gsl.nn.models.gsl_net import GSLNet
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.ops.scores import Response

PACKAGE = str(Path(torch_geometric_gsl.__file__).parent) + '/'
OPS, NN = PACKAGE + 'ops/', PACKAGE + 'nn/'
N = 130
BATCH = torch.zeros(N, dtype=torch.long)
EDGES = (torch.ones(N, N) > 0).nonzero().t().flip(0)
# A method and the form of the candidates: all ways to draw neighbours.
WAYS: dict[str, tuple[str, dict[str, Tensor]]] = {
    'race': ('race', {}),
    'stream': ('stream', {}),
    'dense': ('dense', {}),
    'lists': ('dense', {'edge_index': EDGES}),
    'own candidates': ('race', {'edge_index': EDGES}),
    'batch': ('race', {'batch': BATCH}),
}


class Own(Similarity):
    """A similarity of a user: bells around a centre of each target."""

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def response(self, z: Tensor) -> Response:
        return Response(bell, (z[:, 0].sigmoid(),))


def bell(cosine: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-((cosine - b) ** 2))


def calls_from_ops(run: Callable[[], Any], *files: str) -> int:
    """Count the calls of functions in files that the floor of `ops` makes."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
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


def make(name: str, way: str, **options: Any) -> tuple[Any, Tensor, dict[str, Tensor]]:
    method, given = WAYS[way]
    options = {'k': 2, 'scale': 0.5, **options}
    similarity: Similarity = Own(6) if name == 'own' else resolve_similarity(name, 6)
    sampler = GumbelKNNSampler(similarity, method=method, **options)
    x = torch.randn(N, 6, generator=seeded(0), requires_grad=True)
    assert sampler.plan(x, **given).method == method
    return sampler, x, given


def step(name: str, way: str) -> Callable[[], None]:
    sampler, x, given = make(name, way)

    def run() -> None:
        for training in (True, False):
            sampler.train(training)
            total = sampler(x, **given).edge_weight.square().sum()
            (sampler.propagate(x, x, **given).sum() + total).backward()
            sampler.distribution(x, **given)

    return run


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', [*SIMILARITIES, 'uniform'])
def test_ops_call_nothing_above(name: str, way: str) -> None:
    run = step(name, way)
    assert calls_from_ops(run, NN) == 0
    assert calls_from_ops(run, OPS) > 50  # Calls are seen.


@pytest.mark.parametrize('way', WAYS)
def test_but_a_response_of_a_user(way: str) -> None:
    run = step('own', way)
    assert calls_from_ops(run, NN) == 0
    assert calls_from_ops(run, __file__) >= 3


ERROR = r'second derivatives are not implemented: the gradient of \w+ cannot'


def derive_twice(out: Tensor, x: Tensor, route: str) -> None:
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    total = grad.square().sum()
    again = (
        partial(torch.autograd.grad, inputs=x) if route == 'grad' else Tensor.backward
    )
    with pytest.raises(RuntimeError, match=ERROR):
        again(total)


@pytest.mark.parametrize('route', ['grad', 'backward'])
@pytest.mark.parametrize('output', ['sum', 'graph'])
@pytest.mark.parametrize('way', WAYS)
def test_second_derivatives(way: str, output: str, route: str) -> None:
    sampler, x, given = make('neural_gaussian', way)
    if output == 'sum':
        out = sampler.propagate(x, x.detach(), **given)
    else:
        out = sampler(x, **given).edge_weight
    derive_twice(out, x, route)


@pytest.mark.parametrize('route', ['grad', 'backward'])
@pytest.mark.parametrize('wanted', ['x', 'h'])
@pytest.mark.parametrize('way', ['race', 'stream', 'dense', 'lists'])
def test_second_derivatives_of_a_model(way: str, wanted: str, route: str) -> None:
    method, given = WAYS[way]
    torch.manual_seed(0)
    model = GSLNet(6, 4, 2, 3, 'gaussian', k=2, method=method, dropout=0.0)
    x = torch.randn(N, 6, generator=seeded(0), requires_grad=True)
    leaf = x if wanted == 'x' else model.convs[0].lin.weight
    derive_twice(model(x, **given), leaf, route)
