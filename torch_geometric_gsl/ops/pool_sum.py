r"""Sums over all sources of a pool, weighed by a softmax of distances."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl.ops.derivatives import once_differentiable
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.scores import Response, identity

# Weights are dropped with a probability that is a multiple of one in so many.
_LEVELS = 2**16
# Draws leave out sources whose weight is less than e to this power of the largest:
# products of such small numbers are slow.
_LEAST = -60.0


class Sources(NamedTuple):
    r"""Sources whose squared distances are found by inner products.

    Args:
        rows (torch.Tensor): The rows :math:`(z_j - c, -\lVert z_j - c \rVert^2)`.
        centre (torch.Tensor): The mean :math:`c` of the sources, about which rounding
            errors are small.
    """

    rows: Tensor
    centre: Tensor

    @classmethod
    def of(cls, z: Tensor) -> Sources:
        """Prepare the embeddings of sources."""
        centre = z.detach().mean(dim=0) if z.size(0) > 0 else z.new_zeros(z.size(1))
        z = z - centre
        return cls(torch.cat([z, -z.square().sum(dim=1, keepdim=True)], dim=1), centre)

    def single(self) -> Sources:
        """Return the rows in single precision."""
        return self._replace(rows=self.rows.float())

    def targets(self, z: Tensor) -> Tensor:
        r"""Return the rows :math:`(2 (z_i - c), 1)` of targets."""
        z = 2 * (z - self.centre)
        rows = torch.cat([z, z.new_ones(z.size(0), 1)], dim=1)
        return rows.to(self.rows.dtype)


def distances_as_dots(pairs: PairScores, sources: Sources | None = None) -> PairScores:
    r"""Return inner products that differ from negative squared distances by a number of
    each target.

    Weights and ranks of its sources are the same, since :math:`-\lVert z_i - z_j
    \rVert^2 = 2 z_i \cdot z_j - \lVert z_j \rVert^2 - \lVert z_i \rVert^2`, and matrix
    products find them.

    Args:
        pairs (PairScores): The scores, with the response
            :func:`~torch_geometric_gsl.ops.scores.negative`.
        sources (Sources, optional): Their sources, if they were prepared before.
            (default: :obj:`None`)

    Example:
        >>> from torch_geometric_gsl.ops.scores import negative
        >>> z = torch.tensor([[0.0], [1.0], [3.0]])
        >>> pairs = PairScores(z, z, Response(negative), 'squared_distance')
        >>> found = distances_as_dots(pairs).rows() - pairs.rows()
        >>> torch.allclose(found, found[:, :1], atol=1e-5)
        True
    """
    sources = Sources.of(pairs.src) if sources is None else sources
    return pairs._replace(
        dst=sources.targets(pairs.dst),
        src=sources.rows,
        response=Response(identity),
        comparison='dot',
        lower=-torch.inf,
        upper=torch.inf,
    )


def pool_weights(
    pairs: PairScores,
    p: float = 0.0,
    draws: int | None = None,
    rows: slice = slice(None),
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the weights of all sources of a pool, for a block of targets.

    These are the softmax of the scores, of which some are dropped, or the mean of
    relaxed draws :math:`\mathrm{softmax}_j(s_{ij} + g_{ij})`, the law of
    :class:`~torch_geometric_gsl.nn.sampler.GumbelKNNSampler` with :math:`\tau = 1`.

    Args:
        pairs (PairScores): The scores.
        p (float, optional): The share of weights that are dropped, of no draws.
            (default: :obj:`0.0`)
        draws (int, optional): The number of relaxed draws. (default: :obj:`None`)
        rows (slice, optional): The targets. (default: :obj:`slice(None)`)
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)

    Example:
        >>> pairs = PairScores(torch.zeros(1, 1), torch.zeros(2, 1), Response(identity))
        >>> pool_weights(pairs)
        tensor([[0.5000, 0.5000]])
    """
    score = pairs.rows(rows)
    if draws is not None:
        mean: Tensor = _RelaxedDraws.apply(score, draws, generator)  # type: ignore[no-untyped-call]
        return mean
    weight = score.softmax(dim=1)
    level = min(round(p * _LEVELS), _LEVELS - 1)
    if level == 0:
        return weight
    kept = _random_levels(weight, generator) >= level - _LEVELS // 2
    return weight * (kept.to(weight.dtype) * (_LEVELS / (_LEVELS - level)))


def pool_sum(
    h: Tensor,
    pairs: PairScores,
    p: float = 0.0,
    draws: int | None = None,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Sum the messages of all sources, weighed by :func:`pool_weights`.

    A target without candidates gets zero. The weights of one of many blocks are
    computed again in the backward pass.

    Args:
        h (torch.Tensor): The messages of the sources :math:`[N, m]`.
        pairs (PairScores): The scores.
        p (float, optional): The share of weights that are dropped, of no draws.
            (default: :obj:`0.0`)
        draws (int, optional): The number of relaxed draws. (default: :obj:`None`)
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
        weight = pool_weights(pairs, p, draws, generator=generator)
        return weight.to(h.dtype) @ h
    # A block that is computed again drops the same weights.
    device = h.device if generator is None else generator.device
    seeds = torch.randint(2**31, (len(rows),), generator=generator, device=device)
    run = partial(checkpoint, _seeded_sum, use_reentrant=False)
    blocks = zip(rows, seeds.tolist(), strict=True)
    return torch.cat([run(h, pairs, p, draws, part, seed) for part, seed in blocks])


def _seeded_sum(
    h: Tensor, pairs: PairScores, p: float, draws: int | None, rows: slice, seed: int
) -> Tensor:
    generator = torch.Generator(h.device).manual_seed(seed)
    return pool_weights(pairs, p, draws, rows, generator=generator).to(h.dtype) @ h


class _RelaxedDraws(torch.autograd.Function):
    """The mean of relaxed draws; its backward pass keeps each of them."""

    @staticmethod
    def forward(
        ctx: Any, score: Tensor, draws: int, generator: torch.Generator | None
    ) -> Tensor:
        weight = score - score.amax(dim=1, keepdim=True)
        weight = F.threshold(weight, _LEAST, -torch.inf, inplace=True).exp_()
        kept = []
        for _ in range(draws):
            draw = _exponentials(weight, generator).reciprocal_().mul_(weight)
            kept.append(draw.div_(draw.sum(dim=1, keepdim=True)))
        ctx.save_for_backward(*kept)
        return torch.stack(kept).mean(dim=0) if draws > 1 else kept[0].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kept, total = ctx.saved_tensors, torch.zeros_like(grad)
        for draw in kept:
            part = grad * draw
            total += part.addcmul_(draw, part.sum(dim=1, keepdim=True), value=-1)
        return total.div_(len(kept)), None, None


def _exponentials(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return Exp(1) numbers of 31 bits, in a fifth of the time of PyTorch's."""
    bits = torch.empty(-(-like.numel() // 2), dtype=torch.int64, device=like.device)
    bits = bits.random_(-(2**63), None, generator=generator).view(torch.int32)
    number = bits[: like.numel()].view(like.shape).to(like.dtype).abs_()
    return number.add_(0.5).mul_(-(2.0**-31)).clamp_(min=-1).log1p_().neg_()


def _random_levels(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return random 16-bit integers: four for the price of one random number."""
    count = -(-like.numel() // 4)
    bits = torch.empty(count, dtype=torch.int64, device=like.device)
    bits.random_(-(2**63), None, generator=generator)
    return bits.view(torch.int16)[: like.numel()].view(like.shape)
