"""The law of the race is that of the definition, for every similarity and input.

Each comparison is two-sided and fails a correct race for one seed in 1000. Mistakes
that are built in on purpose show that it sees what it should see.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.ops import arrivals, race

ERROR_RATE = 1e-3
CALLS = 16
Samples = dict[str, Tensor]
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
# One similarity races at every combination of them.
GRID = list(product((0.25, 0.5, 0.75, 1.0), (False, True), (1.0, 3.0)))
# Nodes of the graphs of a batch, or of one graph whose edges are given. In the smallest
# one all candidates are listed.
SIZES = {'batch': (300, 6, 270), 'edge_index': (400,)}


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


@cache
def drawn(
    name: str,
    method: str,
    tau: float,
    hard: bool = False,
    scale: float = 1.0,
    num_tail: int | None = None,
) -> Samples:
    """What a method gives, of just so many sources that the sampler races."""
    torch.manual_seed(0)
    similarity = resolve_similarity(name, 6, out_channels=4)
    options: Any = {'k': 2, 'tau': tau, 'scale': scale, 'hard': hard}
    racing = GumbelKNNSampler(similarity, **options)
    num_sources = int(4.1 * (racing.plan(normal(10**5, 6)).num_proposals or 0))
    assert racing.plan(normal(num_sources, 6)).method == 'race'
    # Later arrivals weigh most at the highest temperature.
    rows = max(8, (2**17 if tau == 1 else 2**16) // num_sources)
    sampler = GumbelKNNSampler(similarity, method=method, num_tail=num_tail, **options)
    return samples(sampler, num_sources, rows, seed=1 + (method == 'race'))


def samples(
    sampler: GumbelKNNSampler, num_sources: int, rows: int, seed: int
) -> Samples:
    pair = normal(num_sources, 6, seed=1), normal(rows, 6, seed=2)

    def draw(generator: torch.Generator) -> Tensor:
        (source, target), weight = sampler(pair, generator=generator)
        return torch.zeros(rows, num_sources).index_put((target, source), weight)

    return statistics(draw, sampler.similarity, pair, seed)


def statistics(
    draw: Callable[[torch.Generator], Tensor],
    similarity: Similarity,
    pair: tuple[Tensor, Tensor],
    seed: int,
) -> Samples:
    """Means over the targets, one row for each call: calls alone are independent."""
    generator, found = torch.Generator().manual_seed(seed), []
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
            'gradient': torch.cat([part.flatten() for part in gradient]),
            'phi': phi.detach(),
            'largest': matrix.amax(dim=1).mean(),
            'square': matrix.square().sum() / rows,
            'entropy': torch.special.entr(matrix).sum() / rows,
        }
        found.append({name: part.view(-1).double() for name, part in means.items()})
    return {name: torch.stack([each[name] for each in found]) for name in found[0]}


@cache
def drawn_ragged(kind: str, method: str, tau: float, hard: bool) -> Samples:
    """What a race gives where each target has candidates, or what it stands for."""
    torch.manual_seed(0)
    similarity = resolve_similarity('neural_gaussian', 6, out_channels=4)
    sizes = torch.tensor(SIZES[kind])
    batch = torch.arange(sizes.numel()).repeat_interleave(sizes)
    n = batch.numel()
    x, allowed = normal(n, 6, seed=1), batch.unsqueeze(1) == batch
    allowed &= ~torch.eye(n, dtype=torch.bool)
    given = {'batch': batch}
    if kind == 'edge_index':  # Another number of candidates for each target.
        allowed &= normal(n, n, seed=4) < torch.linspace(0.5, 3, n).unsqueeze(1)
        given = {'edge_index': allowed.nonzero().t().flip(0)}
    options: Any = {'k': 2, 'tau': tau, 'hard': hard, 'loop': False}
    sampler = GumbelKNNSampler(similarity, method='race', **options)
    assert sampler.plan(x, **given).method == 'race'

    def race(generator: torch.Generator) -> Tensor:
        (source, target), weight = sampler(x, **given, generator=generator)
        assert bool(allowed[target, source].all())
        return torch.zeros(n, n).index_put((target, source), weight)

    def define(generator: torch.Generator) -> Tensor:
        score = similarity(x).masked_fill(~allowed, -math.inf)
        noise = -torch.empty(2, n, n).exponential_(generator=generator).log()
        soft = ((score + noise) / tau).softmax(dim=2)
        one_hot = torch.zeros_like(soft).scatter(2, soft.argmax(2, keepdim=True), 1)
        return (one_hot + soft - soft.detach() if hard else soft).mean(dim=0)

    draw = race if method == 'race' else define
    return statistics(draw, similarity, (x, x), seed=1 + (method == 'race'))


def excess(first: Samples, second: Samples, *names: str) -> float:
    """The largest two-sample |z| by its Bonferroni bound: a name has an equal share."""
    ratios = []
    for a, b in ((first[name], second[name]) for name in names):
        z = (a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / CALLS).sqrt()
        share = ERROR_RATE / len(names) / z.numel()
        ratios.append(float(z.abs().max()) / stats.t(2 * CALLS - 2).isf(share / 2))
    return max(ratios)


@pytest.mark.parametrize(
    ('name', 'tau', 'hard', 'scale'),
    [(name, *law) for name in SIMILARITIES for law in LAWS]
    + [('neural_gaussian', *law) for law in GRID if law not in LAWS],
)
def test_race_has_the_law_of_dense(
    name: str, tau: float, hard: bool, scale: float
) -> None:
    found, expected = (drawn(name, m, tau, hard, scale) for m in ('race', 'dense'))
    # The largest weight of hard draws is 1/2 in nearly all rows.
    names = [part for part in OF_DENSE if not hard or part != 'largest']
    assert excess(found, expected, *names) < 1


@pytest.mark.parametrize(('tau', 'hard'), [(0.5, False), (1.0, False), (0.5, True)])
@pytest.mark.parametrize('kind', SIZES)
def test_ragged_race_has_the_law_of_dense(kind: str, tau: float, hard: bool) -> None:
    found, expected = (drawn_ragged(kind, m, tau, hard) for m in ('race', 'dense'))
    names = [part for part in OF_DENSE if not hard or part != 'largest']
    assert excess(found, expected, *names) < 1


@pytest.mark.parametrize(('name', 'tau'), [('linear', 0.5), ('neural_gaussian', 1.0)])
def test_race_has_the_law_of_exact_first_arrivals(name: str, tau: float) -> None:
    found, expected = (drawn(name, method, tau) for method in ('race', 'stream'))
    assert excess(found, expected, *OF_STREAM) < 1


def without_gradient(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda score, *args: own(score.detach(), *args)


def heavier(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: own(*args) + math.log(1.35)


def slower(own: Callable[..., Any]) -> Callable[..., Any]:
    def propose(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
        source, level, gap = own(*args)
        return source, level, 1.3 * gap

    return propose


def of_the_first(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: own(*args) // 8


@pytest.mark.parametrize(
    ('module', 'function', 'mistake'),
    [
        (arrivals, '_tail_logit', without_gradient),
        (arrivals, 'log_tail_mass', heavier),
        (race, 'below', of_the_first),
    ],
    ids=['no gradient of the tail', 'a heavy tail', 'some of the candidates'],
)
@pytest.mark.parametrize('kind', SIZES)
def test_the_comparison_of_ragged_races_detects_a_mistake(
    kind: str,
    module: ModuleType,
    function: str,
    mistake: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = drawn_ragged(kind, 'dense', 1.0, False)
    monkeypatch.setattr(module, function, mistake(getattr(module, function)))
    found = drawn_ragged.__wrapped__(kind, 'race', 1.0, False)
    assert excess(found, expected, *OF_DENSE) > 1


@pytest.mark.parametrize(
    ('module', 'function', 'mistake', 'method'),
    [
        (arrivals, '_tail_logit', without_gradient, 'dense'),
        (arrivals, 'log_tail_mass', heavier, 'dense'),
        (race, 'propose', slower, 'stream'),
    ],
    ids=['no gradient of the tail', 'a heavy tail', 'long gaps'],
)
def test_the_comparison_detects_a_mistake(
    module: ModuleType,
    function: str,
    mistake: Callable[..., Any],
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, names = 'neural_gaussian', OF_DENSE if method == 'dense' else OF_STREAM
    expected = drawn(name, method, 1.0)
    monkeypatch.setattr(module, function, mistake(getattr(module, function)))
    assert excess(drawn.__wrapped__(name, 'race', 1.0), expected, *names) > 1


def test_the_comparison_detects_a_tail_that_is_left_out() -> None:
    found, expected = (
        drawn('gaussian', 'race', 1.0, num_tail=0),
        drawn('gaussian', 'dense', 1.0),
    )
    for name in ('loss', 'largest'):
        assert excess(found, expected, name) > 1
