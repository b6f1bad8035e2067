"""The law of the draws: exact for hard ones, that of the definition for relaxed ones.

Each exact law is tested with the error rate of `oracles`, one in 10,000. Comparisons
with the definition are two-sided, and fail a correct race for one seed in 1000.
"""

import itertools
import math
from collections import Counter
from functools import cache, partial

import numpy as np
import oracles
import pytest
import sampling
import torch
from oracles import check_law, matrix_pairs, plackett_luce, seeded
from scipy import stats

from torch_geometric_gsl import Budget
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.methods import AUTO_METHODS
from torch_geometric_gsl.nn.similarity.gaussian_similarity import GaussianSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.ops import relax, tail
from torch_geometric_gsl.ops.aggregate import drawn_sum
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.scan import stream_arrivals

ERROR_RATE = 1e-3
CALLS = 16
# What a relaxed race shares with the definition and with exact first arrivals. The few
# sources that stand for all later ones have other squares and another entropy.
OF_DENSE = ('loss', 'gradient', 'phi', 'largest')
OF_STREAM = (*OF_DENSE, 'square', 'entropy')
# A temperature, whether draws are hard, and the scale; the range of some is twice 1.
LAWS = [
    (0.25, False, 1.0),
    (0.5, False, 1.0),
    (0.75, True, 1.0),
    (1.0, False, 1.0),
    (0.5, False, 3.0),
]
# The others are left to the nightly run.
USUAL = 'linear', 'neural_gaussian', 'heat_kernel'
# Nodes of the graphs of a batch, or of one graph whose edges are given. In the smallest
# one all candidates are listed.
SIZES = {'batch': (300, 6, 270), 'edge_index': (400,)}

normal = partial(sampling.normal, seed=0, dtype=torch.float)


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setenv('TORCH_COMPILE_DISABLE', '1')  # It takes longer than the draws.


RUNS, NULL = 4000, 0.8
# Two draws, one-hot or distinct, with a null neighbour or without.
KINDS = {
    'hard': {'hard': True},
    'hard, two arrivals': {'hard': True, 'arrivals': 2},
    'hard, null': {'hard': True, 'null_score': NULL},
    'distinct': {'replace': False},
    'distinct, null': {'replace': False, 'null_score': NULL},
}
EXACT = [
    (method, form, setting)
    for method, form, setting in itertools.product(
        [method.name for method in AUTO_METHODS],  # Of one law.
        ('all', 'batch', 'edge_index', 'without loops'),
        KINDS,
    )
    if form != 'edge_index' or method in ('dense', 'race')
    if setting in ('hard', 'hard, null') or method != 'pool'
]


def alike(form):
    """Features and arguments of targets that are alike, and five sources and one.

    The candidates of each are five sources, by their numbers modulo five.
    """
    x, target = normal(6, 6, seed=1), normal(1, 6, seed=2)
    targets, pair = target.expand(RUNS, 6), (x[:5], target)
    if form == 'all':
        return (x[:5], targets), {}, pair
    if form == 'edge_index':  # Source 5 is no candidate.
        edges = torch.cartesian_prod(torch.arange(RUNS), torch.arange(5)).t().flip(0)
        return (x, targets), {'edge_index': edges}, pair
    if form == 'batch':
        batch = torch.arange(20)
        ids = batch.repeat_interleave(5), batch.repeat_interleave(RUNS // 20)
        return (x[:5].repeat(20, 1), targets), {'batch': ids}, pair
    # All nodes of a graph are alike: the sources of each are the next five in a ring.
    ring = torch.stack([target[0].roll(shift) for shift in range(6)])
    batch = torch.arange(-(-RUNS // 6)).repeat_interleave(6)
    return ring[torch.arange(batch.numel()) % 6], {'batch': batch}, (ring[1:], target)


@pytest.mark.parametrize(('method', 'form', 'setting'), EXACT)
def test_two_draws_have_their_exact_law(method, form, setting):
    options = {'k': 2, 'tau': 0.5, 'loop': form != 'without loops', **KINDS[setting]}
    budget = {'arrivals': options.pop('arrivals')} if 'arrivals' in options else {}
    options['budget'] = sampling.limits(method, options, **budget)
    sampler = GumbelKNNSampler.paper(LinearSimilarity(6), method=method, **options)
    x, kwargs, pair = alike(form)
    assert sampler.plan(x, **kwargs).method == method
    (source, target), weight = sampler(x, generator=seeded(3), **kwargs)
    index = source % (6 if form == 'edge_index' else 5)
    if form == 'without loops':
        assert bool((source != target).all())
        index = (source - target) % 6 - 1
    matrix = torch.zeros(int(target.max()) + 1, 5)
    matrix = matrix.index_put((target, index), weight.detach())[:RUNS]
    score = sampler.similarity(pair)[0].tolist()
    score += [NULL] if 'null' in setting else []
    law = Counter()
    if 'hard' in setting:  # How often each was drawn: independent draws.
        counts = Counter(tuple(row) for row in (2 * matrix).round().int().tolist())
        p = torch.tensor(score).double().softmax(0).tolist()
        for i, j in itertools.product(range(len(p)), repeat=2):
            law[tuple((i == n) + (j == n) for n in range(5))] += p[i] * p[j]
    else:  # Soft weights fall in the order of the draws, so the order is tested, too.
        order = matrix.argsort(dim=1, descending=True).tolist()
        count = (matrix > 0).sum(dim=1).tolist()
        counts = Counter(tuple(o[:c]) for o, c in zip(order, count, strict=True))
        for outcome, p in zip(*plackett_luce(score, 2), strict=True):
            law[tuple(j for j in outcome if j < 5)] += p
    assert set(counts) <= set(law)
    check_law([counts[key] for key in law], list(law.values()))


@cache
def drawn(name, method, tau, hard=False, scale=1.0, num_tail=None, num_sources=400):
    """Describe draws, of which those of a race have bounds as its plan finds them."""
    torch.manual_seed(0)
    similarity = resolve_similarity(name, 6, out_channels=4)
    options = {'k': 2, 'tau': tau, 'scale': scale, 'hard': hard}
    if method != 'dense':
        options['budget'] = Budget(tail=num_tail)
    sampler = GumbelKNNSampler.paper(similarity, method=method, **options)
    rows = max(8, 2**16 // num_sources)
    return samples(sampler, num_sources, rows, seed=1 + (method == 'race'))


def samples(sampler, num_sources, rows, seed):
    pair = normal(num_sources, 6, seed=1), normal(rows, 6, seed=2)

    def draw(generator):
        (source, target), weight = sampler(pair, generator=generator)
        return torch.zeros(rows, num_sources).index_put((target, source), weight)

    return statistics(draw, sampler.similarity, pair, seed)


def statistics(draw, similarity, pair, seed):
    """Return means over the targets, a row for each call: calls are independent."""
    generator, calls = seeded(seed), []
    h = normal(pair[0].size(0), 3, seed=3) + pair[0][:, :3]
    score, parameters = similarity(pair).detach(), [*similarity.parameters()]
    for _ in range(CALLS):
        matrix = draw(generator)
        out, rows = matrix @ h, matrix.size(0)
        loss = out.square().mean() + (out[:, 0] * torch.linspace(0, 1, rows)).mean()
        phi = (matrix * score).sum() / rows
        # Every row adds to the second term of the gradient, with little noise.
        gradient = torch.autograd.grad(loss + 10 * phi, parameters)
        matrix = matrix.detach()
        means = {
            'loss': loss.detach(),
            'gradient': torch.cat([value.flatten() for value in gradient]),
            'phi': phi.detach(),
            'largest': matrix.amax(dim=1).mean(),
            'square': matrix.square().sum() / rows,
            'entropy': torch.special.entr(matrix).sum() / rows,
        }
        calls.append({name: value.view(-1).double() for name, value in means.items()})
    return {name: torch.stack([each[name] for each in calls]) for name in calls[0]}


@cache
def drawn_ragged(form, method, tau, hard):
    """Describe draws of targets with candidates of their own, or the definition."""
    torch.manual_seed(0)
    similarity = resolve_similarity('neural_gaussian', 6, out_channels=4)
    sizes = torch.tensor(SIZES[form])
    batch = torch.arange(sizes.numel()).repeat_interleave(sizes)
    n = batch.numel()
    x, allowed = normal(n, 6, seed=1), batch.unsqueeze(1) == batch
    allowed &= ~torch.eye(n, dtype=torch.bool)
    kwargs = {'batch': batch}
    if form == 'edge_index':  # Another number of candidates for each target.
        allowed &= normal(n, n, seed=4) < torch.linspace(0.5, 3, n).unsqueeze(1)
        kwargs = {'edge_index': allowed.nonzero().t().flip(0)}
    options = {'k': 2, 'tau': tau, 'hard': hard, 'loop': False}
    sampler = GumbelKNNSampler.paper(similarity, **options)
    assert sampler.plan(x, **kwargs).method == 'race'

    def race(generator):
        (source, target), weight = sampler(x, **kwargs, generator=generator)
        assert bool(allowed[target, source].all())
        return torch.zeros(n, n).index_put((target, source), weight)

    def define(generator):
        score = similarity(x).masked_fill(~allowed, -math.inf)
        noise = -torch.empty(2, n, n).exponential_(generator=generator).log()
        soft = ((score + noise) / tau).softmax(dim=2)
        one_hot = torch.zeros_like(soft).scatter(2, soft.argmax(2, keepdim=True), 1)
        return (one_hot + soft - soft.detach() if hard else soft).mean(dim=0)

    draw = race if method == 'race' else define
    return statistics(draw, similarity, (x, x), seed=1 + (method == 'race'))


def excess(sample, reference, *names):
    """Return the largest two-sample |z| by its Bonferroni bound, shared alike."""
    ratios = []
    for a, b in ((sample[name], reference[name]) for name in names):
        z = (a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / CALLS).sqrt()
        share = ERROR_RATE / len(names) / z.numel()
        ratios.append(float(z.abs().max()) / stats.t(2 * CALLS - 2).isf(share / 2))
    return max(ratios)


@pytest.mark.parametrize(
    ('name', 'tau', 'hard', 'scale'),
    [
        pytest.param(name, *law, marks=[] if name in USUAL else pytest.mark.slow)
        for name in SIMILARITIES
        for law in LAWS
    ],
)
def test_race_has_the_law_of_dense(name, tau, hard, scale):
    race, dense = (drawn(name, m, tau, hard, scale) for m in ('race', 'dense'))
    # The largest weight of hard draws is 1/2 in nearly all rows.
    names = [key for key in OF_DENSE if not hard or key != 'largest']
    assert excess(race, dense, *names) < 1


@pytest.mark.parametrize(('tau', 'hard'), [(0.5, False), (0.75, False), (0.5, True)])
@pytest.mark.parametrize('form', SIZES)
def test_ragged_race_has_the_law_of_dense(form, tau, hard):
    race, dense = (drawn_ragged(form, m, tau, hard) for m in ('race', 'dense'))
    names = [key for key in OF_DENSE if not hard or key != 'largest']
    assert excess(race, dense, *names) < 1


@pytest.mark.parametrize(
    ('name', 'tau', 'num_tail'),
    # The tail of a race under clusters has other squares, and another entropy.
    [('gaussian', 0.5, None), ('linear', 0.5, 0), ('neural_gaussian', 1.0, 0)],
)
def test_race_has_the_law_of_exact_first_arrivals(name, tau, num_tail):
    # Few of so many sources come up twice.
    options = {'num_tail': num_tail, 'num_sources': 4000}
    race, stream = (drawn(name, m, tau, **options) for m in ('race', 'stream'))
    assert excess(race, stream, *OF_STREAM) < 1


SOURCES, TARGETS, SEEDS = 200, 1200, 150


def means(method, first_seed):
    """Return the mean over the targets of what they receive, for each seed."""
    x_src = normal(SOURCES, 6, seed=7)
    x = x_src, normal(TARGETS, 6, seed=8)
    h = normal(SOURCES, 1, seed=9) + x_src[:, :1]
    # Later arrivals weigh enough for their errors to be seen, were they shared by all.
    sampler = GumbelKNNSampler.paper(GaussianSimilarity(6), k=2, tau=0.5, method=method)
    assert sampler.plan(x).method == method
    with torch.no_grad():
        sums = [
            sampler.propagate(x, h, generator=seeded(seed)).mean()
            for seed in range(first_seed, first_seed + SEEDS)
        ]
    return torch.stack(sums).double()


def test_the_variance_of_a_mean_over_targets_is_that_of_dense():
    # Were rows correlated, their mean would vary more. An F ratio with 149 and 149
    # degrees of freedom leaves these limits for 3 of 100 pairs of seeds where the
    # variances are equal: 1.5 % below and 1.2 % above.
    ratio = float(means('race', 0).var() / means('dense', SEEDS).var())
    assert 0.7 < ratio < 1.45


RACES = 1000


def ratio_deviation(sums, reference):
    """Return the deviation of one race's share in the ratio of two means."""
    ratio = sums.mean() / reference.mean()
    return float((sums - ratio * reference).std() / reference.mean())


def lost_by_race(tau, num_arrivals, n):
    """For races of equal scores what truncation takes, and what there is."""
    time = np.random.default_rng(7).exponential(size=(RACES, n))
    weight = np.sort(time ** (-1 / tau), axis=1)[:, ::-1]
    weight /= weight.sum(axis=1, keepdims=True)
    lost = weight[:, num_arrivals:].var(axis=1) * (n - num_arrivals)
    total = weight.var(axis=1) * n
    return torch.from_numpy(lost), torch.from_numpy(total)


def test_lost_variance_at_the_ends():
    assert tail.lost_variance(5.0, 80, 80) == tail.lost_variance(5.0, 80, 20) == 0
    assert tail.lost_variance(2.0, 32, 10**8) == tail.lost_variance(2.0, 32, 20_000) > 0


N, ALIKE = 1500, 1500
TRUNCATED = itertools.product(['stream', 'race'], [0.25, 1.0, 2.0, 5.0])


@cache
def squared_sums(tau, method, num_arrivals):
    """Squares of sums over draws of equal scores, for each target."""
    h = torch.randn(N, 32, generator=seeded(0), dtype=torch.float64)
    h -= h.mean(dim=0)
    score = torch.zeros(ALIKE, N, dtype=torch.float64)
    if method == 'dense':
        return (
            (relaxed_weights(score, 1, tau, generator=seeded(1)) @ h).square().mean(1)
        )
    pairs = matrix_pairs(score)
    options = relax.DrawOptions(
        1, tau, num_arrivals, num_tail=N if num_arrivals < N else 0
    )
    if method == 'race':
        arrivals, _ = race_arrivals(pairs, options, num_arrivals, generator=seeded(2))
    else:
        arrivals = stream_arrivals(pairs, 1, num_arrivals, generator=seeded(1))
    late = tail.draw_tail(pairs, options)
    return drawn_sum(h, pairs, arrivals, late, options).square().mean(1)


@pytest.mark.parametrize(
    ('method', 'tau'), [*TRUNCATED, ('all arrivals', 0.25), ('all arrivals', 5.0)]
)
def test_the_variance_of_a_truncated_sum(method, tau):
    # Of all sources in the tail those that have arrived must have left it: at tau = 5
    # the variance was two and a half times that of the definition.
    num_arrivals, expected = tail.default_num_arrivals(tau), 1.0
    if method == 'all arrivals':
        num_arrivals = N
    else:
        expected -= tail.lost_variance(tau, num_arrivals, N)
    dense, sums = squared_sums(tau, 'dense', N), squared_sums(tau, method, num_arrivals)
    ratio = float(sums.mean() / dense.mean())
    deviation = ratio_deviation(sums, dense) / math.sqrt(ALIKE)
    if num_arrivals < N:  # The expectation is simulated with 64 races.
        lost = ratio_deviation(*lost_by_race(tau, num_arrivals, N))
        deviation = math.hypot(deviation, lost / 8)
    assert (
        abs(ratio - expected)
        < stats.norm.isf(oracles.ERROR_RATE / 2) * deviation + 1e-9
    )
