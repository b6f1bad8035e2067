"""Evaluation: it plans no draw, and sums over some of too many sources."""

import re

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl import SampledEvaluationWarning
from torch_geometric_gsl.nn.sampler import Budget, evaluation, methods, training
from torch_geometric_gsl.nn.sampler import plan as planning
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops import noise_free

N, SAMPLES, TAU, SCALE = 40, 12, 0.5, 1.5
X = torch.randn(N, 6, generator=seeded(0)).double()
H = torch.randn(N, 3, generator=seeded(1)).double()


@pytest.fixture
def _few_samples(monkeypatch):
    monkeypatch.setattr(evaluation, 'LEAST_SAMPLES', SAMPLES)
    monkeypatch.setattr(noise_free, '_MIN_PAIRS', 0)


def make(name, loop=True):
    similarity = resolve_similarity(name, 6, out_channels=4)
    options = {'loop': loop, 'budget': Budget(eval_pairs=1)}
    sampler = GumbelKNNSampler.paper(similarity, k=2, tau=TAU, scale=SCALE, **options)
    return sampler.double().eval()


@pytest.mark.usefixtures('_few_samples')
def test_the_warning_tells_the_error_and_the_size():
    sampler = make('gaussian')
    with pytest.warns(SampledEvaluationWarning) as seen:
        out = sampler.propagate(X, H).detach()
    phi = sampler.similarity(X).detach()
    exact = torch.softmax(SCALE * phi / TAU, dim=1) @ H
    error = (out - exact).square().mean().sqrt()
    size = out.square().mean().sqrt()
    text = (
        f'the sums over 40 x 40 pairs are estimated from 12 sources with an error of '
        f'{float(error):.2g} (root mean square over some targets; the sums have '
        f"{float(size):.2g}): a larger 'eval_pairs' of the budget makes "
        f'them exact'
    )
    assert re.fullmatch(re.escape(text), str(seen[0].message))


@pytest.mark.parametrize('form', ['all', 'edge_index', 'batch', 'rows'])
def test_evaluation_plans_no_draw(form, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError('a draw is planned')

    for module in (training, methods, planning):
        for name in ('make_draw', 'choose', 'plan_draw', 'tail_size', 'num_proposals'):
            monkeypatch.setattr(module, name, refuse, raising=False)
    kwargs = {
        'all': {},
        'edge_index': {'edge_index': torch.ones(N, N).nonzero().t()},
        'batch': {'batch': torch.zeros(N).long()},
        'rows': {'rows': (0, N)},
    }[form]
    similarity = resolve_similarity('gaussian', 6).double()
    sampler = GumbelKNNSampler.paper(similarity, scale=SCALE, tau=TAU).double()
    with pytest.raises(AssertionError, match='is planned'):
        sampler(X, **kwargs)
    sampler.eval()
    graph = sampler(X, **kwargs)
    weight = torch.softmax(SCALE * similarity(X) / TAU, dim=1)
    torch.testing.assert_close(graph.edge_weight, weight.flatten())
    torch.testing.assert_close(sampler.propagate(X, H, **kwargs), weight @ H)
    assert sampler.distribution(X, **kwargs).candidates.tolist() == [N] * N
