r"""Upper bounds of the scores, under which the candidates of a race are proposed.

A race proposes candidate :math:`j` at a rate :math:`e^{u_{ij}} \ge e^{s_{ij}}` and
accepts with probability :math:`e^{s_{ij} - u_{ij}}`, so that its law is exact under any
bounds, and its length is that of the bounds over the scores.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops._native.compiled import find_library, run_kernel
from torch_geometric_gsl.ops.clusters import (
    Balls,
    Clusters,
    compare_centres,
    compared_range,
    enclose,
)
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all, exclude
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import row_blocks
from torch_geometric_gsl.ops.scan import SCAN_FACTOR
from torch_geometric_gsl.ops.sparse_rows import row_norms

# The targets whose proposals are counted, and the steps of Newton's method.
_NUM_SAMPLED = 64
_NEWTON_STEPS = 16


class Head(NamedTuple):
    """Candidates of each target that are proposed at their exact rates."""

    source: Tensor  # Distinct sources [n, H], in ascending order.
    low: Tensor  # A lower bound [n] of what is compared with all other sources.
    high: Tensor  # An upper bound of it.

    def take(self, target: Tensor | slice) -> Head:
        """Return the heads of some targets."""
        return Head(self.source[target], self.low[target], self.high[target])


class Envelope(NamedTuple):
    """Upper bounds of the scores: of the candidates of a head, and of clusters."""

    clusters: Clusters | None = None  # A partition of the sources; else all are one.
    balls: Balls | None = None  # What holds the embeddings of each cluster.
    head: Head | None = None  # Candidates with their exact rates.

    def __str__(self) -> str:
        bounds = []
        if self.balls is not None:
            bounds.append(f'{self.balls.radius.numel()} clusters')
        if self.head is not None:
            bounds.append(f'a head of {self.head.source.size(1)}')
        return ' and '.join(bounds) or 'one bound'

    @property
    def num_bounds(self) -> int:
        """Return the number of clusters and of candidates of a head."""
        num_clusters = 1
        if self.clusters is not None:
            num_clusters = self.clusters.offsets.numel() - 1
        return num_clusters + (0 if self.head is None else self.head.source.size(1))


class Rates(NamedTuple):
    """The rates at which a block of targets proposes.

    There are D bounds: of C clusters, and then of the H candidates of the head.
    """

    bound: Tensor  # The bounds of the scores [n, D].
    total: Tensor  # The logarithm of the sum of all rates [n].
    sizes: Tensor  # The numbers of candidates [n].
    # Where `propose` looks candidates up, if there are clusters: the share of the rates
    # up to each bound [n, D], from 0 at -2^31 to 1 at 2^31, rounded down; the bounds;
    # the sources by clusters, and where these begin; the candidates of the head [n, H].
    lookup: tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None] | None = None


def make_envelope(
    pairs: PairScores, clusters: Clusters | None = None, head: Head | None = None
) -> Envelope:
    """Bound the scores by clusters and a head, found for any embeddings of nodes."""
    balls = None
    if clusters is not None:
        balls = enclose(pairs.comparison, pairs.src.detach(), clusters)
    elif head is not None:
        sources = torch.arange(pairs.src.size(0), device=pairs.src.device)
        clusters = Clusters(sources, sources.new_tensor([0, sources.numel()]))
    return Envelope(clusters, balls, head)


@torch.no_grad()
def find_nearest(pairs: PairScores, size: int) -> Head:
    """List fewer than all sources of the largest compared values, or the smallest,
    and bound what is compared with the others.
    """
    dst, src = pairs.dst.detach(), pairs.src.detach()
    is_largest = pairs.response.head_sign > 0
    source = torch.empty(dst.size(0), size, dtype=torch.long, device=dst.device)
    limit = dst.new_empty(dst.size(0))
    bytes_per_row = 3 * src.size(0) * dst.element_size()
    for rows in row_blocks(dst.size(0), bytes_per_row, pairs.memory):
        value = compare_all(pairs.comparison, dst[rows], src)
        values, index = value.topk(size + 1, dim=1, largest=is_largest)
        source[rows] = index[:, :size].sort(dim=1).values
        limit[rows] = values[:, size]
    low, high = (torch.full_like(limit, sign * torch.inf) for sign in (-1, 1))
    # The rounding of what is compared again.
    error = (src.size(1) + 8) * torch.finfo(src.dtype).eps
    if pairs.comparison == 'dot':
        slack = 2 * error * row_norms(dst) * row_norms(src).amax()
        low, high = (low, limit + slack) if is_largest else (limit - slack, high)
    else:
        root = limit.sqrt()
        low = (root - error * root).clamp(min=0).square()
    return Head(source, low, high)


@torch.no_grad()
def bound_scores(pairs: PairScores, envelope: Envelope, rows: slice) -> Tensor:
    r"""Return a bound of the scores of each cluster :math:`[n, C]` for some targets.

    Members of the head are left out of what it bounds.
    """
    head = envelope.head
    num_targets = len(range(*rows.indices(pairs.dst.size(0))))
    upper = pairs.upper + pairs.src.new_zeros(num_targets, 1)
    span = None if envelope.balls is not None else pairs.response.span
    if envelope.clusters is None and span is None:
        return upper
    dst = pairs.dst[rows]
    lowest, highest = span or (-torch.inf, torch.inf)
    low, high = torch.full_like(upper, lowest), torch.full_like(upper, highest)
    if head is not None:
        low, high = head.low[rows, None], head.high[rows, None]
    if envelope.balls is not None:
        bounds = compared_range(pairs.comparison, dst, envelope.balls)
        low, high = torch.maximum(bounds[0], low), torch.minimum(bounds[1], high)
    params = [param[rows].unsqueeze(1) for param in pairs.response.params]
    # An empty interval: all members of the cluster are in the head.
    _, best = pairs.response.interval(torch.minimum(low, high), high, *params)
    bound = pairs.scale * best
    # Scores are rounded as well.
    slack = 16 * torch.finfo(bound.dtype).eps * (bound.abs() + pairs.scale)
    return torch.minimum(bound + slack, upper)


@torch.no_grad()
def proposal_rates(pairs: PairScores, envelope: Envelope, rows: slice) -> Rates:
    """Return the rates at which a block of targets proposes."""
    clusters = envelope.clusters
    num_excluded = int(pairs.excluded is not None)
    num_targets = len(range(*rows.indices(pairs.dst.size(0))))
    if pairs.candidates is None:
        available = pairs.src.size(0) - num_excluded
        count = torch.full((num_targets,), available, device=pairs.dst.device)
    else:
        count = pairs.candidates.size[rows] - num_excluded
    if clusters is None:
        bound = bound_scores(pairs, envelope, rows)
        rate = bound + count.view(-1, 1).to(bound.dtype).log()
        return Rates(bound, rate.squeeze(1), count)
    log_size = clusters.size.to(pairs.dst.dtype).log()
    head = None if envelope.head is None else envelope.head.source[rows]
    balls = envelope.balls
    if balls is not None and head is None and find_library('rates', pairs) is not None:
        bound, total, share = _rates_native(pairs, balls, log_size, rows)
    else:
        bound = bound_scores(pairs, envelope, rows)
        rate = bound + log_size
        if head is not None:
            score = pairs.listed(head, rows)
            if pairs.excluded is not None:
                score = exclude(score, pairs.excluded[rows], head)
            bound = torch.cat([bound, score], 1)
            rate = torch.cat([rate, score], 1)
        total = rate.logsumexp(dim=1)
        # In double precision: a sum of many shares.
        share = (rate - total.unsqueeze(1)).double().exp_().cumsum_(dim=1)
        share *= 2.0**32 / share[:, -1:]
        share = share.sub_(2.0**31).floor_().clamp_(max=2.0**31 - 1).int()
    return Rates(bound, total, count, (share, bound, *clusters, head))


@torch.no_grad()
def _rates_native(
    pairs: PairScores, balls: Balls, log_size: Tensor, rows: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute bounds, totals and shares of the rates of clusters in C++.

    They differ in their last bits from those in PyTorch, so that one proposal in about
    ten thousand is of another cluster. Bounds and shares are :math:`[n, C]`, the
    logarithms of totals :math:`[n]`.
    """
    dst = pairs.dst[rows].detach()
    compared = compare_centres(pairs.comparison, dst, balls)
    norm = row_norms(dst)
    if compared.dtype != dst.dtype:  # What C++ would read as another type.
        raise TypeError(f"'compared' must be {dst.dtype} (got {compared.dtype})")
    bound = torch.empty_like(compared)
    total = compared.new_empty(compared.size(0))
    share = torch.empty_like(compared, dtype=torch.int32)
    min_norm, max_norm = balls.norm
    run_kernel(
        'rates',
        'rates',
        pairs,
        rows,
        compared.size(0),
        compared=compared,
        norm=norm,
        radius=balls.radius,
        min_norm=min_norm,
        max_norm=max_norm,
        log_size=log_size,
        bound=bound,
        total=total,
        share=share,
        upper=float(pairs.upper),
        error=balls.error,
        num_clusters=log_size.numel(),
    )
    return bound, total, share


class Sample(NamedTuple):
    """Some targets, whose candidates are scored to predict the length of races."""

    pairs: PairScores
    log_total: Tensor  # The logarithm of the sum of their rates, of each target.
    num_accepted: Tensor  # The acceptances that its arrivals take.


@torch.no_grad()
def sample_targets(pairs: PairScores, options: DrawOptions) -> Sample:
    r"""Score the candidates of at most 64 targets.

    Without replacement :math:`M` acceptances are not enough for as many neighbours, and
    :func:`num_accepted` takes their place.
    """
    count = pairs.dst.size(0)
    target = torch.arange(0, count, -(-count // _NUM_SAMPLED), device=pairs.dst.device)
    sample = pairs.take(target)
    log_total = []
    accepted = []
    # Small blocks, whose memory is used again instead of fetched anew.
    bytes_per_row = 8 * pairs.src.size(0) * pairs.dst.element_size()
    for rows in row_blocks(target.numel(), bytes_per_row):
        score = sample.rows(rows)
        log_total.append(score.logsumexp(dim=1))
        if options.replace:
            accepted.append(score.new_full((score.size(0),), options.num_arrivals))
        else:
            accepted.append(num_accepted(score, options.num_arrivals))
    return Sample(sample, torch.cat(log_total), torch.cat(accepted))


@torch.no_grad()
def num_expected(sample: Sample, envelope: Envelope) -> float:
    r"""Return the mean number of proposals until a race has its arrivals.

    It is :math:`M R_i / Z_i`, or an eighth of the candidates where this is less and all
    are looked at, in the mean over the targets of a sample.
    """
    rates = proposal_rates(sample.pairs, envelope, slice(None))
    ratio = (rates.total - sample.log_total).double().exp()
    expected = sample.num_accepted * ratio
    return float(expected.clamp(max=sample.pairs.available / SCAN_FACTOR).mean())


@torch.no_grad()
def num_accepted(score: Tensor, count: int) -> Tensor:
    r"""Estimate the acceptances that :obj:`count` distinct candidates take.

    A candidate of probability :math:`\pi_j` is among the first :math:`T` acceptances
    with probability :math:`1 - e^{-\pi_j T}`, nearly. Newton's method finds the
    :math:`T` where these add up to the number wanted, from below, and stops at the
    number of candidates. Scores are those of all candidates of some targets.
    """
    share = score.double().softmax(dim=1)
    accepted = share.new_full((score.size(0), 1), count)
    for _ in range(_NEWTON_STEPS):
        missed = (-share * accepted).exp_()
        lacking = count - (1 - missed).sum(dim=1, keepdim=True)
        slope = (share * missed).sum(dim=1, keepdim=True)
        step = lacking / slope.clamp(min=torch.finfo(slope.dtype).tiny)
        accepted = (accepted + step.clamp(min=0)).clamp(max=score.size(1))
    return accepted.squeeze(1)
