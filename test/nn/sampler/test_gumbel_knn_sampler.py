import math
from functools import partial

import oracles
import pytest
import sampling
import torch
from oracles import seeded
from sampling import normal

from torch_geometric_gsl import (
    GumbelKNNSampler,
    LinearSimilarity,
)
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

N = 9
make = partial(sampling.make, width=4, dtype=torch.float)


def features(num_nodes=N, seed=3):
    return normal(num_nodes, 6, seed=seed, dtype=torch.float)


def to_matrix(graph):
    return oracles.to_matrix(*graph, N, N).detach()


def assert_graph(graph, num_nodes=N):
    sampling.assert_graph(graph, torch.ones(num_nodes))


def test_repr():
    assert str(GumbelKNNSampler(LinearSimilarity(4))) == (
        'GumbelKNNSampler(LinearSimilarity(4), k=5, tau=0.25, scale=1.0, method=auto)'
    )
    sampler = make(k=2, tau=1, scale=3, method='dense')
    assert str(sampler) == (
        'GumbelKNNSampler(NeuralGaussianSimilarity(6, 4, c_scale=0.1), k=2, tau=1.0, '
        'scale=3.0, method=dense)'
    )
    assert str(make(null_score=0.0)).endswith('null_score=0.0, method=auto)')


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('hard', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize('n', [1, N])
def test_as_many_neighbours_as_candidates(n, method, hard, training):
    sampler = make(method=method, k=n, hard=hard, replace=False).train(training)
    graph = sampler(features(n))
    assert_graph(graph, n)
    assert graph.edge_weight.numel() == n * n
    if hard and training:
        torch.testing.assert_close(graph.edge_weight, torch.full((n * n,), 1 / n))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_no_nodes(method, training):
    sampler = make(method=method).train(training)
    nothing = features(0)
    graphs = [
        sampler(nothing),
        sampler((nothing, nothing)),
        sampler((features(5), nothing)),
        sampler(nothing, batch=torch.empty(0, dtype=torch.long)),
    ]
    none = torch.empty(2, 0, dtype=torch.long)
    if method == 'dense' or not training:
        graphs.append(sampler(nothing, none))
        sums = sampler.propagate(features(), features(), none)
        assert torch.equal(sums, torch.zeros_like(sums))
    assert sampler.propagate(nothing, nothing).shape == (0, 6)
    for graph in graphs:
        assert graph.edge_index.shape == (2, 0)
        assert graph.edge_index.dtype == torch.long
        assert graph.edge_weight.shape == (0,)
        assert graph.edge_weight.dtype == torch.float
    assert sampler.plan(nothing)[2:] == (None, None, 0, None)


@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('eval_k', ['all', 3])
@pytest.mark.parametrize('name', SIMILARITIES)
def test_evaluation(name, eval_k, loop):
    options = {'loop': loop, 'eval_k': eval_k}
    sampler = make(name, scale=2.0, tau=0.3, **options).double().eval()
    x = features().double()
    state = torch.get_rng_state()
    weight = to_matrix(sampler(x))
    assert torch.equal(state, torch.get_rng_state())  # Nothing was drawn.
    phi = sampler.similarity(x).tolist()
    for i in range(N):
        kept = [j for j in range(N) if loop or j != i]
        if eval_k != 'all':
            kept = sorted(kept, key=lambda j: phi[i][j])[-3:]
        power = {j: math.exp(2.0 * phi[i][j] / 0.3) for j in kept}
        for j in range(N):
            expected = power.get(j, 0.0) / sum(power.values())
            assert float(weight[i, j]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_randomness(method):
    sampler, x = make(method=method), features()
    state = torch.get_rng_state()
    first = to_matrix(sampler(x, generator=seeded(1)))
    assert torch.equal(first, to_matrix(sampler(x, generator=seeded(1))))
    assert not torch.equal(first, to_matrix(sampler(x, generator=seeded(2))))
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(1)  # The global generator is one generator among others.
    assert torch.equal(first, to_matrix(sampler(x)))
    assert not torch.equal(first, to_matrix(sampler(x)))


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype, method, training):
    sampler = make(method=method).to(dtype).train(training)
    x = features().to(dtype).requires_grad_()
    graph = sampler(x)
    assert graph.edge_weight.dtype == dtype
    assert_graph(graph)
    graph.edge_weight.square().sum().backward()
    for tensor in (x, *sampler.parameters()):
        assert tensor.grad.dtype == dtype
        assert bool(tensor.grad.isfinite().all())


def test_graph_ids_are_names_not_counts():
    sampler = make().eval()
    x = features(8)
    ids = torch.tensor([0, 0, 0, 0, 10**12, 10**12, 10**12, 10**12])
    expected = sampler(x, batch=ids.clamp(max=1))
    torch.testing.assert_close(sampler(x, batch=ids), expected)
    pair = sampler((x, x), batch=(ids, ids))
    torch.testing.assert_close(pair, expected)
