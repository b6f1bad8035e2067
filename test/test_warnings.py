"""A warning points at the line of the user that caused it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_geometric_gsl import (
    GaussianSimilarity,
    GSLNet,
    GumbelKNNSampler,
    SampledEvaluationWarning,
)
from torch_geometric_gsl._warnings import warn_caller

X = torch.randn(1100, 4, generator=torch.Generator().manual_seed(0))
Run = Callable[[], Any]


def make_sampler() -> GumbelKNNSampler:
    return GumbelKNNSampler(GaussianSimilarity(4), max_eval_pairs=1).eval()


def make_model() -> GSLNet:
    return GSLNet(4, 4, 2, 2, max_eval_pairs=1).eval()


def line() -> int:
    return sys._getframe(1).f_lineno


@pytest.fixture(params=['sampler', 'model', 'no_grad', 'compiled'])
def run(request: pytest.FixtureRequest) -> Run:
    """What warns, through layers of the package and of PyTorch."""
    if request.param == 'sampler':
        sampler = make_sampler()
        return lambda: sampler.propagate(X, X)
    model: Any = make_model()
    if request.param == 'no_grad':
        model = torch.no_grad()(model)
    elif request.param == 'compiled':
        model = torch.compile(model, backend='eager')
    return lambda: model(X)


def test_an_estimate_points_at_the_caller(run: Run) -> None:
    with pytest.warns(SampledEvaluationWarning) as seen:
        run()
    assert {warning.filename for warning in seen} == {__file__}
    assert {warning.lineno for warning in seen} == {run.__code__.co_firstlineno}


def test_later_lines_are_warned_too() -> None:
    sampler = make_sampler()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter('default')  # Once for each line, as Python does.
        for _ in range(2):
            first = line(), sampler.propagate(X, X)
        second = line(), sampler.propagate(X, X)
    assert [warning.lineno for warning in seen] == [first[0], second[0]]


def test_nobody_outside() -> None:
    # Python shows what is called from nowhere, too.
    with pytest.warns(UserWarning, match='^text$') as seen:
        exec(
            compile("warn('text', UserWarning)", torch.__file__, 'exec'),
            {'warn': warn_caller},
        )
    assert seen[0].filename == __file__
