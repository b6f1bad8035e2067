"""Measure the tail that represents later arrivals of a race; `measure.py` runs it."""

from __future__ import annotations

from math import ceil, exp, inf

import torch
from torch import Tensor, tensor

from torch_geometric_gsl import GumbelKNNSampler, NeuralGaussianSimilarity
from torch_geometric_gsl.nn.similarity import CosineSimilarity, GaussianSimilarity
from torch_geometric_gsl.ops.race import FIRST_ROUND, worst_case_proposals
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions, relax
from torch_geometric_gsl.ops.scores import Gaussian
from torch_geometric_gsl.ops.tail import (
    default_num_arrivals,
    spread_sources,
    tail_size,
)


def tail(n: int = 1000, runs: int = 4000) -> None:
    """Compare the first M arrivals and their tail with the whole draw."""
    torch.manual_seed(0)
    cosine = (0.3 * torch.randn(n, dtype=torch.double)).clamp(-1, 1)
    score = Gaussian.value(cosine, 0.5, 0.05)
    h = torch.randn(n, 4, dtype=torch.double) + score.unsqueeze(1)
    log_time = torch.rand(runs, n, dtype=torch.double).log().neg().log() - score
    for tau in (0.25, 0.5, 0.75, 1.0):
        weight = torch.softmax(-log_time / tau, dim=1)
        exact = summary(weight, weight @ h)
        for num_arrivals in (2, 4, 8, 16, 32):
            changes = []
            for size in (0, tail_size(tau, num_arrivals, n), n):
                options = DrawOptions(1, tau, num_arrivals, size)
                approximate = summary(*truncated_draw(score, log_time, h, options))
                pairs = zip(approximate, exact, strict=True)
                change = ' / '.join(f'{100 * (a / b - 1):+.2g} %' for a, b in pairs)
                changes.append(f'S = {size}: {change}')
            print(f'tau {tau}, M = {num_arrivals}: ' + ', '.join(changes))


def truncated_draw(
    score: Tensor, log_time: Tensor, h: Tensor, options: DrawOptions
) -> tuple[Tensor, Tensor]:
    """Compute weights of the first arrivals of each run, and the sum with the tail."""
    (runs, n), size = log_time.shape, options.num_tail
    time, source = log_time.topk(options.num_arrivals, largest=False)
    scores = score[source].unsqueeze(1)
    arrivals = Arrivals(source.unsqueeze(1), -time.unsqueeze(1) - scores, time[:, -1:])
    late_source, share = torch.zeros(runs, 0, dtype=torch.long), torch.tensor(0.0)
    if size:  # A new tail in each run, as in each call.
        late_source = spread_sources(torch.rand(runs, size, dtype=torch.double), n)
        share = torch.tensor(n / size).log()
    # Sources that have arrived do not arrive again.
    late = score[late_source].masked_fill(
        log_time.gather(1, late_source) <= time[:, -1:], -inf
    )
    weight, late_weight = relax(scores, arrivals, options, late.unsqueeze(1), share)
    out = torch.einsum('ij,ijm->im', weight[:, 0], h[source])
    return weight[:, 0], out + torch.einsum(
        'ij,ijm->im', late_weight[:, 0], h[late_source]
    )


def summary(weight: Tensor, out: Tensor) -> tuple[float, float]:
    """Compute the mean largest weight and the variance of the weighted sums."""
    return float(weight.amax(dim=1).mean()), float(out.var(dim=0).mean())


def groups(n: int = 2000) -> None:
    """Compare the variance of the mean over all nodes with that of independent rows."""
    torch.manual_seed(0)
    x, h = torch.randn(n, 16), torch.randn(n, 8)
    similarity = NeuralGaussianSimilarity(16)
    for tau, runs in ((0.25, 200), (0.5, 200), (1.0, 60)):
        variance = []
        for method in ('race', 'dense'):
            sampler = GumbelKNNSampler.paper(similarity, tau=tau, method=method)
            with torch.no_grad():
                means = [sampler.propagate(x, h).mean(dim=0) for _ in range(runs)]
            variance.append(float(torch.stack(means).var(dim=0).mean()))
        print(f'tau {tau}: {variance[0] / variance[1]:.2f}')


def rounds(n: int = 2000, runs: int = 4000) -> None:
    """Compare the variance lost with all M arrivals and with the first round only."""
    torch.manual_seed(0)
    log_time = torch.rand(runs, n, dtype=torch.double).log().neg().log()
    log_time = log_time.sort(dim=1).values
    for tau in (0.1, 0.25, 0.5, 1.0):
        num_arrivals = default_num_arrivals(tau)
        weight = torch.softmax(-log_time / tau, dim=1)
        variance = weight.square().sum(dim=1).mean() - 1 / n
        length = ceil(FIRST_ROUND * worst_case_proposals(num_arrivals, 1.0))
        losses = [lost(weight, torch.full((runs,), num_arrivals)) / variance]
        for rate in (exp(-1), 0.42, 0.6):  # exp(-1) is the lowest possible rate.
            arrived = torch.binomial(torch.full((runs,), float(length)), tensor(rate))
            while bool((none := arrived == 0).any()):
                proposals = torch.full_like(arrived[none], 2.0 * length)
                arrived[none] = torch.binomial(proposals, tensor(rate))
            losses.append(
                lost(weight, arrived.clamp(max=num_arrivals).long()) / variance
            )
        text = ', '.join(f'{100 * float(loss):.2f} %' for loss in losses)
        print(f'tau {tau}, M = {num_arrivals}, {length} proposals: {text}')


def lost(weight: Tensor, arrived: Tensor) -> Tensor:
    """Compute the variance of the weights after the first few of each run."""
    later = torch.arange(weight.size(1)) >= arrived.unsqueeze(1)
    late = weight * later
    mean = late.sum(dim=1).square() / later.sum(dim=1)
    return (late.square().sum(dim=1) - mean).mean()


def sharp(n: int = 1000, runs: int = 400) -> None:
    """Compare the variance of sums over neighbours with sharp scores, at one draw."""
    torch.manual_seed(0)
    x = torch.randn(20, 16).repeat(n // 20, 1) + 0.5 * torch.randn(n, 16)
    h = torch.randn(n, 4)
    for similarity in (GaussianSimilarity(16), CosineSimilarity(16)):
        for tau in (0.25, 0.5, 1.0):
            ratios = []
            for scale in (1.0, 3.0, 5.0, 10.0, 20.0, 40.0):
                options = {'k': 1, 'tau': tau, 'scale': scale}
                race = GumbelKNNSampler.paper(similarity, method='race', **options)
                dense = GumbelKNNSampler.paper(similarity, method='dense', **options)
                ratio = variance(race, x, h, runs) / variance(dense, x, h, runs)
                plan = race.plan(x)
                needed = plan.num_proposals / plan.num_arrivals
                ratios.append(f'{scale:g}: {ratio:.3f} ({needed:.0f})')
            name = type(similarity).__name__
            print(f'{name}, tau {tau} (S = {plan.num_tail}): ' + ', '.join(ratios))


@torch.no_grad()
def variance(sampler: GumbelKNNSampler, x: Tensor, h: Tensor, runs: int) -> float:
    """Compute the variance of sums over draws, averaged over targets."""
    total, square = torch.zeros_like(h), torch.zeros_like(h)
    for _ in range(runs):
        out = sampler.propagate(x, h)
        total += out
        square += out.square()
    return float((square / runs - (total / runs).square()).mean() * runs / (runs - 1))
