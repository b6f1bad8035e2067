"""What a process keeps is made once and shared, whatever threads do."""

import time
import warnings
from functools import cache

import pytest
import torch
from oracles import at_once
from torch_geometric.nn import Linear

from torch_geometric_gsl import GaussianSimilarity, GSLNet, GumbelKNNSampler, _warnings
from torch_geometric_gsl.nn import linear
from torch_geometric_gsl.ops.neighbours import Neighbours


def slowly(function, made):
    """Lets other threads in while something is made, and counts."""

    def make(*args, **kwargs):
        time.sleep(0.05)
        made.append(function(*args, **kwargs))
        return made[-1]

    return make


def test_features_are_ordered_once(monkeypatch):
    made = []
    monkeypatch.setattr(linear, 'Neighbours', slowly(Neighbours, made))
    x = (torch.rand(6, 5) < 0.4).float()
    sparse, lin = x.to_sparse_csr(), Linear(5, 3)
    with torch.no_grad():
        expected = lin(x)
        for out in at_once(lambda: linear.apply_linear(lin, sparse)):
            torch.testing.assert_close(out, expected)
    assert len(made) == 1


def test_filters_of_warnings_are_changed_once(monkeypatch):
    # As in a new process: each call that changes them may keep those of another one.
    made = []
    again = cache(_warnings._make_csr.__wrapped__)
    monkeypatch.setattr(_warnings, '_make_csr', again)
    make = slowly(torch.sparse_csr_tensor, made)
    monkeypatch.setattr(torch, 'sparse_csr_tensor', make)
    before = list(warnings.filters)
    at_once(_warnings.silence_csr_warning.__wrapped__)
    assert len(made) == 1
    assert list(warnings.filters) == before


def test_no_filter_of_warnings_is_touched(monkeypatch):
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(4), method='race')
    x = torch.randn(200, 4)
    sampler(x)  # The first call of a process may hide what PyTorch says once.
    monkeypatch.delattr(warnings, 'catch_warnings')
    at_once(lambda: sampler(x))


@pytest.mark.parametrize('is_training', [True, False])
def test_models_of_many_threads(is_training):
    torch.manual_seed(0)
    model = GSLNet(16, 8, 2, 3, dropout=0.0, method='race').train(is_training)
    x = torch.randn(150, 16)

    def step():
        generator = torch.Generator().manual_seed(1)
        out = model(x, generator=generator)
        return [out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))]

    expected = step()
    for results in at_once(step):
        for result, reference in zip(results, expected, strict=True):
            assert torch.equal(result, reference)
