r"""The tail of a race: sources that represent later arrivals."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.neighbours import gather
from torch_geometric_gsl.ops.noise import below, draw_seed, precise_uniform, table_words
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_groups, exclude
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.sparse_rows import SparseRows

# The largest number of sources of a tail.
_MAX_TAIL = 4096
# The share that sampling the tail may add to the variance of a sum.
TOLERANCE = 0.02
# The numbers of races and of sources in the simulation of `lost_variance`.
_RACES = 64
_SOURCES = 20_000


class Tail(NamedTuple):
    """Sources that represent later arrivals, different ones in each race."""

    source: Tensor  # [B, K S] of B groups of targets, those of the first race first.
    # The logarithm of the number of candidates that each represents, as [n, K, S].
    log_share: Tensor
    group: int  # The number of targets per group; the last may have fewer.


def tail_scores(
    pairs: PairScores, tail: Tail, arrivals: Arrivals, src: Tensor | None = None
) -> Tensor:
    r"""Score the tail :math:`[n, K, S]`; :math:`-\infty` as of :func:`mask_tail`.

    Gathered embeddings of the tail may be given as :obj:`src` :math:`[B, K S, m]`;
    sparse ones are compared separately for each target.
    """
    if tail.group == 1 or isinstance(pairs.src, SparseRows):
        source = ungroup(tail.source, tail.group, pairs.dst.size(0))
        score = pairs.listed(source)
    else:
        src = gather(pairs.src, tail.source) if src is None else src
        value = compare_groups(pairs.comparison, pairs.dst, src, tail.group)
        score = pairs.respond(slice(None), value)
    return mask_tail(pairs, tail, arrivals, score)


def mask_tail(
    pairs: PairScores, tail: Tail, arrivals: Arrivals, score: Tensor
) -> Tensor:
    r"""Set scores [n, K S] of arrived, excluded and void sources to -inf."""
    source = ungroup(tail.source, tail.group, pairs.dst.size(0))
    if pairs.excluded is not None:
        score = exclude(score, pairs.excluded, source)
    by_race = arrivals.source.size(1), -1
    source, score = source.unflatten(1, by_race), score.unflatten(1, by_race)
    is_void = torch.zeros_like(source, dtype=torch.bool)
    if tail.log_share.dim() > 0:
        is_void |= tail.log_share == -torch.inf
    arrived = torch.where(arrivals.noise == -torch.inf, -1, arrivals.source)
    for arrival in arrived.unbind(-1):
        is_void |= source == arrival.unsqueeze(-1)
    return torch.where(is_void, -torch.inf, score)


def ungroup(x: Tensor, group: int, count: int) -> Tensor:
    """Repeat the row of each group for its targets, :obj:`count` in total."""
    if group == 1:
        return x
    target = torch.arange(count, device=x.device)
    return x[torch.div(target, group, rounding_mode='floor')]


@disable_compile
def draw_tail(
    pairs: PairScores, options: DrawOptions, *, generator: torch.Generator | None = None
) -> Tail | None:
    r"""Draw the sources that represent later arrivals.

    Each draw samples one source from each of :math:`S` equal parts of the candidates;
    there is no tail if all arrivals are kept. Small groups of targets share a tail,
    unless targets have separate candidates; the first target of :obj:`pairs` starts a
    group.
    """
    size = options.num_tail
    if size == 0:
        return None
    if pairs.candidates is not None:
        return _listed_tail(pairs.candidates, options, pairs.dst, generator)
    num_sources = pairs.src.size(0)
    group = group_size(options)
    num_groups = -(-pairs.dst.size(0) // group)
    first_group = pairs.first_target // group
    seed = draw_seed(pairs.src.device, generator)
    words = table_words(
        seed, slice(first_group, first_group + num_groups), options.k * size
    )
    source = spread_sources(precise_uniform(words).view(-1, size), num_sources)
    share = pairs.src.new_full((), math.log(num_sources / size))
    return Tail(source.view(num_groups, options.k * size), share, group)


def _listed_tail(
    candidates: Candidates,
    options: DrawOptions,
    dst: Tensor,
    generator: torch.Generator | None,
) -> Tail:
    """Draw the tail of targets with separate candidates."""
    size = options.num_tail
    rows = slice(0, dst.size(0))
    words = table_words(draw_seed(dst.device, generator), rows, options.k * size)
    level = below(words, 2**31).double() / 2**31
    level += torch.arange(size, device=dst.device).repeat(options.k)
    width = candidates.size.double().unsqueeze(1) / size
    position = torch.minimum((level * width).long(), candidates.size.unsqueeze(1) - 1)
    share = width.log().to(dst.dtype).unsqueeze(-1)
    return Tail(candidates.at(rows, position), share, group=1)


def default_num_arrivals(tau: float) -> int:
    r"""Return the number of arrivals :math:`M` to keep per draw, :math:`16 \tau`.

    Later ones are replaced by their mean, which reduces the variance of a weighted sum
    by less than 1 % at temperatures up to 1.
    """
    return max(4, math.ceil(16 * tau))


def tail_size(tau: float, num_arrivals: int, num_sources: int) -> int:
    r"""Return the number of sources :math:`S` in the tail of each draw.

    They add 2 % to the variance of a sum (:func:`added_variance`). The number is at
    least the default of :math:`M` and at most 4,096, or all sources if it exceeds half
    of them. There are :math:`M` arrivals and :math:`N` candidates.
    """
    share = _variance_over_mass(tau, num_arrivals, num_sources)
    needed = math.ceil(1 / (TOLERANCE * share + 1 / num_sources))
    size = max(default_num_arrivals(tau), needed)
    # With fewer than two sources per part, some would be missed and some repeated.
    return min(size if 2 * size <= num_sources else num_sources, _MAX_TAIL)


def added_variance(
    tau: float, num_arrivals: int, num_tail: int, num_sources: int
) -> float:
    r"""Compute the share of the variance of a sum that sampling the tail adds.

    .. math::
        \left( \frac{1}{S} - \frac{1}{N} \right) \frac{\left( \sum_{r > M} w_r
        \right)^2}{\sum_r w_r^2 - \frac{1}{N} \left( \sum_r w_r \right)^2}, \qquad
        w_r = \left( -\log \left( 1 - \frac{r}{N + 1} \right) \right)^{-1/\tau}

    The :math:`r`-th of equal scores weighs about :math:`w_r`; the denominator is the
    variance of a sum of messages that are independent of the scores. There are
    :math:`M` arrivals, :math:`S` sources of the tail and :math:`N` candidates.
    """
    share = _variance_over_mass(tau, num_arrivals, num_sources)
    return (1 / num_tail - 1 / num_sources) / share


@lru_cache(maxsize=256)
def _variance_over_mass(tau: float, num_arrivals: int, num_sources: int) -> float:
    """Compute the variance of a sum over the squared weight of late arrivals."""
    n = min(num_sources, 10**6)
    log_time = np.log(-np.log1p(-np.arange(1.0, n + 1) / (n + 1)))
    # Relative to the first: at low temperatures absolute weights overflow.
    weight = np.exp((log_time[0] - log_time) / tau)
    late = float(weight[num_arrivals:].sum())
    variance = float((weight**2).sum() - weight.sum() ** 2 / n)
    return variance / late / late if late > 0 else math.inf


@lru_cache(maxsize=256)
def lost_variance(tau: float, num_arrivals: int, num_sources: int) -> float:
    r"""Compute the share of the variance of a sum that a truncated race loses.

    Later arrivals have their mean weight, so their differences are lost. Up to
    :math:`\tau = 1` this is below 1 % with the default :math:`M`; beyond, it is
    simulated for races of equal scores among the :math:`N` candidates, at most 20,000.
    """
    n = min(num_sources, _SOURCES)
    if num_arrivals >= n:
        return 0.0
    gap = np.random.default_rng(0).standard_exponential((_RACES, n))
    log_time = np.log((gap / np.arange(n, 0, -1)).cumsum(axis=1))
    weight = np.exp((log_time[:, :1] - log_time) / tau)
    weight /= weight.sum(axis=1, keepdims=True)
    late = weight[:, num_arrivals:]
    lost = ((late - late.mean(axis=1, keepdims=True)) ** 2).sum(axis=1).mean()
    return float(lost / ((weight**2).sum(axis=1).mean() - 1 / n))


def group_size(options: DrawOptions) -> int:
    """Return the number of targets that share a tail."""
    # Small, as it correlates errors, but at most 32 gathered sources per target.
    return max(16, options.k * options.num_tail // 32)


def spread_sources(level: Tensor, num_sources: int) -> Tensor:
    r"""Select one source from each of :math:`S` equal parts of all sources.

    :obj:`level` :math:`[B, S]` is its relative position in the part, from 0 to 1, in
    double precision. With :math:`S = N` all sources are selected.
    """
    position = level + torch.arange(level.size(1), device=level.device)
    position = position.mul_(num_sources / level.size(1)).long()
    return position.clamp_(max=num_sources - 1)
