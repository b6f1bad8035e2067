r"""Sums over all sources of a pool, weighted by a softmax of distances.

A matrix product without gradients scores all pairs. Those with non-negligible weights,
a few percent for a sharp softmax, are scored again with gradients, and summed by sparse
products.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch_geometric.utils import cumsum

from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import recomputed, row_blocks

# Bytes of a block of scores; several blocks are recomputed in the backward pass.
_BUDGET = 2**26


def pool_weights(
    pairs: PairScores,
    p: float = 0.0,
    draws: int | None = None,
    rows: slice = slice(None),
    *,
    generator: torch.Generator | None = None,
) -> tuple[Neighbours, Tensor]:
    r"""Compute the non-negligible weights of a block of targets, and their sources.

    Weights are the softmax of the scores with dropout probability :obj:`p`, or the mean
    of relaxed draws :math:`\mathrm{softmax}_j(s_{ij} + g_{ij})`, distributed as in
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` with :math:`\tau = 1`. The
    softmax weights of the omitted sources sum to at most :math:`\epsilon`, the rounding
    error of 1, and so does the probability that one of them arrives first in a draw.
    """
    neighbours = _counting_sources(pairs, rows)
    target, n = neighbours.target.long(), neighbours.offsets.numel() - 1
    place = target + (rows.start or 0)
    score = pairs.respond(place, pairs.compare(rows, neighbours))
    most = score.new_full((n,), -torch.inf)
    most = most.scatter_reduce(0, target, score.detach(), 'amax')
    rate = (score - most.index_select(0, target)).exp().unsqueeze(1)
    if draws is not None:
        rate = rate / exponentials(rate.expand(-1, draws), generator)
    total = rate.new_zeros(n, rate.size(1)).index_add(0, target, rate)
    weight = (rate / total.index_select(0, target)).mean(dim=1)
    if draws is None:
        weight = dropout(weight, p, True, generator)
    return neighbours, weight


def pool_sum(
    h: Tensor,
    pairs: PairScores,
    p: float = 0.0,
    draws: int | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sum the messages of all sources, weighted by :func:`pool_weights`.

    A target without candidates gets zero; messages are :math:`[N, m]`.

    Example:
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> pairs = PairScores(torch.zeros(1, 1), torch.zeros(2, 1), Identity())
        >>> pool_sum(torch.tensor([[2.0], [4.0]]), pairs)
        tensor([[3.]])
    """
    if pairs.available <= 0 or pairs.dst.size(0) == 0:
        return h.new_zeros(pairs.dst.size(0), h.size(1))
    bytes_per_row = pairs.src.size(0) * pairs.dst.element_size()
    rows = [*row_blocks(pairs.dst.size(0), bytes_per_row, _BUDGET)]
    if len(rows) == 1:
        return _block_sum(h, pairs, p, draws, slice(None), generator)
    # A recomputed block drops the same weights.
    device = h.device if generator is None else generator.device
    seeds = torch.randint(2**31, (len(rows),), generator=generator, device=device)
    run = recomputed(_block_sum)
    blocks = zip(rows, seeds.tolist(), strict=True)
    return torch.cat([run(h, pairs, p, draws, part, seed) for part, seed in blocks])


def _block_sum(
    h: Tensor,
    pairs: PairScores,
    p: float,
    draws: int | None,
    rows: slice,
    seed: torch.Generator | int | None,
) -> Tensor:
    if isinstance(seed, int):
        seed = torch.Generator(h.device).manual_seed(seed)
    neighbours, weight = pool_weights(pairs, p, draws, rows, generator=seed)
    return neighbour_sum(h.to(weight.dtype), weight, neighbours).to(h.dtype)


@torch.no_grad()
def _counting_sources(pairs: PairScores, rows: slice) -> Neighbours:
    """List the sources of each target with non-negligible softmax weights."""
    score = pairs.detach().rows(rows)
    num_sources = pairs.src.size(0)
    least = math.log(torch.finfo(score.dtype).eps / num_sources)
    # Excluded sources never count; if a target's largest score is NaN, all others do.
    bound = score.amax(dim=1, keepdim=True) + least
    counts = (score < bound.clamp_(min=torch.finfo(score.dtype).min)).logical_not_()
    place = counts.view(-1).nonzero().view(-1)
    offsets = cumsum(counts.sum(dim=1))
    return Neighbours(place % num_sources, num_sources, offsets)


def exponentials(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample Exp(1) numbers of 31 bits, five times as fast as PyTorch."""
    bits = torch.empty(-(-like.numel() // 2), dtype=torch.int64, device=like.device)
    bits = bits.random_(-(2**63), None, generator=generator).view(torch.int32)
    return from_bits(bits[: like.numel()].view(like.shape), like.dtype)


def from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert 32-bit integers to Exp(1) numbers, none of them zero or infinite."""
    number = bits.to(dtype).abs_()
    # The logarithm of what rounds to zero would be infinite.
    least = torch.finfo(dtype).eps / 2 - 1
    return number.add_(0.5).mul_(-(2.0**-31)).clamp_(min=least).log1p_().neg_()
