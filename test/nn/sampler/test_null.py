"""The null neighbour: a candidate of all targets, without a message."""

import pytest
import torch
from oracles import relaxed, replay, seeded
from sampling import assert_graph, every_pair, make, normal

from torch_geometric_gsl import Budget
from torch_geometric_gsl.diagnostics import describe_model

N, K, TAU, NULL = 12, 3, 0.5, 1.3
# Pairs, given candidates, a batch: the definition of all of them, and its sequence.
FORMS = ['all', 'edge_index', 'batch', 'pair']
METHODS = ['dense', 'race', 'stream', 'pool']


def sampler(**kwargs):
    kwargs = {'k': K, 'tau': TAU, 'scale': 2.0, 'null_score': NULL, **kwargs}
    return make('linear', **kwargs)


def scores(x, scale=2.0):
    unit = torch.nn.functional.normalize(x, dim=1)
    return scale * unit @ unit.T


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('form', FORMS)
def test_the_definition_has_one_more_column(form, hard):
    x = normal(N, 6)
    module = sampler(method='dense', hard=hard)
    args, kwargs = every_pair(form, x)
    graph = module(args, **kwargs, generator=seeded(4))
    score = torch.cat([scores(x), torch.full((N, 1), NULL).double()], dim=1)
    expected = relaxed(score, replay(4, N, K, N + 1), TAU, hard)
    assert_graph(graph, expected[:, :-1].sum(dim=1))
    weight = torch.zeros(N, N).double()
    weight[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight.detach()
    torch.testing.assert_close(weight, expected[:, :-1])


@pytest.mark.parametrize('form', FORMS)
def test_evaluation_is_the_softmax_with_it(form):
    x, h = normal(N, 6), normal(N, 4, seed=9)
    module = sampler().eval()
    args, kwargs = every_pair(form, x)
    total = torch.cat([scores(x), torch.full((N, 1), NULL).double()], dim=1)
    weight = (total / TAU).softmax(dim=1)[:, :-1]
    torch.testing.assert_close(module.propagate(args, h, **kwargs), weight @ h)
    graph = module(args, **kwargs)
    assert_graph(graph, weight.sum(dim=1))
    # The nearest carry the weight of all: a graph that is frozen has the layer's size.
    few = sampler(eval_k=2).eval()(args, **kwargs)
    assert_graph(few, weight.sum(dim=1))
    near = (scores(x).topk(2, dim=1).values / TAU).softmax(dim=1)
    nearest = few.edge_weight.view(N, 2).sort(descending=True).values
    torch.testing.assert_close(nearest, near * weight.sum(dim=1, keepdim=True))


@pytest.mark.parametrize('memory', [2**25, 2**10])
def test_large_sums(memory):
    # Tiles of weights relative to the bound, without and with gradients.
    x, h = normal(3_000, 6).float(), normal(3_000, 2, seed=9).float()
    module = sampler(scale=1.0, null_score=7.0, budget=Budget(memory=memory))
    module = module.float().eval()
    few = torch.arange(0, 3_000, 300)
    total = scores(x.double(), 1.0)[few]
    total = torch.cat([total, torch.full((10, 1), 7.0).double()], dim=1)
    expected = (total / TAU).softmax(dim=1)[:, :-1] @ h.double()
    with torch.no_grad():
        out = module.propagate(x, h)[few].double()
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-6)
    if memory == 2**25:
        out = module.propagate(x, h)[few].double()
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('tau', [0.1, 0.5, 1.0])
def test_races_weigh_it_as_the_definition_does(tau):
    # Means of the share of the null neighbour, its square, and a weighted sum.
    x, h = normal(20, 6), normal(20, 1, seed=8)
    moments = []
    for method in METHODS:
        module = sampler(tau=tau, method=method, null_score=4.0)
        samples = []
        for seed in range(50):
            with torch.no_grad():
                values = [
                    module.propagate(x, m, generator=seeded(seed))
                    for m in (torch.ones_like(h), h)
                ]
            samples.append(torch.cat([*values, values[0] ** 2, values[1] ** 2], dim=1))
        samples = torch.stack(samples)  # [seeds, nodes, 4]
        moments.append((samples.mean(dim=(0, 1)), samples.mean(dim=1).std(dim=0)))
    mean, std = moments[0]
    for value, spread in moments[1:]:
        z = (value - mean) / ((std**2 + spread**2) / 50).sqrt()
        assert float(z.abs().max()) < 4.9  # 36 of them: below 1e-4 in all.


def test_limits():
    x = normal(N, 6)
    graph = sampler(null_score=-80.0, method='race')(x, generator=seeded(1))
    assert_graph(graph, torch.ones(N))
    graph = sampler(null_score=80.0, method='race')(x, generator=seeded(1))
    assert float(graph.edge_weight.detach().max()) < 1e-12
    for method in METHODS:
        out = sampler(null_score=300.0, tau=0.01, method=method).float()
        sums = out.propagate(x.float(), x.float(), generator=seeded(1))
        assert torch.equal(sums, torch.zeros_like(sums))
        sums = out.eval().propagate(x.float(), x.float())
        assert torch.equal(sums, torch.zeros_like(sums))


def test_diagnostics_tell_its_share():
    x = normal(N, 6).float()
    module = sampler().float()
    expected = (NULL - scores(x).logsumexp(dim=1)).sigmoid().double()
    for form in FORMS[:3]:
        args, kwargs = every_pair(form, x)
        distribution = module.distribution(args, **kwargs)
        torch.testing.assert_close(distribution.null, expected, atol=1e-5, rtol=0)
    assert make('linear').distribution(x.double()).null is None
    summary = describe_model(module, x)
    assert 'null neighbour' in str(summary)
    torch.testing.assert_close(summary.layers[0].null, expected, atol=1e-5, rtol=0)


def test_the_present_score_is_shown():
    sampler = make(k=2, null_score=1.0)
    sampler.null_score.data.fill_(2.5)
    assert 'null_score=2.5' in repr(sampler)
