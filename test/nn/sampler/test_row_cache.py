"""Bounds of sharp scores: they change no law, and what is kept of them no draw."""

import math
from functools import partial

import pytest
import torch
from oracles import check_law, seeded
from sampling import normal

from torch_geometric_gsl.nn.sampler import methods
from torch_geometric_gsl.nn.sampler import row_cache as module
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.row_cache import RowCache
from torch_geometric_gsl.nn.similarity.distance_similarity import HeatKernelSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops import envelope as envelopes
from torch_geometric_gsl.ops.envelope import make_envelope
from torch_geometric_gsl.ops.pair_scores import PairScores

#: Targets of a test of a law.
RUNS = 3000


@pytest.fixture
def searches(spy):
    """The searches, by their names, from here on."""
    return {name: spy(module, name) for name in ('k_means', 'find_nearest')}


@pytest.fixture
def _races(monkeypatch):
    """Race under bounds, where a look at all of so few candidates costs less."""
    monkeypatch.setattr(methods.Stream, 'target_cost', lambda *args: math.inf)


@pytest.fixture(params=['clusters', 'lists'])
def bounds(request, monkeypatch, _races):
    """Take bounds of one kind alone, whatever costs less."""

    def best(cache, pairs, options):
        sample = module.sample_targets(pairs, options)
        if request.param == 'lists':
            bounds = None, envelopes.find_nearest(sample.pairs, 64)
        else:
            compute = partial(module.k_means, pairs.src, 8)
            bounds = (cache._recall(('clusters',), (pairs.src,), compute),)
        envelope = make_envelope(pairs, *bounds)
        return envelope, module.num_expected(sample, envelope)

    monkeypatch.setattr(RowCache, 'find_bounds', torch.no_grad()(best))
    return request.param


def grouped(n=600, spread=0.2, seed=3):
    """Features of three groups, so that clusters and lists pay."""
    centre = torch.eye(3, 6).repeat(-(-n // 3), 1)[:n]
    return centre + spread * normal(n, 6, seed=seed, dtype=torch.float)


def make(name='linear', **options):
    torch.manual_seed(5)
    similarity = resolve_similarity(name, 6, out_channels=4)
    options = {'k': 2, 'scale': 8.0, 'method': 'race', **options}
    return GumbelKNNSampler.paper(similarity, **options)


def test_bounds_are_found_once_for_equal_rows(searches):
    sampler, x = make(), grouped()
    for rows in (x, x.clone(), x[:300], x, (x, x[:50]), (x, x)):
        sampler(rows)
        sampler.plan(rows)
    sampler.propagate(x, x)
    # The sources alone are cut into clusters.
    assert len(searches['k_means']) == 2
    with torch.no_grad():
        x[0] += 0.5
    sampler(x)
    assert len(searches['k_means']) == 3
    # Nothing is looked for in evaluation, nor for flat scores.
    make(scale=0.5)(x)
    make().eval()(x)
    for method in ('dense', 'stream'):
        make(method=method)(x)
    make(method='auto')(x[:100])  # So few pairs are all listed.
    assert len(searches['k_means']) == 3


def test_lists_are_found_once_for_equal_pairs(bounds, searches):
    sampler, x = make(), grouped()
    for targets in (x, x, x[:50], x[:50], x):
        sampler((x, targets))
    expected = [0, 2] if bounds == 'lists' else [1, 0]
    assert [len(calls) for calls in searches.values()] == expected


@pytest.mark.parametrize('is_sparse', [False, True])
def test_edges_of_constant_rows_are_compared_once(is_sparse, spy):
    calls = spy(PairScores, 'compare_edges')
    x, edges = grouped(30).relu(), torch.randint(30, (2, 200), generator=seeded())
    x = x.to_sparse_csr() if is_sparse else x
    options = {'scale': 3.0, 'train_scale': True, 'null_score': 0.0}
    sampler, fresh = (
        GumbelKNNSampler.paper(LinearSimilarity(6), **options) for _ in range(2)
    )
    for _ in range(3):
        before = sampler(x.clone(), edges.clone(), generator=seeded(1))
    assert len(calls) == 1
    # Gradients reach the scale, which is no part of what is kept.
    for each in (sampler, fresh):
        with torch.no_grad():
            each.log_scale.fill_(2.0)
        graph = each(x, edges, generator=seeded(1))
        graph.edge_weight.square().sum().backward()
        assert not torch.equal(graph.edge_weight, before.edge_weight)
    assert torch.equal(sampler.log_scale.grad, fresh.log_scale.grad)
    assert len(calls) == 2
    values = x.values() if is_sparse else x
    with torch.no_grad():
        values[0] += 1
    for each in (sampler, fresh):
        each(x, edges)
        each(x, edges.flip(1)[:, :90])
    assert len(calls) == 6
    with torch.inference_mode():
        sampler(x, edges[:, :50])
    sampler(x, edges[:, :50]).edge_weight.sum().backward()
    if not is_sparse:  # What is trained is compared anew.
        count = len(calls)
        for _ in range(2):
            sampler(x.clone().requires_grad_(), edges)
        assert len(calls) == count + 2


def check_draws(sampler, x, target):
    """Compare hard draws of equal targets with their law."""
    (source, _), weight = sampler((x, target), generator=seeded(4))
    similarity = sampler.similarity((x.to_dense(), target.to_dense()[:1]))
    law = (sampler.scale * similarity).detach().double().softmax(1)[0]
    check_law(source[weight > 0].bincount(minlength=len(x)), law)


@pytest.mark.parametrize('is_trained', [False, True])
def test_what_moves_in_place_is_seen(is_trained, bounds):
    # This similarity compares the features themselves.
    similarity = HeatKernelSimilarity(6, normalize=False)
    options = {'k': 1, 'scale': 8.0, 'hard': True, 'method': 'race'}
    sampler = GumbelKNNSampler.paper(similarity, **options)
    x = torch.nn.Parameter(grouped(200, 0.4))
    sampler((x, x[:1].expand(RUNS, 6)))
    new = grouped(200, 0.4, seed=8)
    if is_trained:
        x.grad = x.detach() - new
        torch.optim.SGD([x], lr=1.0).step()
    else:
        with torch.no_grad():
            x.copy_(new)
    check_draws(sampler, x, x[:1].expand(RUNS, 6))


def sparse_rows(dtype, n=200):
    """CSR features with indices of a dtype: the first rows share two words alone."""
    words = torch.tensor([[0, 1]] * 8 + [[2, 3], [4, 5]] * (n // 2 - 4))
    values = 0.5 + torch.rand(2 * n, generator=seeded())
    offsets = torch.arange(n + 1, dtype=dtype) * 2
    return torch.sparse_csr_tensor(offsets, words.flatten().to(dtype), values, (n, 6))


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
@pytest.mark.parametrize('bounds', ['lists'], indirect=True)
def test_other_words_in_place_are_seen(dtype, bounds):
    options = {'k': 1, 'scale': 8.0, 'method': 'race', 'hard': True}
    sampler, x = (
        GumbelKNNSampler.paper(LinearSimilarity(6), **options),
        sparse_rows(dtype),
    )
    offsets, words = torch.arange(RUNS + 1) * 2, torch.tensor([0, 1] * RUNS)
    target = torch.sparse_csr_tensor(offsets, words, torch.ones(2 * RUNS), (RUNS, 6))
    sampler((x, target))
    x.col_indices().copy_(x.col_indices().flip(0).view(-1, 2).flip(1).flatten())
    check_draws(sampler, x, target)
