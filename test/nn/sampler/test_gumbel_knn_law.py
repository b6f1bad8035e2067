"""The law of the sampled graphs: against its definition and exact probabilities."""

from __future__ import annotations

import math
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import (
    SIMILARITIES,
    resolve_similarity,
)
from torch_geometric_gsl.typing import SampledGraph

N = 9
# Two-sided: a p-value this small or this large fails a correct sampler once in 1000.
ERROR_RATE = 1e-3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(num_nodes: int = N, seed: int = 3) -> Tensor:
    return torch.randn(num_nodes, 6, generator=seeded(seed), dtype=torch.double)


def to_matrix(graph: SampledGraph, num_src: int = N, num_dst: int = N) -> Tensor:
    dense = graph.edge_weight.new_zeros(num_dst, num_src)
    return dense.index_put((graph.edge_index[1], graph.edge_index[0]), graph[1])


def definition(phi: Tensor, k: int, tau: float, scale: float, **options: Any) -> Tensor:
    """Replays the noise and writes the relaxation out, number by number."""
    replace, loop = options.get('replace', True), options.get('loop', True)
    size = (phi.size(0), k if replace else 1, phi.size(1))
    uniform = torch.rand(size, generator=seeded(7), dtype=torch.double).tolist()
    weight = torch.zeros_like(phi)
    for i, draws in enumerate(uniform):
        for draw in draws:
            value = {
                j: scale * float(phi[i, j]) - math.log(-math.log(u))
                for j, u in enumerate(draw)
                if loop or j != i
            }
            best = sorted(value, key=lambda j: value[j])
            if not replace:
                value = {j: value[j] for j in best[-k:]}
            total = sum(math.exp(v / tau) for v in value.values())
            for j, v in value.items():
                share = math.exp(v / tau) / total
                if options.get('hard', False):
                    share = float(j == best[-1]) if replace else 1 / k
                weight[i, j] += share / len(draws)
    return weight


OPTIONS = [
    {},
    {'hard': True},
    {'replace': False},
    {'hard': True, 'replace': False},
    {'loop': False},
    {'loop': False, 'hard': True},
    {'loop': False, 'replace': False},
]


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_definition(method: str, options: Any) -> None:
    similarity = resolve_similarity('neural_gaussian', 6).double()
    sampler = GumbelKNNSampler(
        similarity, k=3, tau=0.4, scale=2.0, method=method, num_arrivals=N, **options
    )
    graph = sampler(features(), generator=seeded(7))
    expected = definition(similarity(features()).detach(), 3, 0.4, 2.0, **options)
    torch.testing.assert_close(to_matrix(graph), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('name', SIMILARITIES)
def test_dense_equals_stream(name: str, options: Any) -> None:
    similarity = resolve_similarity(name, 6, out_channels=4).double()
    value = torch.randn(N, N, generator=seeded(1), dtype=torch.double)
    found = []
    for method in ('dense', 'stream'):
        x = features().requires_grad_()
        sampler = GumbelKNNSampler(
            similarity, k=3, tau=0.5, method=method, num_arrivals=N, **options
        )
        weight = to_matrix(sampler(x, generator=seeded(2)))
        inputs = [x, *similarity.parameters()]
        gradient = torch.autograd.grad((weight * value).sum(), inputs)
        found.append([weight.detach(), *gradient])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


def test_first_arrivals_are_those_of_dense() -> None:
    similarity = LinearSimilarity(6).double()
    options: Any = {'k': 1, 'tau': 0.25, 'scale': 3.0}
    dense = GumbelKNNSampler(similarity, method='dense', **options)
    stream = GumbelKNNSampler(
        similarity, method='stream', num_arrivals=4, num_tail=0, **options
    )
    weight = to_matrix(dense(features(), generator=seeded(2)))
    largest, source = weight.topk(4, dim=1)
    expected = torch.zeros_like(weight).scatter_(
        1, source, largest / largest.sum(1, keepdim=True)
    )
    found = to_matrix(stream(features(), generator=seeded(2)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('replace', [True, False])
@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_small_temperature(method: str, replace: bool) -> None:
    similarity = LinearSimilarity(6).double()
    options: Any = {'k': 3, 'tau': 1e-4, 'method': method, 'num_arrivals': N}
    soft = GumbelKNNSampler(similarity, **options, replace=replace)
    weight = to_matrix(soft(features(), generator=seeded(2)))
    hard = GumbelKNNSampler(similarity, **options, hard=True)
    if replace:
        expected = to_matrix(hard(features(), generator=seeded(2)))
    else:  # The single winner takes the whole weight.
        expected = (weight == weight.amax(1, keepdim=True)).double()
    torch.testing.assert_close(weight, expected, rtol=0, atol=1e-6)
    if method == 'dense':  # The noise-free graph turns into the nearest neighbour.
        nearest = similarity(features()).argmax(1)
        weight = to_matrix(soft.eval()(features()))
        expected = torch.zeros_like(weight).scatter_(1, nearest.unsqueeze(1), 1)
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-6)


def logits(scale: float, num_sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, one target, and the exact probabilities of the sources."""
    x_src, x_dst = features(num_sources), features(1, seed=4)
    power = []
    for row in x_src.tolist():
        other = x_dst[0].tolist()
        cosine = sum(a * b for a, b in zip(row, other, strict=True))
        cosine /= math.hypot(*row) * math.hypot(*other)
        power.append(math.exp(scale * cosine))
    return x_src, x_dst, torch.tensor([p / sum(power) for p in power]).double()


def assert_multinomial(observed: Tensor, probability: Tensor) -> None:
    expected = probability * observed.sum()
    assert float(expected.min()) >= 5  # Pearson's approximation holds.
    statistic = float(((observed - expected) ** 2 / expected).sum())
    cdf = stats.chi2(observed.numel() - 1).cdf(statistic)
    assert ERROR_RATE / 2 < cdf < 1 - ERROR_RATE / 2


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_hard_draws_are_categorical(method: str) -> None:
    num_sources, num_targets, k = 8, 4000, 5
    x_src, x_dst, probability = logits(2.0, num_sources)
    sampler = GumbelKNNSampler(
        LinearSimilarity(6), k=k, scale=2.0, hard=True, method=method, num_arrivals=2
    )
    pair = (x_src, x_dst.repeat(num_targets, 1))
    weight = to_matrix(sampler(pair, generator=seeded(1)), num_sources, num_targets)
    counts = weight * k
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-6)
    assert_multinomial(counts.round().sum(0), probability)


@pytest.mark.parametrize('method', ['dense', 'stream'])
def test_distinct_draws_are_plackett_luce(method: str) -> None:
    num_sources, num_targets, k = 6, 8000, 3
    x_src, x_dst, probability = logits(1.5, num_sources)
    p = probability.tolist()
    exact = dict.fromkeys(combinations(range(num_sources), k), 0.0)
    for order in permutations(range(num_sources), k):
        chance, left = 1.0, 1.0
        for j in order:
            chance, left = chance * p[j] / left, left - p[j]
        exact[tuple(sorted(order))] += chance
    assert sum(exact.values()) == pytest.approx(1)

    sampler = GumbelKNNSampler(
        LinearSimilarity(6), k=k, scale=1.5, replace=False, method=method
    )
    pair = (x_src, x_dst.repeat(num_targets, 1))
    edge_index, _ = sampler(pair, generator=seeded(1))
    drawn = [tuple(row) for row in edge_index[0].view(num_targets, k).tolist()]
    observed = torch.tensor([float(drawn.count(each)) for each in exact]).double()
    assert_multinomial(observed, torch.tensor(list(exact.values())).double())

    included = torch.bincount(edge_index[0], minlength=num_sources).double()
    for j in range(num_sources):
        inclusion = sum(chance for each, chance in exact.items() if j in each)
        deviation = math.sqrt(num_targets * inclusion * (1 - inclusion))
        # Bonferroni: all sources together keep the error rate.
        limit = stats.norm.isf(ERROR_RATE / 2 / num_sources)
        assert abs(float(included[j]) - num_targets * inclusion) < limit * deviation
