r"""The relaxation of a race: its first arrivals one by one, all later ones on average.

A draw is a race in which source :math:`j` reaches target :math:`i` at the time
:math:`T_{ij} = E_{ij} e^{-s_{ij}}` with :math:`E_{ij} \sim \mathrm{Exp}(1)`, and its
relaxed weight is proportional to :math:`T_{ij}^{-1/\tau}`. The first few arrivals carry
most of the weight and all of what is random about it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from torch_geometric_gsl.ops.autocast import without_autocast
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.gumbel import straight_through
from torch_geometric_gsl.ops.scorer import Law

# The table of `log_tail_mass`: its first place, its step and its last place.
_FIRST, _STEP, _LAST = -50.0, 0.02, 6.0


class Arrivals(NamedTuple):
    r"""The first arrivals of :math:`K` races per target.

    Args:
        source (torch.Tensor): Sources :math:`[n, K, M]` in the order of arrival.
        noise (torch.Tensor): Their Gumbel noise :math:`g = -\log T - s` of the same
            shape; :math:`-\infty` in a place without an arrival.
        horizon (torch.Tensor): The logarithm of the time :math:`[n, K]` until which
            all arrivals are listed.
    """

    source: Tensor
    noise: Tensor
    horizon: Tensor


class Tail(NamedTuple):
    r"""Sources that stand for all that may arrive later, other ones in each race.

    Args:
        source (torch.Tensor): Sources :math:`[B, K S]` of :math:`B` groups of targets,
            those of the first race first.
        log_share (torch.Tensor): The logarithm of the number of candidates that each
            of them stands for, broadcastable to :math:`[n, K, S]`.
        group (int): The number of targets of a group; the last one may have fewer.
    """

    source: Tensor
    log_share: Tensor
    group: int


def relax(
    score: Tensor,
    arrivals: Arrivals,
    law: Law,
    tail_score: Tensor | None = None,
    log_share: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Relaxed weights of the arrivals and of the tail, averaged over the draws.

    .. math::
        w_r \propto T_r^{-1/\tau}, \qquad
        w_j \propto \frac{N}{S} \, \mathbb{E} \left[ T_j^{-1/\tau}
        \mathbb{1}(T_j > \Gamma) \right]

    for the arrivals :math:`r` until the horizon :math:`\Gamma` and the sources
    :math:`j` of the tail. The gradient is that of the dense relaxation,
    :math:`\partial \log w / \partial s = 1 / \tau`, in both.

    Args:
        score (torch.Tensor): Scores of the arrivals :math:`[n, K, M]`.
        arrivals (Arrivals): The arrivals.
        law (Law): How neighbours are drawn.
        tail_score (torch.Tensor, optional): Scores of the tail :math:`[n, K, S]`;
            :math:`-\infty` excludes. (default: :obj:`None`)
        log_share (torch.Tensor, optional): :obj:`Tail.log_share`.
            (default: :obj:`None`)

    Returns:
        tuple[torch.Tensor, torch.Tensor]: Weights :math:`[n, K, M]` and
        :math:`[n, K, S]`, which sum to 1 over each target.
    """
    logit = (score + arrivals.noise) / law.tau
    if tail_score is not None and log_share is not None:
        late = _tail_logit(tail_score, arrivals.horizon, log_share, law.tau)
        logit = torch.cat([logit, late], dim=-1)
    soft: Tensor = _ShortSoftmax.apply(logit)  # type: ignore[no-untyped-call]
    if law.hard:
        soft = straight_through(_first_one_hot(soft, law), soft)
    soft = soft / soft.size(1)
    return soft[..., : score.size(-1)], soft[..., score.size(-1) :]


class _ShortSoftmax(torch.autograd.Function):
    # torch.softmax takes several times as long over a few entries. The first arrival
    # has the largest logarithm of all, or nearly so: nothing overflows.
    @staticmethod
    def forward(ctx: FunctionCtx, logit: Tensor) -> Tensor:
        ones = logit.new_ones(logit.size(-1))
        weight = (logit - logit[..., :1]).exp_()
        weight /= (weight @ ones).unsqueeze(-1)
        ctx.save_for_backward(weight, ones)
        return weight

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        weight, ones = ctx.saved_tensors  # type: ignore[attr-defined]
        grad = grad * weight
        inner: Tensor = grad - weight * (grad @ ones).unsqueeze(-1)
        return inner


def _first_one_hot(soft: Tensor, law: Law) -> Tensor:
    # The winners share the weight: one of each race, or the first k of a single one.
    winners = 1 if law.replace else soft.size(-1)
    one_hot = torch.zeros_like(soft)
    one_hot[..., :winners] = 1 / winners
    return one_hot


def _tail_logit(
    score: Tensor, horizon: Tensor, log_share: Tensor, tau: float
) -> Tensor:
    excluded = score == -torch.inf
    score = score.masked_fill(excluded, 0)
    level, log_time = score.detach(), horizon.unsqueeze(-1)
    mass = log_tail_mass(level + log_time, tau) - log_time / tau + log_share
    # The gradient of the logarithm of a weight is 1 / tau, the mean held fixed.
    logit = mass + (score - level) / tau
    return logit.masked_fill(excluded, -torch.inf)


@eager
def log_tail_mass(log_rate: Tensor, tau: float) -> Tensor:
    r"""Mean weight of a source that arrives after the horizon, as a logarithm.

    .. math::
        \log \mathbb{E} \left[ t^{-1/\tau} \mathbb{1}(t > 1) \right] = \log
        \int_1^{\infty} t^{-1/\tau} \, r e^{-r t} \, \mathrm{d} t

    in units of the horizon: the rate :math:`r` is :math:`e^{s} \Gamma`. It is
    interpolated in a table, with a relative error below :math:`10^{-4}`.

    Args:
        log_rate (torch.Tensor): Logarithms of rates :math:`\log r`.
        tau (float): The temperature :math:`\tau`.

    Example:
        >>> log_tail_mass(torch.tensor([0.0]), tau=1.0).exp()  # The integral E_1(1)
        tensor([0.2194])
    """
    table = _table(tau, log_rate.dtype, log_rate.device)
    place = (log_rate - _FIRST) / _STEP
    # NaN has no place; it comes back with the line below.
    index = place.nan_to_num(0.0).clamp(0, table.numel() - 2).long()
    # Beyond the ends of the table the line through its outermost places goes on.
    inner = torch.lerp(table[index], table[index + 1], place - index)
    return inner + log_rate - log_rate.exp()


@lru_cache(maxsize=64)
def _table(tau: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    log_rate = np.arange(_FIRST, _LAST + _STEP, _STEP)[:, None]
    rate = np.exp(log_rate)
    node, share = np.polynomial.legendre.leggauss(400)
    # t = e^v with v = length u^3: dense where the integrand falls like e^(-v / tau).
    u = (node + 1) / 2
    length = np.log1p(50 / rate)
    v = length * u**3
    exponent = v * (1 - 1 / tau) - rate * np.expm1(v) + np.log(u**2)
    with np.errstate(under='ignore'):
        inner = (np.exp(exponent) * 1.5 * length * share).sum(axis=1, keepdims=True)
    return torch.from_numpy(np.log(inner).ravel()).to(device, dtype)


def default_num_arrivals(tau: float) -> int:
    r"""The number of arrivals :math:`M` to keep of each draw, :math:`16 \tau`.

    All later ones are replaced by their mean. What this takes from the variance of
    a weighted sum is below 1 % at any temperature up to 1.

    Example:
        >>> [default_num_arrivals(tau) for tau in (0.1, 0.25, 0.5, 1.0)]
        [4, 4, 8, 16]
    """
    return max(4, math.ceil(16 * tau))


def tail_size(law: Law, num_sources: int, is_ragged: bool = False) -> int:
    r"""The number of sources :math:`S` that stand for the tail of each draw.

    .. math::
        S = \frac{50 \left( \sum_{r > M} r^{-1/\tau} \right)^2}
        {\sum_{r \ge 1} r^{-2/\tau}}

    The :math:`r`-th arrival weighs about :math:`r^{-1/\tau}`, so that sampling the
    tail adds 2 % to the variance of a sum of neighbours: 1/50. It is at least the
    default of :math:`M` and at most 512.

    Args:
        law (Law): How neighbours are drawn.
        num_sources (int): The number of sources :math:`N`.
        is_ragged (bool, optional): Whether each target has candidates of its own; it
            gathers its tail then, and :math:`S` is at most 64.
            (default: :obj:`False`)
    """
    if not law.replace:
        return 0
    if law.num_tail is not None:
        return min(law.num_tail, num_sources)
    size = math.ceil(_tail_variance(law.tau, law.kept, min(num_sources, 10**6)))
    least = default_num_arrivals(law.tau)
    return min(max(least, size), 64 if is_ragged else 512, num_sources)


@lru_cache(maxsize=64)
def _tail_variance(tau: float, kept: int, num_sources: int) -> float:
    weight = np.arange(1.0, num_sources + 1) ** (-1 / tau)
    return 50 * float(weight[kept:].sum() ** 2 / (weight**2).sum())


def group_size(tail: int, draws: int) -> int:
    r"""The number of targets that share the sources of their tail.

    Their errors are correlated, so it is small: 16, or more where a target's share of
    the gathered sources would exceed 32.

    Args:
        tail (int): The number of sources :math:`S` of a draw.
        draws (int): The number of draws :math:`K`.
    """
    return max(16, draws * tail // 32)


def spread_sources(
    num_sources: int,
    size: int,
    device: torch.device,
    generator: torch.Generator | None = None,
    repeats: int = 1,
) -> Tensor:
    r"""Draws one source from each of :obj:`size` equal parts of all sources.

    Args:
        num_sources (int): The number of sources :math:`N`.
        size (int): The number of parts, at most :math:`N`; all sources if equal.
        device (torch.device): The device.
        generator (torch.Generator, optional): Source of randomness; the global
            generator if :obj:`None`. (default: :obj:`None`)
        repeats (int, optional): How often to do so. (default: :obj:`1`)

    Returns:
        torch.Tensor: Sources :math:`[\mathrm{repeats} \cdot \mathrm{size}]`.

    Example:
        >>> spread_sources(4, 4, torch.device('cpu'))
        tensor([0, 1, 2, 3])
    """
    part = torch.rand(
        (repeats, size), dtype=torch.double, device=device, generator=generator
    )
    part += torch.arange(size, device=device)
    place = part.mul_(num_sources / size).long().clamp_(max=num_sources - 1)
    return place.flatten()
