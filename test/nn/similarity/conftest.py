r"""The formulas of all similarities, written as loops over Python floats.

A formula maps a similarity and two *projected* rows, of the target and of the
source, to a score. Modules differ only by their arguments.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from oracles import inner, sigmoid, unit

from torch_geometric_gsl import nn
from torch_geometric_gsl.ops.scores import MAX_SQUARE

Row = list[float]
IN_CHANNELS = 5


def _cosine(u, v):
    return inner(unit(u), unit(v))


def _bell(t, b, c):
    return math.exp(-((t - b) ** 2) / c)


def _gaussian(module, u, v):
    return _bell(_cosine(u, v), module.b, module.c)


def _neural(module, u, v):
    w_b, w_c = (w.double().flatten().tolist() for w in (module.w_b, module.w_c))
    bias_b, bias_c = (
        0.0 if bias is None else bias.item() for bias in (module.bias_b, module.bias_c)
    )
    centre = {'sigmoid': sigmoid, 'tanh': math.tanh}[module.centre]
    b = centre(inner(unit(u), w_b) + bias_b)
    c = module.c_scale * sigmoid(inner(unit(u), w_c) + bias_c)
    return _bell(_cosine(u, v), b, c)


def _mixture(module, u, v):
    a = sigmoid(4 * module.raw_share.item())
    return a * _cosine(u, v) + (1 - a) * _neural(module.bell, u, v)


def _heat(module, u, v):
    if module.normalize:
        u, v = unit(u), unit(v)
    return math.exp(-(math.dist(u, v) ** 2) / module.t)


def _negative(module, u, v):
    return -min(math.dist(u, v) ** 2, MAX_SQUARE)  # Larger ones are not told apart.


def _heads(module, u, v):
    heads = module.weight.double().tolist()
    total = 0.0
    for w in heads:
        weighted = ([a * b for a, b in zip(w, row, strict=True)] for row in (u, v))
        total += _cosine(*weighted)
    return total / len(heads)


class Case(NamedTuple):
    """A class, its arguments, the formula of its score, and what it shows of itself.

    `rows` are those of each parameter, which has a column for each channel; a bias has
    no columns. Each of the `bad` arguments raises an error that holds a text.
    """

    name: str
    cls: Callable[..., nn.Similarity]
    kwargs: dict[str, Any]
    formula: Callable[[Any, Row, Row], float]
    text: str = ''
    rows: dict[str, int] = {}  # noqa: RUF012
    bad: tuple[tuple[dict[str, Any], type[Exception], str], ...] = ()

    def build(self, *args, **kwargs):
        return self.cls(*(args or (IN_CHANNELS,)), **{**self.kwargs, **kwargs})

    def expect(self, module, x_dst, x_src):
        """The scores of all sources for all targets, in double precision."""
        rows = [_project(module, x) for x in (x_dst, x_src)]
        scores = [[self.formula(module, u, v) for v in rows[1]] for u in rows[0]]
        return torch.tensor(scores, dtype=torch.float64).view(len(x_dst), len(x_src))


def _project(module, x):
    rows = x.detach().double().tolist()
    if module.lin is None:
        return rows
    weight = module.lin.weight.detach().double().tolist()
    return [[inner(row, column) for column in weight] for row in rows]


BELLS = {'w_b': 1, 'w_c': 1}
CASES = [
    Case('linear', nn.LinearSimilarity, {}, lambda _, u, v: _cosine(u, v)),
    Case('difference', nn.DifferenceSimilarity, {}, lambda _, u, v: 1 - _cosine(u, v)),
    Case(
        'gaussian',
        nn.GaussianSimilarity,
        {},
        _gaussian,
        'b=0.5, c=0.05437',
        bad=(
            ({'c': 0}, ValueError, r"'c' must be positive .*\(got 0\)"),
            ({'c': True}, TypeError, r"'c' must be .* \(got bool\)"),
            ({'b': math.nan}, ValueError, "'b' must be finite"),
        ),
    ),
    Case(
        'wide_gaussian',
        nn.GaussianSimilarity,
        {'b': -0.2, 'c': 0.7},
        _gaussian,
        'b=-0.2, c=0.7',
    ),
    Case(
        'neural_gaussian',
        nn.NeuralGaussianSimilarity,
        {},
        _neural,
        'c_scale=0.1',
        BELLS,
        (
            ({'c_scale': 0}, ValueError, r"'c_scale' must be pos.* \(got 0\)"),
            ({'c_scale': 'wide'}, TypeError, r"'c_scale' must be .* \(got str\)"),
            ({'centre': 'cosh'}, ValueError, r"'centre' must be .* \(got 'cosh'\)"),
            ({'bias': 1}, TypeError, "'bias' must be a bool"),
        ),
    ),
    Case(
        'moving_bell',
        nn.NeuralGaussianSimilarity,
        {'bias': True, 'centre': 'tanh'},
        _neural,
        "c_scale=8, bias=True, centre='tanh'",
        {**BELLS, 'bias_b': 0, 'bias_c': 0},
    ),
    Case(
        'mixture',
        nn.MixtureSimilarity,
        {'share': 0.7},
        _mixture,
        'share=0.7',
        {'raw_share': 0, **{f'bell.{name}': rows for name, rows in BELLS.items()}}
        | {'bell.bias_b': 0, 'bell.bias_c': 0},
        (
            ({'share': 1.0}, ValueError, r"'share' must lie between 0 and 1 \(got 1"),
            ({'share': 'half'}, TypeError, r"'share' must be .* \(got str\)"),
            ({'c_scale': 0}, ValueError, r"'c_scale' must be pos.* \(got 0\)"),
        ),
    ),
    Case(
        'heat_kernel',
        nn.HeatKernelSimilarity,
        {'t': 0.7},
        _heat,
        't=0.7, normalize=True',
        bad=(
            ({'t': -1.0}, ValueError, r"'t' must be positive and fin.*\(got -1.0\)"),
            ({'t': '2'}, TypeError, r"'t' must be .* \(got str\)"),
            ({'normalize': 1}, TypeError, "'normalize' must be a bool"),
        ),
    ),
    Case(
        'raw_heat_kernel',
        nn.HeatKernelSimilarity,
        {'normalize': False},
        _heat,
        't=2, normalize=False',
    ),
    Case('distance', nn.DistanceSimilarity, {}, _negative),
    Case(
        'cosine',
        nn.CosineSimilarity,
        {'heads': 3},
        _heads,
        'heads=3',
        {'weight': 3},
        (
            ({'heads': 0}, ValueError, r"'heads' must be at least 1 \(got 0\)"),
            ({'heads': 2.0}, TypeError, "'heads' must be an integer"),
            # Its heads are weights already.
            ({'feature_weights': True}, TypeError, 'feature_weights'),
        ),
    ),
]


@pytest.fixture(params=CASES, ids=[case.name for case in CASES], scope='session')
def case(request):
    """One similarity after the other."""
    return request.param
