r"""Sums over all sources of a pool, weighed by a softmax of distances."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.scores import Response, identity

# Weights are dropped with a probability that is a multiple of one in so many.
_LEVELS = 2**16


def distances_as_dots(pairs: PairScores) -> PairScores:
    r"""Return inner products that differ from negative squared distances by a number of
    each target.

    Weights and ranks of its sources are the same, since :math:`-\lVert z_i - z_j
    \rVert^2 = 2 z_i \cdot z_j - \lVert z_j \rVert^2 - \lVert z_i \rVert^2`, and matrix
    products find them. The embeddings are moved to the mean of the sources first, where
    rounding errors are small.

    Args:
        pairs (PairScores): The scores, with the response
            :func:`~torch_geometric_gsl.ops.scores.negative`.

    Example:
        >>> from torch_geometric_gsl.ops.scores import negative
        >>> z = torch.tensor([[0.0], [1.0], [3.0]])
        >>> pairs = PairScores(z, z, Response(negative), 'squared_distance')
        >>> found = distances_as_dots(pairs).rows() - pairs.rows()
        >>> torch.allclose(found, found[:, :1], atol=1e-5)
        True
    """
    centre = pairs.src.detach().mean(dim=0) if pairs.src.size(0) > 0 else 0.0
    src = pairs.src - centre
    dst = src if pairs.dst is pairs.src else pairs.dst - centre
    dst = torch.cat([2 * dst, dst.new_ones(dst.size(0), 1)], dim=1)
    src = torch.cat([src, -src.square().sum(dim=1, keepdim=True)], dim=1)
    return pairs._replace(
        dst=dst,
        src=src,
        response=Response(identity),
        comparison='dot',
        lower=-torch.inf,
        upper=torch.inf,
    )


def pool_sum(
    h: Tensor,
    pairs: PairScores,
    p: float = 0.0,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Sum the messages of all sources, weighed by the softmax of their scores.

    .. math::
        \sum_j \mathrm{dropout}(\mathrm{softmax}_j(s_{ij})) \, h_j

    A target without candidates gets zero. The weights of one of many blocks are
    computed again in the backward pass.

    Args:
        h (torch.Tensor): The messages of the sources :math:`[N, m]`.
        pairs (PairScores): The scores.
        p (float, optional): The share of weights that are dropped.
            (default: :obj:`0.0`)
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)

    Example:
        >>> pairs = PairScores(torch.zeros(1, 1), torch.zeros(2, 1), Response(identity))
        >>> pool_sum(torch.tensor([[2.0], [4.0]]), pairs)
        tensor([[3.]])
    """
    if pairs.available <= 0 or pairs.dst.size(0) == 0:
        return h.new_zeros(pairs.dst.size(0), h.size(1))
    bytes_per_row = 4 * pairs.src.size(0) * pairs.dst.element_size()
    rows = [*row_blocks(pairs.dst.size(0), bytes_per_row, memory_budget)]
    if len(rows) == 1:
        return _sum(h, pairs, p, rows[0], generator)
    # A block that is computed again drops the same weights.
    device = h.device if generator is None else generator.device
    seeds = torch.randint(2**31, (len(rows),), generator=generator, device=device)
    run = partial(checkpoint, _seeded_sum, use_reentrant=False)
    blocks = zip(rows, seeds.tolist(), strict=True)
    return torch.cat([run(h, pairs, p, part, seed) for part, seed in blocks])


def _seeded_sum(
    h: Tensor, pairs: PairScores, p: float, rows: slice, seed: int
) -> Tensor:
    return _sum(h, pairs, p, rows, torch.Generator(h.device).manual_seed(seed))


def _sum(
    h: Tensor,
    pairs: PairScores,
    p: float,
    rows: slice,
    generator: torch.Generator | None,
) -> Tensor:
    weight = pairs.rows(rows).softmax(dim=1)
    level = min(round(p * _LEVELS), _LEVELS - 1)
    if level > 0:
        kept = _random_levels(weight, generator) >= level - _LEVELS // 2
        weight = weight * kept.to(weight.dtype)
    return weight.to(h.dtype) @ h * (_LEVELS / (_LEVELS - level))


def _random_levels(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return random 16-bit integers: four for the price of one random number."""
    count = -(-like.numel() // 4)
    bits = torch.empty(count, dtype=torch.int64, device=like.device)
    bits.random_(-(2**63), None, generator=generator)
    return bits.view(torch.int16)[: like.numel()].view(like.shape)
