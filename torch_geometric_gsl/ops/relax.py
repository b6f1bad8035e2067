r"""Relaxed weights of a truncated race: exact arrivals, averaged tail.

A draw is a race in which source :math:`j` reaches target :math:`i` at the time
:math:`T_{ij} = E_{ij} e^{-s_{ij}}` with :math:`E_{ij} \sim \mathrm{Exp}(1)`, and its
relaxed weight is proportional to :math:`T_{ij}^{-1/\tau}`. The first few arrivals carry
most of the weight and, at temperatures up to 1, nearly all of its variance.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl.ops.runtime import (
    HandWritten,
    disable_compile,
    once_differentiable,
)

# The table of `log_tail_mass`: its first position, its step and its last position.
_FIRST, _STEP, _LAST = -50.0, 0.02, 6.0


class DrawOptions(NamedTuple):
    """The options of a draw of neighbours."""

    k: int  # The number of draws K.
    tau: float  # The temperature.
    num_arrivals: int  # The arrivals kept per race, M; k without replacement.
    num_tail: int = 0  # The number S of sources that represent later arrivals.
    hard: bool = False  # One-hot draws, relaxed gradients.
    replace: bool = True  # If not, one race and its first k distinct arrivals.

    @property
    def num_races(self) -> int:
        """Return the number of races per target."""
        return self.k if self.replace else 1


class Arrivals(NamedTuple):
    """The first arrivals of K races per target."""

    source: Tensor  # Sources [n, K, M] in the order of arrival.
    # Their Gumbel noise g = -log T - s, of that shape; -inf without an arrival.
    noise: Tensor
    horizon: Tensor  # The logarithm of the time [n, K] up to which all are listed.
    null: Tensor | None = None  # The noise of the null neighbour of each race [n, K].

    def split(self, sizes: list[int]) -> list[Arrivals]:
        """Return the arrivals of blocks of these numbers of targets."""
        fields = [[x] * len(sizes) if x is None else x.split(sizes) for x in self]
        return [Arrivals(*block) for block in zip(*fields, strict=True)]


def relax(
    score: Tensor,
    arrivals: Arrivals,
    options: DrawOptions,
    tail_score: Tensor | None = None,
    log_share: Tensor | None = None,
    null: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Compute relaxed weights of the arrivals and the tail, averaged over the draws.

    .. math::
        w_r \propto T_r^{-1/\tau}, \qquad
        w_j \propto \frac{N}{S} \, \mathbb{E} \left[ T_j^{-1/\tau}
        \mid T_j > \Gamma \right]

    for the arrivals :math:`r` up to the horizon :math:`\Gamma` and the sources
    :math:`j` of the tail that arrive later. The gradient is that of the dense
    relaxation, :math:`\partial \log w / \partial s = 1 / \tau`, in both.

    Scores are :math:`[n, K, M]` of the arrivals and :math:`[n, K, S]` of the tail;
    :math:`-\infty` excludes. :obj:`log_share` is the logarithm of the number of
    candidates that a source of the tail represents. Weights have the shapes of the
    scores; those of a target sum to 1, less the weight of a null neighbour, which takes
    part in each race.
    """
    if arrivals.null is None:
        null = None
    weight: Tensor
    weight, *_ = _Weights.apply(  # type: ignore[no-untyped-call]
        score, tail_score, null, arrivals, log_share, options
    )
    num_nulls = int(null is not None)
    num_arrivals = score.size(-1)
    _, early, late = weight.tensor_split([num_nulls, num_nulls + num_arrivals], dim=-1)
    return early, late


class _Weights(HandWritten):
    # By hand: only weights are stored, no intermediate results.
    @staticmethod
    def forward(
        score: Tensor,
        tail_score: Tensor | None,
        null: Tensor | None,
        arrivals: Arrivals,
        log_share: Tensor | None,
        options: DrawOptions,
    ) -> tuple[Tensor, ...]:
        logit = (score + arrivals.noise) / options.tau
        if tail_score is not None and log_share is not None:
            late = _tail_logit(tail_score, arrivals.horizon, log_share, options.tau)
            logit = torch.cat([logit, late], dim=-1)
        if null is not None and arrivals.null is not None:
            null_logit = ((null + arrivals.null) / options.tau).unsqueeze(-1)
            if not options.replace:
                logit, null_logit = _first_of_all(logit, null_logit)
            logit = torch.cat([null_logit, logit], dim=-1)
        # Either the null neighbour or the first arrival has nearly the largest
        # logarithm: subtracting it prevents overflow, several times as fast as
        # torch.softmax over a few entries.
        leaders = 1 + int(null is not None)
        weight = (logit - logit[..., :leaders].amax(dim=-1, keepdim=True)).exp_()
        weight.div_((weight @ weight.new_ones(weight.size(-1))).unsqueeze(-1))
        weight.div_(score.size(1))
        if not options.hard:
            return (weight,)
        winners = _winners(logit, options, leaders) / score.size(1)
        return torch.where(weight.isnan(), weight, winners), weight

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        score, tail_score, null, _, _, options = inputs
        weight = output[-1]
        # Relaxed weights are the output; hard ones depend on the scores.
        scores: Any = ()
        if options.hard:
            scores = filter(torch.is_tensor, (score, tail_score, null))
            ctx.mark_non_differentiable(weight)
        ctx.save_for_backward(weight, *scores)
        num_nulls = int(null is not None)
        num_arrivals = score.size(-1)
        num_late = weight.size(-1) - num_nulls - num_arrivals
        ctx.sizes = [num_nulls, num_arrivals, num_late]
        ctx.tau = options.tau
        ctx.null = None if null is None else null.shape

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        weight = ctx.saved_tensors[0]
        grad = grad * weight
        total = (grad @ weight.new_ones(weight.size(-1))).mul_(weight.size(1))
        grad.addcmul_(weight, total.unsqueeze(-1), value=-1).div_(ctx.tau)
        null, early, late = grad.split(ctx.sizes, dim=-1)
        return (
            early,
            late if ctx.needs_input_grad[1] else None,
            null.sum_to_size(ctx.null) if ctx.needs_input_grad[2] else None,
            *(None, None, None),
        )


def _first_of_all(logit: Tensor, null: Tensor) -> tuple[Tensor, Tensor]:
    """Keep the first k of k arrivals and the null neighbour."""
    last = torch.arange(logit.size(-1), device=logit.device) == logit.size(-1) - 1
    is_early = null > logit[..., -1:]
    logit = logit.masked_fill(is_early & last, -torch.inf)
    return logit, null.masked_fill(~is_early, -torch.inf)


def _winners(logit: Tensor, options: DrawOptions, leaders: int) -> Tensor:
    """Divide the weight among the winners: one per race, or k of a single race."""
    if not options.replace:
        return (logit != -torch.inf).to(logit) / options.k
    winner = logit[..., :leaders].argmax(dim=-1, keepdim=True)
    return torch.zeros_like(logit).scatter_(-1, winner, 1)


def _tail_logit(
    score: Tensor, horizon: Tensor, log_share: Tensor, tau: float
) -> Tensor:
    excluded = score == -torch.inf
    log_time = horizon.unsqueeze(-1)
    mass = log_tail_mass(torch.where(excluded, 0, score) + log_time, tau)
    logit = mass.sub_(log_time / tau).add_(log_share)
    return torch.where(excluded, -torch.inf, logit)


@disable_compile
def log_tail_mass(log_rate: Tensor, tau: float) -> Tensor:
    r"""Interpolate the logarithm of the mean weight of a source that arrives late.

    .. math::
        \log \mathbb{E} \left[ t^{-1/\tau} \mid t > 1 \right] = \log
        \int_1^{\infty} t^{-1/\tau} \, r e^{-r (t - 1)} \, \mathrm{d} t

    in units of the horizon, with the rate :math:`r = e^{s} \Gamma`, given as
    :obj:`log_rate`. The relative error is below :math:`10^{-4}`.
    """
    table = _table(tau, log_rate.dtype, log_rate.device)
    position = (log_rate - _FIRST) / _STEP
    index = position.nan_to_num(0.0).clamp(0, table.size(1) - 1).int()
    start = table[0].index_select(0, index.flatten())
    slope = table[1].index_select(0, index.flatten())
    # NaN has no index, but stays NaN. Extrapolate linearly beyond the table, but no
    # late arrival outweighs one at the horizon.
    fraction = position - index
    inner = torch.addcmul(start.view_as(fraction), slope.view_as(fraction), fraction)
    return inner.add_(log_rate).clamp_(max=0)


@lru_cache(maxsize=64)
def _table(tau: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the logarithm without the factor :math:`r` at each step, and its
    difference from the next :math:`[2, T]`.
    """
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
    mass = np.log(inner).ravel()
    rows = np.stack([mass[:-1], np.diff(mass)])
    return torch.from_numpy(rows).to(device, dtype)
