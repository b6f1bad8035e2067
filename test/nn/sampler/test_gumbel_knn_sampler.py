"""The form of sampled graphs: of few candidates, and of many that a race never sees."""

import math
from functools import partial

import pytest
import sampling
import torch
from oracles import seeded, to_matrix
from sampling import assert_graph, normal

from torch_geometric_gsl import Budget, GumbelKNNSampler, LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

N = 9
make = partial(sampling.make, width=4)


def matrix(graph):
    return to_matrix(*graph, N, N).detach()


def test_repr():
    assert str(GumbelKNNSampler.paper(LinearSimilarity(4))) == (
        'GumbelKNNSampler(LinearSimilarity(4), k=5, tau=0.25, scale=1.0, '
        'train_scale=False, loop=True)'
    )
    assert str(GumbelKNNSampler(LinearSimilarity(4))) == (
        'GumbelKNNSampler(LinearSimilarity(4), k=5, tau=0.5, scale=20.0)'
    )
    sampler = make(k=2, tau=1, scale=3, method='dense')
    assert str(sampler) == (
        'GumbelKNNSampler(NeuralGaussianSimilarity(6, 4, c_scale=0.1), k=2, tau=1.0, '
        "scale=3.0, train_scale=False, loop=True, method='dense')"
    )
    options = {
        'train_scale': False,
        'null_score': 0.0,
        'loop': True,
        'hard': True,
        'replace': False,
        'method': 'stream',
        'eval_k': 'all',
        'budget': Budget(memory=7),
    }
    shown = ', '.join(f'{name}={value!r}' for name, value in options.items())
    assert str(make(**options)).endswith(f'scale=1.0, {shown})')


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('hard', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
@pytest.mark.parametrize('n', [1, N])
def test_as_many_neighbours_as_candidates(n, method, hard, training):
    sampler = make(method=method, k=n, hard=hard, replace=False).train(training)
    graph = sampler(normal(n, 6))
    assert_graph(graph, torch.ones(n))
    assert graph.edge_weight.numel() == n * n
    if hard and training:
        torch.testing.assert_close(
            graph.edge_weight, torch.full((n * n,), 1 / n).double()
        )


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream', 'pool'])
def test_no_nodes(method, training):
    sampler = make(method=method).train(training)
    nothing = normal(0, 6)
    graphs = [
        sampler(nothing),
        sampler((nothing, nothing)),
        sampler((normal(5, 6), nothing)),
        sampler(nothing, batch=torch.empty(0, dtype=torch.long)),
    ]
    none = torch.empty(2, 0, dtype=torch.long)
    if method == 'dense' or not training:
        graphs.append(sampler(nothing, none))
        sums = sampler.propagate(normal(N, 6), normal(N, 6), none)
        assert torch.equal(sums, torch.zeros_like(sums))
    assert sampler.propagate(nothing, nothing).shape == (0, 6)
    for graph in graphs:
        assert graph.edge_index.shape == (2, 0)
        assert graph.edge_index.dtype == torch.long
        assert graph.edge_weight.shape == (0,)
        assert graph.edge_weight.dtype == torch.double
    assert sampler.plan(nothing)[2:] == (None, None, 0, None, 0.0)


@pytest.mark.parametrize('train_scale', [True, False])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('eval_k', ['all', 3])
@pytest.mark.parametrize('name', SIMILARITIES)
def test_evaluation(name, eval_k, loop, train_scale):
    options = {'loop': loop, 'eval_k': eval_k, 'train_scale': train_scale}
    sampler = make(name, scale=2.0, tau=0.3, **options).eval()
    x = normal(N, 6)
    state = torch.get_rng_state()
    weight = matrix(sampler(x))
    assert torch.equal(state, torch.get_rng_state())  # Nothing was drawn.
    error = 1e-6 if train_scale else 1e-12  # A learned scale is in single precision.
    phi = sampler.similarity(x).tolist()
    for i in range(N):
        neighbours = [j for j in range(N) if loop or j != i]
        if eval_k != 'all':
            neighbours = sorted(neighbours, key=lambda j: phi[i][j])[-3:]
        power = {j: math.exp(2.0 * phi[i][j] / 0.3) for j in neighbours}
        for j in range(N):
            expected = power.get(j, 0.0) / sum(power.values())
            assert float(weight[i, j]) == pytest.approx(expected, abs=error)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream', 'pool'])
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(dtype, method, training):
    sampler = make(method=method).to(dtype).train(training)
    x = normal(N, 6).to(dtype).requires_grad_()
    graph = sampler(x)
    assert graph.edge_weight.dtype == dtype
    assert_graph(graph, torch.ones(N))
    graph.edge_weight.square().sum().backward()
    for tensor in (x, *sampler.parameters()):
        assert tensor.grad.dtype == dtype
        assert bool(tensor.grad.isfinite().all())


def test_graph_ids_are_names_not_counts():
    sampler = make().eval()
    x = normal(8, 6)
    ids = torch.tensor([0, 0, 0, 0, 10**12, 10**12, 10**12, 10**12])
    expected = sampler(x, batch=ids.clamp(max=1))
    torch.testing.assert_close(sampler(x, batch=ids), expected)
    pair = sampler((x, x), batch=(ids, ids))
    torch.testing.assert_close(pair, expected)


@pytest.mark.parametrize('name', SIMILARITIES)
def test_autocast_leaves_the_weights_alone(name):
    sampler, x = make(name, method='race').float(), normal(300, 6).float()
    h = torch.ones(300, 1)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        (_, target), weight = sampler(x, generator=seeded(1))
        out = sampler.propagate(x, h, generator=seeded(1))
    total = torch.zeros(300).index_add_(0, target, weight.detach())
    torch.testing.assert_close(total, h[:, 0], rtol=0, atol=1e-5)
    torch.testing.assert_close(out.detach(), h, rtol=0, atol=1e-5)


def test_autocast_leaves_the_bounds_of_sharp_scores_alone():
    x = torch.randn(3000, 6, generator=seeded(0))
    expected = make('cosine', scale=20.0).float().plan(x)
    assert 'clusters' in expected.reason
    sampler = make('cosine', scale=20.0).float()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        plan, graph = sampler.plan(x), sampler(x, generator=seeded(1))
    # The embeddings alone are rounded.
    assert plan.num_proposals == pytest.approx(expected.num_proposals, rel=0.1)
    assert graph.edge_weight.sum().item() == pytest.approx(3000, rel=1e-4)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('replace', [True, False])
@pytest.mark.parametrize('loop', [True, False])
def test_given_candidates_of_which_some_are_many(loop, replace, training):
    # Target 0 has 300 candidates, 1 has 5, 2 has 299, 3 has none; itself among them.
    rows = {0: range(300), 1: range(5), 2: range(1, 300)}
    pairs = [(j, i) for i, row in rows.items() for j in row]
    if not replace:  # Each target needs a candidate.
        pairs += [(j, i) for i in range(3, 300) for j in (0, i)]
    edge_index = torch.tensor(pairs)[torch.randperm(len(pairs))].t()
    sampler = make('neural_gaussian', loop=loop, replace=replace, k=1).train(training)
    x = normal(300, 6)
    assert sampler.plan(x, edge_index).method == 'race'
    expected = torch.tensor([float(i < 3 or not replace) for i in range(300)])
    source, target = assert_graph(sampler(x, edge_index, generator=seeded(1)), expected)
    edges = set(zip(source.tolist(), target.tolist(), strict=True))
    assert edges <= {(j, i) for j, i in pairs if loop or i != j}


@pytest.mark.parametrize('method', ['race', 'dense', 'stream', 'pool'])
@pytest.mark.parametrize('hard', [False, True])
def test_parameters_that_are_nan_reach_the_weights(method, hard):
    sampler = make('neural_gaussian', method=method, hard=hard, tau=0.75)
    for parameter in sampler.similarity.parameters():
        torch.nn.init.constant_(parameter, float('nan'))
    assert sampler(normal(900, 6)).edge_weight.isnan().any()
    assert sampler.propagate(x := normal(900, 6), x).isnan().any()
