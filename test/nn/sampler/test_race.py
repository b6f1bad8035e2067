"""The form of what a race samples: most candidates are never looked at."""

import pytest
import torch
from oracles import seeded

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity


def features(num_nodes, seed=3):
    return torch.randn(num_nodes, 6, generator=seeded(seed), dtype=torch.double)


def make(name, **kwargs):
    torch.manual_seed(5)
    kwargs.setdefault('k', 3)
    similarity = resolve_similarity(name, 6, out_channels=4)
    return GumbelKNNSampler(similarity, **kwargs).double()


@pytest.mark.parametrize('options', [{}, {'hard': True}, {'replace': False}])
@pytest.mark.parametrize('loop', [True, False])
@pytest.mark.parametrize('name', SIMILARITIES)
def test_race(name, loop, options):
    # Many candidates, so that most of them are never looked at.
    num_sources = 900
    sampler = make(name, k=2, method='race', loop=loop, **options)
    x = features(num_sources).requires_grad_()
    assert sampler.plan(x).method == 'race'
    graph = sampler(x, generator=seeded(1))
    source, target = graph.edge_index
    key = target * num_sources + source
    assert bool((key[1:] > key[:-1]).all())  # Sorted by target, no duplicates.
    total = torch.zeros(num_sources).double()
    total.index_add_(0, target, graph.edge_weight.detach())
    torch.testing.assert_close(total, torch.ones_like(total))
    assert loop or bool((source != target).all())
    degree = torch.bincount(target, minlength=num_sources)
    if 'replace' in options:
        assert degree.tolist() == [2] * num_sources
    else:
        # Two draws of four arrivals and of a tail of four each.
        assert int(degree.max()) <= 2 * (4 + 4)
        assert int(degree.min()) >= 4
    value = features(num_sources, seed=4)[:, 0]
    (graph.edge_weight * value[source]).sum().backward()
    for tensor in (x, *sampler.parameters()):
        assert bool(tensor.grad.isfinite().all())
        assert float(tensor.grad.abs().max()) > 1e-6
    again = sampler(x, generator=seeded(1))
    assert torch.equal(graph.edge_index, again.edge_index)
    assert torch.equal(graph.edge_weight, again.edge_weight)
    sampler.eval()
    nearest = make(name, k=2, method='stream', loop=loop, **options).eval()
    for graph, expected in zip(sampler(x), nearest(x), strict=True):
        torch.testing.assert_close(graph, expected)


@pytest.mark.parametrize('name', SIMILARITIES)
def test_autocast_leaves_the_weights_alone(name):
    sampler, x = make(name).float(), features(300).float()
    assert sampler.plan(x).method == 'race'
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
    x, h = features(n), features(n, seed=8)
    assert sampler.plan(x, batch=batch).method == 'race'
    edge_index, weight = sampler(x, batch=batch, generator=seeded(1))
    source, target = edge_index
    assert torch.equal(batch[source], batch[target])
    assert loop or not bool((source == target).any())
    key = target * n + source
    assert bool((key[1:] > key[:-1]).all())
    total = torch.zeros(n).double().index_add_(0, target, weight.detach())
    expected = torch.ones(n).double()
    expected[305] = float(loop)  # The lone node is no candidate of its own.
    torch.testing.assert_close(total, expected)
    if training:  # In evaluation mode the sum is over all pairs.
        out = sampler.propagate(x, h, batch=batch, generator=seeded(1))
        message = weight.unsqueeze(1) * h[source]
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
    x = features(300)
    assert sampler.plan(x, given).method == 'race'
    edge_index, weight = sampler(x, given, generator=seeded(1))
    found = list(zip(*edge_index.tolist(), strict=True))
    assert set(found) <= {(j, i) for j, i in pairs if loop or i != j}
    assert [i for _, i in found] == sorted(i for _, i in found)
    total = torch.zeros(300).double().index_add_(0, edge_index[1], weight.detach())
    expected = torch.tensor([float(i < 3 or not replace) for i in range(300)])
    torch.testing.assert_close(total, expected.double())


@pytest.mark.parametrize('bounds', [(1.0, 0.0), (float('nan'), 1.0)])
def test_bounds_are_ordered(bounds):
    sampler = make('linear', method='race')
    sampler.similarity.bounds = bounds
    for call in (sampler, sampler.plan):
        with pytest.raises(ValueError, match=r"'bounds' of 'similarity' must be a low"):
            call(features(900))


@pytest.mark.parametrize('method', ['race', 'dense', 'stream'])
@pytest.mark.parametrize('hard', [False, True])
def test_parameters_that_are_nan_reach_the_weights(method, hard):
    sampler = make('neural_gaussian', method=method, hard=hard, tau=0.75)
    for parameter in sampler.similarity.parameters():
        torch.nn.init.constant_(parameter, float('nan'))
    assert sampler(features(900)).edge_weight.isnan().any()
    assert sampler.propagate(x := features(900), x).isnan().any()
