"""Weights of given edges, a prior of the choice among them."""

import pytest
import torch
from oracles import seeded

import torch_geometric_gsl as gsl
from torch_geometric_gsl.ops.dense import relaxed_weights

N, IN = 8, 4
DOUBLE = {'dtype': torch.double}
X = torch.randn(N, IN, generator=seeded(), **DOUBLE)
EVERY = torch.cartesian_prod(torch.arange(N), torch.arange(N)).t()
WEIGHT = torch.rand(N * N, generator=seeded(1), **DOUBLE) + 0.1


def make(**kwargs):
    return gsl.GumbelKNNSampler.paper(
        gsl.LinearSimilarity(IN), 3, **{'tau': 0.7} | kwargs
    )


def matrix(graph):
    out = torch.zeros(N, N, **DOUBLE)
    return out.index_put((graph.edge_index[1], graph.edge_index[0]), graph.edge_weight)


def prior():
    """Logarithms of the weights, a row for each target."""
    return torch.zeros(N, N, **DOUBLE).index_put((EVERY[1], EVERY[0]), WEIGHT.log())


@pytest.mark.parametrize('scale', [1.0, 5.0])
def test_the_definition_with_the_logarithms_added(scale):
    sampler = make(scale=scale, method='dense')
    graph = sampler(X, EVERY, WEIGHT, generator=seeded(2))
    score = scale * sampler.similarity(X) + prior()
    expected = relaxed_weights(score, 3, 0.7, generator=seeded(2))
    torch.testing.assert_close(matrix(graph), expected)
    sums = sampler.propagate(X, X, EVERY, WEIGHT, generator=seeded(2))
    torch.testing.assert_close(sums, expected @ X)
    expected = torch.softmax(score / 0.7, dim=1)
    torch.testing.assert_close(matrix(sampler.eval()(X, EVERY, WEIGHT)), expected)
    sums = sampler.propagate(X, X, EVERY, WEIGHT)
    torch.testing.assert_close(sums, expected @ X)


@pytest.mark.parametrize('training', [True, False])
def test_ones_change_nothing_and_factors_neither(training):
    sampler = make().train(training)
    plain = sampler(X, EVERY, generator=seeded(2))
    for factor in (1.0, 1e-30, 1e30):
        weight = torch.full((N * N,), factor, **DOUBLE)
        graph = sampler(X, EVERY, weight, generator=seeded(2))
        assert torch.equal(graph.edge_index, plain.edge_index)
        torch.testing.assert_close(graph.edge_weight, plain.edge_weight)
    # Beside a null neighbour a factor counts.
    sampler = make(null_score=0.0).double().train(training)
    totals = [
        matrix(sampler(X, EVERY, factor * WEIGHT, generator=seeded(2))).sum()
        for factor in (1e-3, 1e3)
    ]
    assert totals[0] < 0.1 * totals[1]


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('replace', [True, False])
def test_zero_excludes_and_equal_edges_add_up(training, replace):
    sampler = make(replace=replace).train(training)
    weight = WEIGHT.masked_fill(EVERY[0] == EVERY[1], 0)
    apart = EVERY[0] != EVERY[1]
    graph = sampler(X, EVERY, weight, generator=seeded(2))
    expected = sampler(X, EVERY[:, apart], WEIGHT[apart], generator=seeded(2))
    assert torch.equal(graph.edge_index, expected.edge_index)
    torch.testing.assert_close(graph.edge_weight, expected.edge_weight)
    assert sampler.distribution(X, EVERY, weight).candidates.tolist() == [N - 1] * N
    if replace:
        none = sampler.propagate(X, X, EVERY[:, :0], WEIGHT[:0])
        assert torch.equal(none, torch.zeros(N, IN, **DOUBLE))
    twice = torch.cat([EVERY, EVERY.flip(1)], dim=1)
    halves = torch.cat([WEIGHT * 0.25, (WEIGHT * 0.75).flip(0)])
    graph = sampler(X, twice, halves, generator=seeded(2))
    expected = sampler(X, EVERY, WEIGHT, generator=seeded(2))
    torch.testing.assert_close(graph.edge_weight, expected.edge_weight)


@pytest.mark.parametrize('training', [True, False])
def test_gradients(training):
    sampler = make(method='dense').train(training)
    keep = EVERY[1] < 3
    weight = WEIGHT[keep].clone()
    weight[2] = 0
    weight.requires_grad_()

    def run(weight):
        edges = EVERY[:, keep]
        return sampler.propagate(X, X, edges, weight, generator=seeded(2))[:3]

    positive = weight.detach() > 0
    (grad,) = torch.autograd.grad(run(weight).square().sum(), weight)
    assert grad[2] == 0
    assert bool((grad[positive] != 0).all())

    def of_positive(value):
        return run(weight.detach().masked_scatter(positive, value))

    assert torch.autograd.gradcheck(
        of_positive, weight.detach()[positive].requires_grad_()
    )


def test_the_nearest_of_equal_priors_where_scores_saturate():
    similarity = gsl.HeatKernelSimilarity(1, normalize=False)
    x = 1000 * torch.tensor([[0.0], [3.0], [1.0], [2.0]])
    sampler = gsl.GumbelKNNSampler.paper(similarity, eval_k=2, loop=False).eval()
    edges = torch.tensor([[1, 2, 3], [0, 0, 0]])
    graph = sampler(x, edges, torch.ones(3))
    assert graph.edge_index[0].tolist() == [2, 3]
    graph = sampler(x, edges, torch.tensor([2.0, 1.0, 1.0]))
    assert graph.edge_index[0].tolist() == [1, 2]


MODELS = {
    'conv': lambda: gsl.LatentGraphConv(IN, 3, 'linear'),
    'net': lambda: gsl.GSLNet(IN, 5, 2, 3, 'linear', dropout=0.0),
    'input': lambda: gsl.GSLNet(IN, 5, 2, 3, 'linear', z_channels=-1, dropout=0.0),
}


@pytest.mark.parametrize('name', MODELS)
def test_layers_and_models(name):
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    edges = EVERY[:, EVERY[0] != EVERY[1]]
    weight = WEIGHT[EVERY[0] != EVERY[1]].clone()
    plain, ones = model(X, edges), torch.ones_like(weight)
    torch.testing.assert_close(model(X, edges, ones), plain)
    assert not torch.allclose(model(X, edges, weight), plain)
    torch.testing.assert_close(
        model(X, edges, edge_weight=weight), model(X, edges, weight)
    )
    keep = edges[0] > 1
    zeros = weight * keep
    expected = model(X, edges[:, keep], weight[keep])
    torch.testing.assert_close(model(X, edges, zeros), expected)
