r"""Relaxed draws and sums over the sources of each target that are not negligible.

A matrix product without gradients scores all pairs. Those with non-negligible weights,
a few percent for sharp scores, are scored again with gradients, drawn with noise for
each, and summed by sparse products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import cumsum, scatter, softmax

from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, gather, neighbour_sum
from torch_geometric_gsl.ops.noise import (
    STEP,
    race_states,
    random_words,
    uniform,
)
from torch_geometric_gsl.ops.pair_scores import (
    PairScores,
    distances_as_dots,
    is_distance,
)
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import (
    HandWritten,
    disable_compile,
    full_precision,
    once_differentiable,
    recomputed,
    row_blocks,
)
from torch_geometric_gsl.ops.sparse_rows import row_norms

# Bytes of a score in a block of rows, relative to its size, and of a draw's noise.
_PER_SCORE, _PER_NOISE = 3, 64
# The number of targets whose sources are counted.
_NUM_SAMPLED = 64

#: The listed sources of targets, and their weights.
WeightedLists = tuple[Neighbours, Tensor]


@torch.no_grad()
def list_pool(pairs: PairScores, tau: float = 1.0) -> Neighbours:
    r"""List the sources of each target that are not negligible.

    The others have less than :math:`\epsilon / N` times the rate of the first one, so
    that one of them arrives first in a draw with a probability of at most
    :math:`\epsilon`, the rounding error of 1. For :math:`\tau > 1` it is
    :math:`(\epsilon / N)^\tau`, as slow sources weigh more than their rates.
    """
    pairs = pairs.detach()
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    info = torch.finfo(pairs.dst.dtype)
    log_ratio = max(tau, 1.0) * math.log(info.eps / num_sources)
    margin = pairs.dst.new_full((num_targets, 1), log_ratio)
    if is_distance(pairs):
        # Products are fast; what they may round away is listed as well.
        pairs = distances_as_dots(pairs)
        error = 2 * (pairs.src.size(1) + 8) * info.eps
        norm = row_norms(pairs.dst) * row_norms(pairs.src).amax()
        margin -= error * norm.unsqueeze(1)
    sources = []
    counts = []
    for rows in _blocks(pairs):
        score = pairs.rows(rows)
        # Excluded sources never count; if the largest score is NaN, all others do.
        bound = score.amax(dim=1, keepdim=True) + margin[rows]
        is_listed = (score < bound.clamp_(min=info.min)).logical_not_()
        position = is_listed.view(-1).nonzero().view(-1)
        target = position.div(num_sources, rounding_mode='floor')
        sources.append(position.remainder_(num_sources))
        counts.append(torch.bincount(target, minlength=score.size(0)))
    offsets = cumsum(torch.cat(counts))
    source = torch.cat(sources)
    return Neighbours(source, num_sources, offsets, memory=pairs.memory)


@disable_compile
def count_pool(pairs: PairScores, tau: float) -> float:
    """Return the mean number of sources of :func:`list_pool`, of at most 64 targets."""
    count = pairs.dst.size(0)
    target = torch.arange(0, count, -(-count // _NUM_SAMPLED), device=pairs.dst.device)
    return list_pool(pairs.take(target), tau).source.numel() / target.numel()


@disable_compile
def pool_draws(pairs: PairScores, options: DrawOptions, seed: Tensor) -> WeightedLists:
    r"""Average :math:`K` relaxed draws among the sources of :func:`list_pool`.

    They are those of :func:`~torch_geometric_gsl.ops.dense.relaxed_weights`, up to
    rounding. The noise is a function of (seed, target, draw, source). If there are
    several blocks of targets, the draws of each are recomputed in the backward pass.
    """
    neighbours, score = _scored(pairs, options.tau)
    num_targets, k = pairs.dst.size(0), options.k
    state = race_states(seed, pairs.first_target * k, num_targets * k).view(-1, k)
    bytes_per_row = _PER_NOISE * k * score.numel() // max(1, num_targets)
    blocks = row_blocks(num_targets, bytes_per_row, pairs.memory)
    ends = neighbours.offsets[[0, *(rows.stop for rows in blocks)]]
    columns = score, neighbours.source.long(), neighbours.target.long()
    lists = zip(*(x.split(ends.diff().tolist()) for x in columns), strict=True)
    average = _average_draws if len(blocks) == 1 else recomputed(_average_draws)
    weights = []
    for rows, (score, source, target) in zip(blocks, lists, strict=True):
        weight = average(
            score,
            pairs.null,
            source,
            target - rows.start,
            state[rows],
            pairs.src.size(0),
            options,
        )
        weights.append(weight)
    return neighbours, torch.cat(weights)


@disable_compile
def pool_softmax(
    pairs: PairScores, p: float = 0.0, generator: torch.Generator | None = None
) -> WeightedLists:
    """Compute the softmax of the scores, with dropout probability :obj:`p`."""
    neighbours, score = _scored(pairs)
    target = neighbours.target.long()
    weight = softmax(score, target, num_nodes=pairs.dst.size(0))
    return neighbours, dropout(weight, p, True, generator)


def pool_sum(
    h: Tensor, pairs: PairScores, weigh: Callable[[PairScores], WeightedLists]
) -> Tensor:
    """Sum the messages of all sources, weighted by one of the functions above.

    A target without candidates gets zero; messages are :math:`[N, m]`.

    Example:
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> pairs = PairScores(torch.zeros(1, 1), torch.zeros(2, 1), Identity())
        >>> pool_sum(torch.tensor([[2.0], [4.0]]), pairs, pool_softmax)
        tensor([[3.]])
    """
    full = full_precision(h)
    blocks = [pairs]
    if not torch.is_grad_enabled():  # What is listed need not be kept.
        blocks = [pairs.block(rows) for rows in _blocks(pairs)]
    sums = [
        neighbour_sum(full, weight.to(full), neighbours)
        for neighbours, weight in map(weigh, blocks)
    ]
    return torch.cat(sums).to(h.dtype)


def _blocks(pairs: PairScores) -> list[slice]:
    """Return blocks of targets whose scores fit the memory budget, at least one."""
    bytes_per_row = _PER_SCORE * pairs.src.size(0) * pairs.dst.element_size()
    return row_blocks(pairs.dst.size(0), bytes_per_row, pairs.memory) or [slice(0, 0)]


def _scored(pairs: PairScores, tau: float = 1.0) -> WeightedLists:
    """List the sources that are not negligible, and score them."""
    neighbours = list_pool(pairs, tau)
    value = pairs.compare(slice(None), neighbours)
    return neighbours, pairs.respond(neighbours.target.long(), value)


def _average_draws(
    score: Tensor,
    null: Tensor | None,
    source: Tensor,
    target: Tensor,
    state: Tensor,
    num_sources: int,
    options: DrawOptions,
) -> Tensor:
    """Average the draws of a block of targets, whose pairs are sorted by target."""
    noise = _gumbel(gather(state, target), source.unsqueeze(1), score)
    null_noise = None
    if null is not None:  # That of one more source.
        null_noise = _gumbel(state, source.new_tensor(num_sources), score)
    weight: Tensor
    weight, *_ = _PoolDraws.apply(  # type: ignore[no-untyped-call]
        score, null, noise, null_noise, target, state.size(0), options
    )
    return weight


def _gumbel(state: Tensor, source: Tensor, like: Tensor) -> Tensor:
    """Return the noise of sources in the races of some states."""
    word = random_words(state + (source + 1) * STEP)
    # Early arrivals need double precision.
    return uniform(word, torch.float64).log_().neg_().log_().neg_().to(like)


class _PoolDraws(HandWritten):
    @staticmethod
    def forward(
        score: Tensor,
        null: Tensor | None,
        noise: Tensor,
        null_noise: Tensor | None,
        target: Tensor,
        num_targets: int,
        options: DrawOptions,
    ) -> tuple[Tensor, ...]:
        logit = (score.unsqueeze(1) + noise).div_(options.tau)
        largest = scatter(logit, target, 0, num_targets, 'max')
        null_logit = torch.full_like(largest, -torch.inf)
        if null is not None and null_noise is not None:
            null_logit = (null + null_noise).div_(options.tau)
            largest = torch.maximum(largest, null_logit)
        weight = logit.sub_(gather(largest, target)).exp_()
        null_weight = null_logit.sub_(largest).exp_()
        total = scatter(weight, target, 0, num_targets, 'sum').add_(null_weight)
        weight, null_weight = (
            weight.div_(gather(total, target)),
            null_weight.div_(total),
        )
        draws = weight
        if options.hard:
            draws = _winners(weight, null_weight, target)
        return draws.mean(dim=1), weight, null_weight

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        score, null, *_, ctx.target, _, options = inputs
        _, weight, null_weight = output
        ctx.mark_non_differentiable(weight, null_weight)
        ctx.save_for_backward(weight, null_weight, score, null)
        ctx.factor = 1 / (options.k * options.tau)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        weight, null_weight, _, null = ctx.saved_tensors
        grad = grad.unsqueeze(1)
        inner = scatter(weight * grad, ctx.target, 0, null_weight.size(0), 'sum')
        slope = weight * (grad - gather(inner, ctx.target))
        grad_null = None
        if null is not None:
            grad_null = (null_weight * inner).sum().mul_(-ctx.factor)
        return slope.sum(dim=1).mul_(ctx.factor), grad_null, *(None,) * 5


def _winners(weight: Tensor, null_weight: Tensor, target: Tensor) -> Tensor:
    """Return one-hot draws; the first of equal weights is drawn."""
    num_targets, num_pairs = null_weight.size(0), target.numel()
    is_largest = weight == scatter(weight, target, 0, num_targets, 'max')[target]
    is_largest &= weight > null_weight[target]
    index = torch.arange(num_pairs, device=target.device).unsqueeze(1)
    index = index.where(is_largest, num_pairs)
    winner = scatter(index, target, 0, num_targets, 'min')[target]
    return torch.where(
        weight.isnan(), weight, (is_largest & (index == winner)).to(weight)
    )
