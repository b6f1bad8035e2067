"""What a sampler keeps of the bounds of sharp scores from one call to the next."""

import copy
import io
import math
import pickle

import pytest
import torch
from oracles import ERROR_RATE, seeded
from sampling import normal
from scipy import stats

from torch_geometric_gsl.nn.sampler import _envelopes as module
from torch_geometric_gsl.nn.sampler._envelopes import EnvelopeMemory
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.heat_kernel_similarity import (
    HeatKernelSimilarity,
)
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.scores import HeatKernel, Identity, unit_rows

#: Targets of a test of a law.
RUNS = 3000


@pytest.fixture
def found(monkeypatch):
    """The searches, by their names, from here on."""
    calls = []

    def spy(name):
        own = getattr(module, name)

        def call(*args, **kwargs):
            calls.append(name)
            return own(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    for name in ('k_means', 'find_nearest'):
        spy(name)
    return calls


def grouped(n=600, spread=0.2, seed=3):
    """Features of three groups, so that clusters and lists pay."""
    centre = torch.eye(3, 6).repeat(-(-n // 3), 1)[:n]
    return centre + spread * normal(n, 6, seed=seed, dtype=torch.float)


def make(name='linear', **options):
    torch.manual_seed(5)
    similarity = resolve_similarity(name, 6, out_channels=4)
    options = {'k': 2, 'scale': 8.0, 'method': 'race', **options}
    return GumbelKNNSampler(similarity, **options)


def pairs_of(x, comparison='dot', scale=20.0):
    x = unit_rows(x)
    if comparison == 'dot':
        return PairScores(x, x, Identity(), 'dot', scale, -scale, scale)
    response = HeatKernel(torch.full((len(x),), 0.1))
    return PairScores(x, x, response, comparison, scale, 0.0, scale)


def kept_of(sampler):
    """What was kept last."""
    return sampler._memory.kept


def sizes_of(sampler):
    """The numbers of sources that bounds are kept for, those of the last call last."""
    return [kept.clusters.source.numel() for kept in sampler._memory._all]


def same_graph(first, second):
    assert torch.equal(first.edge_index, second.edge_index)
    torch.testing.assert_close(first.edge_weight, second.edge_weight)


@pytest.mark.parametrize(
    ('name', 'options', 'num_threads'),
    [(name, {}, 1) for name in ('linear', 'gaussian', 'heat_kernel')]
    + [('neural_gaussian', {'loop': False}, 2), ('linear', {'replace': False}, 1)],
)
def test_one_seed_gives_one_graph(name, options, num_threads):
    # Whatever the memory budget and the threads; sums differ in their last bits.
    x, graphs = grouped(200), []
    own = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for budget in (2**25, 2**16, 2**10):
            sampler = make(name, memory_budget=budget, **options)
            graphs.append(sampler(x, generator=seeded(1)))
            assert kept_of(sampler).num_expected > 0
    finally:
        torch.set_num_threads(own)
    graphs.append(make(name, **options)(x, generator=seeded(1)))
    for graph in graphs[1:]:
        same_graph(graphs[0], graph)


def lists_only(pairs, *args):
    """Renew with lists, where clusters would cost less."""
    lists = module.find_nearest(pairs, 16)
    kept = module.Kept(None, lists, nodes=module.Nodes.of(pairs))
    expected = module.num_expected(pairs, kept.envelope(pairs), *args)
    return kept._replace(num_expected=expected)


def test_one_seed_gives_one_graph_under_lists(monkeypatch):
    monkeypatch.setattr(module, '_renew', lists_only)
    test_one_seed_gives_one_graph('linear', {}, 1)
    test_one_seed_gives_one_graph('linear', {'loop': False}, 2)


def test_bounds_are_kept_between_calls(found):
    sampler, x = make(), grouped()
    for _ in range(3):
        sampler(x)
        sampler.propagate(x, x)
        sampler.plan(x)
    assert found.count('k_means') == 1
    assert sizes_of(sampler) == [600]
    # Nothing is kept of what is not noisy, nor of calls that are not sharp.
    sampler = make(scale=0.5)
    sampler(x)
    make().eval()(x)
    assert found.count('k_means') == 1
    assert sizes_of(sampler) == []


@pytest.mark.parametrize(
    ('comparison', 'step'), [('dot', 0.001), ('squared_distance', 0.01), ('dot', 0.0)]
)
def test_bounds_are_renewed_when_they_have_cost_more(comparison, step, found):
    memory, x = EnvelopeMemory(), grouped(1000, 0.4)
    move, counts, costs = normal(1000, 6, seed=8, dtype=torch.float), [], []
    for number in range(30):
        now = pairs_of(x + number * step * move, comparison)
        costs.append(memory.envelope(now, DrawOptions(5, 0.25, 4))[1])
        counts.append(found.count('k_means'))
        assert memory.kept.excess >= 0
    if step == 0:
        assert counts == [1] * 30
        return
    # Some renewals, and far fewer than there are steps; after each one proposals are
    # as few as at first.
    assert counts[0] == 1
    assert 3 <= counts[-1] <= 15
    renewed = [i for i in range(1, 30) if counts[i] > counts[i - 1]]
    assert all(costs[i] < costs[i - 1] for i in renewed)
    assert all(costs[i] < 1.1 * costs[0] for i in renewed)


@pytest.mark.parametrize('size', [300, 900])
def test_other_numbers_of_nodes_have_bounds_of_their_own(size, found):
    sampler, x = make(), grouped(size)
    for own in (grouped(), x, grouped(), x, (x, x[:50]), x, (x, x[:50])):
        sampler(own)
    assert found.count('k_means') == 3
    assert sizes_of(sampler) == [600, size, size]
    # Few are kept, those of the last calls.
    for count in (150, 160, 170):
        sampler(grouped(count))
    assert len(sizes_of(sampler)) == module._MOST_KEPT
    sampler((x, x[:50]))
    assert found.count('k_means') == 6
    sampler(grouped())
    assert found.count('k_means') == 7


def test_lists_are_kept_for_their_targets(monkeypatch, found):
    monkeypatch.setattr(module, '_renew', lists_only)
    sampler, x = make(), grouped()
    for targets in (x, x, x[:50], x[:50], x):
        sampler((x, targets))
    assert found.count('find_nearest') == 2


def test_bounds_are_dropped_on_another_device():
    memory, pairs = EnvelopeMemory(), pairs_of(grouped(60))
    memory.envelope(pairs, DrawOptions(2, 0.25, 4))
    assert memory.kept.serves(pairs)
    assert not memory.kept.serves(pairs._replace(dst=pairs.dst.to('meta')))


def test_reset_parameters_forgets(found):
    sampler, x = make(), grouped()
    sampler(x)
    sampler.reset_parameters()
    sampler(x)
    assert found.count('k_means') == 2


def test_bounds_are_no_state(found):
    sampler, x = make(), grouped()
    names = set(sampler.state_dict())
    sampler(x)
    assert set(sampler.state_dict()) == names
    assert len(list(sampler.buffers())) == len(list(make().buffers()))
    copies = [copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))]
    file = io.BytesIO()
    torch.save(sampler, file)
    file.seek(0)
    copies.append(torch.load(file, weights_only=False))
    for each in copies:
        # One seed gives one graph; what a copy renews is its own.
        same_graph(sampler(x, generator=seeded()), each(x, generator=seeded()))
        each(grouped(300))
        assert sizes_of(sampler) == [600]
    same_graph(*(make()(x, generator=seeded(2)) for _ in range(2)))


@pytest.mark.parametrize(
    ('renew', 'name'),
    # The best sources of a bell are not the nearest ones.
    [(how, name) for how in ('clusters', 'lists') for name in ('linear', 'heat_kernel')]
    + [('clusters', 'gaussian'), ('clusters', 'neural_gaussian'), ('lists', 'cosine')],
)
def test_old_bounds_give_the_same_law(renew, name, monkeypatch):
    if renew == 'lists':
        monkeypatch.setattr(module, '_renew', lists_only)
    x = grouped(200, 0.4)
    target = x[:1].expand(RUNS, 6)
    sampler = make(name, k=1, hard=True)
    sampler((x + 0.3 * normal(200, 6, seed=9, dtype=torch.float), target))
    monkeypatch.setattr(module, '_cost_of_renewal', lambda *args: math.inf)
    kept = kept_of(sampler)
    assert (kept.clusters is None) == (renew == 'lists')
    check_draws(sampler, x, target)
    now = kept_of(sampler)
    assert (now.clusters, now.lists) == (kept.clusters, kept.lists)


def check_draws(sampler, x, target):
    """Compare hard draws of equal targets with their law."""
    (source, _), weight = sampler((x, target), generator=seeded(4))
    similarity = sampler.similarity((x.to_dense(), target.to_dense()[:1]))
    law = (sampler.scale * similarity).detach().double().softmax(1)[0]
    counts = source[weight > 0].bincount(minlength=len(x))
    common = RUNS * law > 8
    pooled = [
        torch.cat([part[common], part[~common].sum().view(1)])
        for part in (counts, RUNS * law)
    ]
    statistic = float(((pooled[0] - pooled[1]) ** 2 / pooled[1]).sum())
    level = stats.chi2.cdf(statistic, int(common.sum()))
    assert ERROR_RATE / 2 < level < 1 - ERROR_RATE / 2


@pytest.mark.parametrize('is_trained', [False, True])
def test_lists_see_what_moves_in_place(is_trained, monkeypatch):
    monkeypatch.setattr(module, '_renew', lists_only)
    # This similarity compares the features themselves.
    similarity = HeatKernelSimilarity(6, normalize=False)
    options = {'k': 1, 'scale': 8.0, 'hard': True, 'method': 'race'}
    sampler = GumbelKNNSampler(similarity, **options)
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


def compare_features(**options):
    """A sampler that compares the features themselves, sparse ones as well."""
    options = {'k': 1, 'scale': 8.0, 'method': 'race', **options}
    return GumbelKNNSampler(LinearSimilarity(6), **options)


def sparse_rows(dtype, n=200):
    """CSR features with indices of a dtype: the first rows share two words alone."""
    words = torch.tensor([[0, 1]] * 8 + [[2, 3], [4, 5]] * (n // 2 - 4))
    values = 0.5 + torch.rand(2 * n, generator=seeded())
    offsets = torch.arange(n + 1, dtype=dtype) * 2
    return torch.sparse_csr_tensor(offsets, words.flatten().to(dtype), values, (n, 6))


@pytest.mark.parametrize('dtype', [torch.int32, torch.int64])
def test_lists_see_other_words_in_place(dtype, monkeypatch):
    monkeypatch.setattr(module, '_renew', lists_only)
    sampler, x = compare_features(hard=True), sparse_rows(dtype)
    offsets, words = torch.arange(RUNS + 1) * 2, torch.tensor([0, 1] * RUNS)
    target = torch.sparse_csr_tensor(offsets, words, torch.ones(2 * RUNS), (RUNS, 6))
    sampler((x, target))
    x.col_indices().copy_(x.col_indices().flip(0).view(-1, 2).flip(1).flatten())
    check_draws(sampler, x, target)


def test_another_similarity_has_bounds_of_its_own(monkeypatch):
    monkeypatch.setattr(module, '_renew', lists_only)
    x, sampler = grouped(200, 0.4), make(k=1, hard=True)
    target = x[:1].expand(RUNS, 6)
    sampler((x, target))
    for name in ('difference', 'heat_kernel', 'linear'):
        sampler.similarity = resolve_similarity(name, 6)
        check_draws(sampler, x, target)


def test_dense_and_sparse_features_in_turn(monkeypatch):
    monkeypatch.setattr(module, '_renew', lists_only)
    sampler, x = compare_features(), grouped()
    for each in (x.to_sparse_csr(), x, x.to_sparse_csr(), x):
        expected = compare_features()(each, generator=seeded())
        same_graph(sampler(each, generator=seeded()), expected)
    kinds = [kept.nodes.is_sparse for kept in sampler._memory._all]
    assert sorted(kinds) == [False, True]


def test_distinct_neighbours_of_sharp_scores_are_no_race():
    x = normal(600, 16, dtype=torch.float)
    options = {'k': 5, 'scale': 40.0, 'replace': False}
    sampler = GumbelKNNSampler(LinearSimilarity(16), **options)
    assert sampler.plan(x).method == 'stream'


def test_a_plan_leaves_later_draws_as_they_are():
    graphs = []
    for num_plans in (0, 20):
        sampler, x = make(), grouped()
        sampler(x)
        for _ in range(num_plans):
            sampler.plan(x + normal(600, 6, seed=1, dtype=torch.float))
        graphs.append(sampler(x, generator=seeded()))
    same_graph(*graphs)
    assert torch.equal(graphs[0].edge_weight, graphs[1].edge_weight)
