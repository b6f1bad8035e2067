"""The sampled graphs and their gradients, against their definition."""

import math

import pytest
import torch
from oracles import noise_of, seeded, to_matrix, truncated
from sampling import every_pair, limits, make, normal
from scipy import integrate

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.ops import dense
from torch_geometric_gsl.ops.race import FIRST_ROUND, race_arrivals
from torch_geometric_gsl.ops.relax import DrawOptions

N = 9
INF = float('inf')
OPTIONS = [
    {},
    {'hard': True},
    {'replace': False},
    {'hard': True, 'replace': False},
    {'loop': False},
    {'loop': False, 'hard': True},
    {'loop': False, 'replace': False},
    {'train_scale': True},
]


def matrix(sampler, x, seed):
    return to_matrix(*sampler(x, generator=seeded(seed)), len(x), len(x))


@pytest.mark.parametrize('tau', [0.4, 1e-4])
@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize(
    ('method', 'num_arrivals'),
    [('dense', N), ('pool', N), ('stream', N), ('stream', 4)],
)
def test_definition(method, num_arrivals, options, tau):
    if method == 'pool' and not options.get('replace', True):
        return
    similarity = resolve_similarity('neural_gaussian', 6).double()
    sampler = GumbelKNNSampler.paper(
        similarity,
        k=3,
        tau=tau,
        scale=2.0,
        method=method,
        budget=limits(method, options, arrivals=num_arrivals, tail=0),
        **options,
    )
    score = 2 * similarity(normal(N, 6)).detach()
    if not options.get('loop', True):
        score.fill_diagonal_(-INF)
    is_hard = options.get('hard', False)
    if options.get('replace', True):
        noise = noise_of(method, 7, score, 3, num_arrivals)
        expected = truncated(score, noise, tau, num_arrivals, is_hard)
    else:
        noise = noise_of(method, 7, score, 1, 3)
        expected = truncated(score, noise, tau, 3)
        if is_hard:  # Each of the three counts alike.
            expected = truncated(score, noise, 1.0, 3).sign() / 3
    weight = matrix(sampler, normal(N, 6), seed=7)
    torch.testing.assert_close(weight, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('name', SIMILARITIES)
def test_dense_equals_stream(name, options, monkeypatch):
    similarity = resolve_similarity(name, 6, out_channels=4).double()
    value, results = normal(N, N, seed=1), []
    score = similarity(normal(N, 6)).detach()
    if not options.get('loop', True):
        score.fill_diagonal_(-INF)
    is_distinct = not options.get('replace', True)
    races, num_arrivals = (1, 3) if is_distinct else (3, N)
    noise = noise_of('stream', 7, score, races, num_arrivals)
    # What is excluded or comes too late has no time.
    monkeypatch.setattr(dense, 'log_arrival_times', lambda *_: -noise)
    for method in ('dense', 'stream'):
        x = normal(N, 6).requires_grad_()
        budget = limits(method, options, arrivals=N)
        options = {**options, 'budget': budget}
        sampler = GumbelKNNSampler.paper(similarity, 3, 0.5, method=method, **options)
        weight = matrix(sampler, x, seed=7)
        inputs = [x, *similarity.parameters()]
        gradients = torch.autograd.grad((weight * value).sum(), inputs)
        for gradient in gradients:
            assert float(gradient.abs().max()) > 1e-6
        results.append([weight.detach(), *gradients])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


def replayed_noise(sampler, pair, options):
    """Return the sources of each draw, and what is added to their scores: numbers."""
    pairs, tau = sampler.similarity.pair_scores(pair), options.tau
    length = math.ceil(FIRST_ROUND * sampler.plan(pair).num_proposals)
    how = {'min_arrivals': 1, 'generator': seeded(6)}
    arrivals, tail = race_arrivals(pairs, options, length, **how)
    score, n = pairs.rows(), pairs.dst.size(0)
    late = tail.source.view(1, options.k, -1).expand(n, -1, -1)
    log_mass = torch.empty(late.shape, dtype=torch.double)
    for i, k, s in torch.cartesian_prod(*map(torch.arange, late.shape)).tolist():
        horizon = math.exp(float(arrivals.horizon[i, k]))
        rate = math.exp(float(score[i, late[i, k, s]]))

        # Among the times at which it may still arrive.
        def density(t, rate=rate, start=horizon):
            return t ** (-1 / tau) * rate * math.exp(-rate * (t - start))

        mean, _ = integrate.quad(density, horizon, INF, epsabs=0, epsrel=1e-9)
        log_mass[i, k, s] = math.log(mean * score.size(1) / late.size(-1))
        listed = arrivals.source[i, k][arrivals.noise[i, k] > -INF]
        if late[i, k, s] in listed:  # What has arrived arrives no more.
            log_mass[i, k, s] = -INF
    level = score.unsqueeze(1).expand(-1, options.k, -1).gather(-1, late)
    noise = torch.cat([arrivals.noise, tau * log_mass - level], dim=-1)
    return torch.cat([arrivals.source, late], dim=-1), noise


@pytest.mark.parametrize('hard', [False, True])
@pytest.mark.parametrize('name', ['gaussian', 'neural_gaussian'])
def test_gradient_of_a_race_by_finite_differences(name, hard):
    similarity = resolve_similarity(name, 6, out_channels=4).double()
    sampler = GumbelKNNSampler.paper(similarity, k=2, tau=0.5, hard=hard, method='race')
    pair, value = (normal(160, 6, seed=1), normal(3, 6, seed=2)), normal(160)
    plan = sampler.plan(pair)
    options = DrawOptions(2, 0.5, plan.num_arrivals, plan.num_tail)
    with torch.no_grad():
        source, noise = replayed_noise(sampler, pair, options)

    @torch.no_grad()
    def function():
        score = similarity(pair).unsqueeze(1).expand(-1, 2, -1)
        weight = torch.softmax((score.gather(-1, source) + noise) / 0.5, dim=-1)
        return (weight * value[source]).sum() / 2

    (sources, _), weight = sampler(pair, generator=seeded(6))
    assert set(sources.tolist()) == set(source[noise > -INF].tolist())
    total = (weight * value[sources]).sum()
    expected = value[source[..., 0]].sum() / 2 if hard else function()
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(total, list(sampler.parameters()))
    slopes = torch.cat([gradient.flatten() for gradient in gradients]).tolist()
    entries = [e for p in sampler.parameters() for e in p.data.view(-1).split(1)]
    for entry, slope in zip(entries, slopes, strict=True):
        sides = []
        for step in (1e-5, -1e-5):
            entry += step
            sides.append(float(function()))
            entry -= step
        difference = (sides[0] - sides[1]) / 2e-5
        assert slope == pytest.approx(difference, rel=1e-3, abs=1e-5)


TRAINED = [
    *(('log_scale', training, {'train_scale': True, 'method': 'dense'})
      for training in (True, False)),
    *(('null_score', True, {'null_score': 1.3, 'method': method, 'replace': replace})
      for method in ('dense', 'race', 'stream', 'pool')
      for replace in (True, False) if replace or method != 'pool'),
    *(('null_score', False, {'null_score': 1.3, 'eval_k': 2, 'form': form})
      for form in ('all', 'edge_index', 'batch', 'pair')),
]  # fmt: skip


@pytest.mark.parametrize(('name', 'training', 'options'), TRAINED)
def test_gradients_of_learned_numbers_by_finite_differences(name, training, options):
    x, h, options = normal(12, 6), normal(12, 2, seed=9), dict(options)
    x, kwargs = every_pair(options.pop('form', 'all'), x)
    sampler = make('linear', tau=0.5, scale=2.0, **options).train(training)
    value, step = getattr(sampler, name), 1e-5

    def loss():
        return sampler.propagate(x, h, **kwargs, generator=seeded(6)).square().sum()

    loss().backward()
    with torch.no_grad():
        value += step
        above = float(loss())
        value -= 2 * step
        slope = (above - float(loss())) / (2 * step)
    assert float(value.grad) == pytest.approx(slope, rel=1e-5)


def test_the_gradient_of_the_scale_of_races_is_that_of_the_definition():
    x, h = normal(40, 6), normal(40, 3, seed=1)
    gradients = {}
    for method in ('race', 'dense'):
        sampler = make('linear', scale=5.0, k=1, method=method, train_scale=True)
        gradients[method] = torch.zeros(200)
        for seed in range(200):
            sampler.zero_grad()
            sampler.propagate(x, h, generator=seeded(seed)).sum().backward()
            gradients[method][seed] = sampler.log_scale.grad
    race, dense = gradients.values()
    error = (race.var() / 200 + dense.var() / 200).sqrt()
    assert abs(float((race.mean() - dense.mean()) / error)) < 3.9  # One in 10,000.


WAYS = [(method, 'all') for method in ('race', 'stream', 'dense', 'pool')]
WAYS += [('dense', 'edge_index'), ('race', 'edge_index'), ('race', 'batch')]


@pytest.mark.parametrize('output', ['sum', 'graph'])
@pytest.mark.parametrize(('method', 'form'), WAYS)
def test_second_derivatives_are_refused(method, form, output):
    sampler = make(k=2, scale=0.5, method=method)
    x, kwargs = every_pair(form, normal(130, 6).requires_grad_())
    assert sampler.plan(x, **kwargs).method == method
    if output == 'sum':
        out = sampler.propagate(x, x.detach(), **kwargs)
    else:
        out = sampler(x, **kwargs).edge_weight
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    text = r'second derivatives are not implemented: the gradient of \w+ cannot'
    with pytest.raises(RuntimeError, match=text):
        grad.square().sum().backward()
