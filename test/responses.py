"""The table of responses: one row each, which the tests of `ops` go through."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from oracles import seeded, softmax

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.pair_scores import PairScores


class Row(NamedTuple):
    """A response: its class, what it is made for, and its formula over numbers."""

    cls: type[scores.Response]
    formula: Callable[..., float]
    comparison: str = 'dot'
    params: tuple[float, ...] = ()
    bounds: tuple[float, float] = (-1.0, 1.0)  # Of rows of unit norm.


class Cube(scores.Response):
    """The response of a user, which no kernel knows."""

    monotonic = 1

    @staticmethod
    def value(t):
        return t**3


class Wave(scores.Response):
    """The response of a user that neither rises nor falls."""

    @staticmethod
    def value(t, shift):
        return torch.sin(3 * t + shift)

    @staticmethod
    def interval(low, high, shift):
        middle, half = Wave.value((low + high) / 2, shift), 1.5 * (high - low)
        return (middle - half).clamp(min=-1), (middle + half).clamp(max=1)


class Tanh(scores.Response):
    """The response of a user who bounds nothing."""

    @staticmethod
    def value(t):
        return t.tanh()


RESPONSES = {
    'identity': Row(scores.Identity, lambda t: t),
    'difference': Row(scores.Difference, lambda t: 1 - t, bounds=(0.0, 2.0)),
    'gaussian': Row(
        scores.Gaussian,
        lambda t, b, c: math.exp(-((t - b) ** 2) / c),
        params=(0.5, 0.05),
        bounds=(0.0, 1.0),
    ),
    'mixture': Row(
        scores.Mixture,
        lambda t, a, b, c: a * t + (1 - a) * math.exp(-((t - b) ** 2) / c),
        params=(0.4, 0.5, 0.05),
    ),
    'heat_kernel': Row(
        scores.HeatKernel,
        lambda t, width: math.exp(-t / width),
        'squared_distance',
        (0.5,),
        (0.0, 1.0),
    ),
    'negative': Row(
        scores.Negative, lambda t: -t, 'squared_distance', bounds=(-math.inf, 0.0)
    ),
}
OF_USERS = {
    'of a user': Row(Cube, lambda t: t**3),
    'a wave': Row(Wave, lambda t, shift: math.sin(3 * t + shift), params=(0.3,)),
}


def comparison_of(name):
    """Return what a response of this name is made for."""
    return RESPONSES[name].comparison


def random_response(name, n, generator=None, least=0.2, dtype=torch.float32):
    """Return a response of `n` targets, whose parameters are random."""
    shape = len(RESPONSES[name].params), n
    params = torch.rand(shape, generator=generator, dtype=dtype) + least
    if name == 'mixture':
        params[0] /= 1 + least  # A share.
    return RESPONSES[name].cls(*params)


def bounded_pairs(name, dst, src, scale, params):
    """Return scores of a response in the table, with its bounds."""
    row = {**RESPONSES, **OF_USERS}[name]
    lower, upper = (scale * bound for bound in row.bounds)
    response = row.cls(*params)
    return PairScores(dst, src, response, row.comparison, scale, lower, upper)


def known_pairs(x, src, name, scale=1.0, *, spread=0.0, loop=True):
    """Return scores whose parameters differ by target as far as they spread."""
    n = x.size(0)
    params = tuple(
        base + spread * torch.rand(n, generator=seeded(3), dtype=x.dtype)
        for base in (0.5, 0.3, 0.3)[: len(RESPONSES[name].params)]
    )
    if name == 'mixture':
        params = params[0].clamp(max=1), *params[1:]  # A share.
    response, excluded = RESPONSES[name].cls(*params), None if loop else torch.arange(n)
    return PairScores(x, src, response, comparison_of(name), scale, excluded=excluded)


def noise_free(h, pairs, tau):
    """Return sums of all sources number by number, in double precision."""
    weight = [softmax([s / tau for s in row]) for row in pairs.rows().tolist()]
    shape = pairs.dst.size(0), pairs.src.size(0)
    return torch.tensor(weight, dtype=torch.float64).view(shape) @ h.double()
