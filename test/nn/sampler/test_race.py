"""The form of what a race samples: most candidates are never looked at."""

from functools import partial

import pytest
import sampling
import torch
from oracles import seeded
from sampling import assert_graph, normal

from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES

make = partial(sampling.make, width=4)


@pytest.mark.parametrize('options', [{}, {'hard': True}, {'replace': False}])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('name', SIMILARITIES)
def test_race(name, loop, options):
    # Many candidates, so that most of them are never looked at.
    num_sources = 900
    sampler = make(name, k=2, method='race', loop=loop, **options)
    x = normal(num_sources, 6).requires_grad_()
    assert sampler.plan(x).method == 'race'
    graph = sampler(x, generator=seeded(1))
    source, target = assert_graph(graph, torch.ones(num_sources))
    assert loop or bool((source != target).all())
    degree = torch.bincount(target, minlength=num_sources)
    if 'replace' in options:
        assert degree.tolist() == [2] * num_sources
    else:
        # Two draws of four arrivals and of a tail of four each.
        assert int(degree.max()) <= 2 * (4 + 4)
        assert int(degree.min()) >= 4
    value = normal(num_sources, 6, seed=4)[:, 0]
    (graph.edge_weight * value[source]).sum().backward()
    for tensor in (x, *sampler.parameters()):
        assert bool(tensor.grad.isfinite().all())
        assert float(tensor.grad.abs().max()) > 1e-6
    again = sampler(x, generator=seeded(1))
    assert torch.equal(graph.edge_index, again.edge_index)
    assert torch.equal(graph.edge_weight, again.edge_weight)


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


# Graphs with few candidates are listed, the others race; the third has a lone node.
SIZES = [300, 5, 1, 200, 0, 250]


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('options', [{}, {'loop': False}, {'replace': False, 'k': 1}])
def test_a_batch_of_small_and_large_graphs(options, training):
    batch = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    n, loop = sum(SIZES), options.get('loop', True)
    sampler = make('neural_gaussian', **options).train(training)
    x, h = normal(n, 6), normal(n, 6, seed=8)
    assert sampler.plan(x, batch=batch).method == 'race'
    graph = sampler(x, batch=batch, generator=seeded(1))
    expected = torch.ones(n)
    expected[305] = float(loop)  # The lone node is no candidate of its own.
    source, target = assert_graph(graph, expected)
    assert torch.equal(batch[source], batch[target])
    assert loop or not bool((source == target).any())
    if training:  # In evaluation mode the sum is over all pairs.
        out = sampler.propagate(x, h, batch=batch, generator=seeded(1))
        message = graph.edge_weight.unsqueeze(1) * h[source]
        summed = torch.zeros(n, 6).double().index_add(0, target, message)
        torch.testing.assert_close(out, summed)


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('replace', [True, False])
@pytest.mark.parametrize('loop', [True, False])
def test_given_candidates_of_which_some_are_many(loop, replace, training):
    # Target 0 has 300 candidates, 1 has 5, 2 has 299, 3 has none; itself among them.
    rows = {0: range(300), 1: range(5), 2: range(1, 300)}
    pairs = [(j, i) for i, row in rows.items() for j in row]
    if not replace:  # Each target needs a candidate.
        pairs += [(j, i) for i in range(3, 300) for j in (0, i)]
    given = torch.tensor(pairs)[torch.randperm(len(pairs))].t()
    sampler = make('neural_gaussian', loop=loop, replace=replace, k=1).train(training)
    x = normal(300, 6)
    assert sampler.plan(x, given).method == 'race'
    expected = torch.tensor([float(i < 3 or not replace) for i in range(300)])
    source, target = assert_graph(sampler(x, given, generator=seeded(1)), expected)
    found = set(zip(source.tolist(), target.tolist(), strict=True))
    assert found <= {(j, i) for j, i in pairs if loop or i != j}


@pytest.mark.parametrize('method', ['race', 'dense', 'stream'])
@pytest.mark.parametrize('hard', [False, True])
def test_parameters_that_are_nan_reach_the_weights(method, hard):
    sampler = make('neural_gaussian', method=method, hard=hard, tau=0.75)
    for parameter in sampler.similarity.parameters():
        torch.nn.init.constant_(parameter, float('nan'))
    assert sampler(normal(900, 6)).edge_weight.isnan().any()
    assert sampler.propagate(x := normal(900, 6), x).isnan().any()
