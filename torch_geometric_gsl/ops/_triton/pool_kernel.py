r"""The sum over a pool of sources on a GPU, without a matrix of all pairs.

:func:`~torch_geometric_gsl.ops.pool_sum.keyed_weights` is the definition. A first pass
finds the largest score of each target and the sum of the rates of each draw, as online
softmax does; a second one weighs the messages. The backward pass computes scores, noise
and weights again, tile by tile. Noise is a function of the seed, the target, the draw
and the source alone.

Products are those of tensor cores: three where PyTorch forbids TF32, which lose no more
than the last bits of :obj:`torch.float32`.

Checked under Triton's interpreter against the definition, and compiled for compute
capabilities 8.0 and 9.0; not yet measured on a GPU.
"""

# Triton has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found"
from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl.ops._triton.pool_program import (
    find_means,
    find_totals,
    sum_sources,
    sum_targets,
)
from torch_geometric_gsl.ops.noise import draw_seed, race_states
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import once_differentiable

# Targets and sources of a tile, channels of a product at a time, and the most channels
# of what a program sums.
_BLOCK_TARGETS = _BLOCK_SOURCES = 64
_BLOCK_CHANNELS = 32
_MOST_KEYS, _MOST_WIDTH = 128, 256
_WARPS = 8
# Programs that keep a card busy: fewer share the work by parts.
_PROGRAMS = 256
# Rows of this multiple of channels are read by long words.
_MULTIPLE = 16


def pool_kernel(
    h: Tensor,
    pairs: PairScores,
    p: float = 0.0,
    draws: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sum the messages of all sources; only `pool_sum` calls this."""
    noise, state, count = 'dropout' if p > 0 else None, None, draws or 1
    if draws is not None:
        noise = 'draws'
    if noise is not None:
        device = h.device if generator is None else generator.device
        seed = draw_seed(device, generator).to(h.device)
        number = pairs.dst.size(0) * count
        state = race_states(seed, pairs.first * count, number)
    excluded = None if pairs.excluded is None else pairs.excluded.contiguous()
    given = (_padded(x) for x in (pairs.scale * pairs.dst, pairs.src, h.float()))
    out: Tensor = _PoolSum.apply(*given, excluded, state, count, p, noise)
    return out[:, : h.size(1)].to(h.dtype)


class _Pool(NamedTuple):
    """Targets, sources, messages and noise; the methods run a program each."""

    dst: Tensor  # Embeddings of the targets [n, m].
    src: Tensor  # Embeddings of the sources [N, m].
    message: Tensor  # Of the sources [N, w].
    excluded: Tensor | None  # The source that is no candidate of a target [n].
    state: Tensor | None  # The random state of each draw of each target [n K].
    draws: int
    p: float
    noise: str | None

    def totals(self) -> tuple[Tensor, Tensor]:
        """Return the largest scores [n], and the weights of a rate of 1 [n, K]."""
        grid, per_part = _grid(*self._numbers, _BLOCK_TARGETS, _BLOCK_SOURCES)
        most = self.dst.new_empty(grid[1], self.dst.size(0))
        total = self.dst.new_empty(*most.shape, self.draws)
        given = self.dst, self.src, self.excluded, self.state, most, total
        sizes = *self._numbers, self.dst.size(1), self.draws, per_part
        self._run(find_totals, grid, *given, *sizes, **self._draw_options)
        level = most.amax(dim=0)
        level = level.masked_fill(level == -torch.inf, 0)
        total = (total * (most - level).exp().unsqueeze(-1)).sum(dim=0)
        share = (self.draws * total).reciprocal()
        return level, share.masked_fill_(total == 0, 0)  # Without candidates.

    def means(self, grad: Tensor, most: Tensor, share: Tensor) -> Tensor:
        """Return the means of the gradients of weights over each draw [n, K]."""
        grid, per_part = _grid(*self._numbers, _BLOCK_TARGETS, _BLOCK_SOURCES)
        out = self.dst.new_empty(grid[1], *share.shape)
        given = *self[:3], grad, self.excluded, self.state, most, share, out
        options = {k: v for k, v in self._draw_options.items() if k != 'NOISE'}
        sizes = *self._sizes, per_part
        self._run(find_means, grid, *given, *sizes, **options)
        return self.draws * out.sum(dim=0)

    def sums(
        self,
        most: Tensor,
        share: Tensor,
        grad: Tensor | None = None,
        mean: Tensor | None = None,
    ) -> Tensor:
        """Return the sums of messages [n, w], or the gradient of targets [n, m]."""
        width = (self.message if grad is None else self.src).size(1)
        block = _block(width, _MOST_WIDTH if grad is None else _MOST_KEYS)
        grid, per_part = _grid(*self._numbers, _BLOCK_TARGETS, _BLOCK_SOURCES)
        out = self.dst.new_empty(grid[1], self.dst.size(0), width)
        given = *self[:3], grad, self.excluded, self.state, most, share, mean, out
        sizes = self.p, *self._sizes, per_part
        options = {'NOISE': self.noise, 'BLOCK_WIDTH': block}
        grid = *grid, triton.cdiv(width, block)
        self._run(sum_sources, grid, *given, *sizes, **options)
        return out.sum(dim=0)

    def source_sums(
        self, most: Tensor, share: Tensor, grad: Tensor, mean: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of sources [N, m] and of their messages [N, w]."""
        numbers = self._numbers[::-1]
        grid, per_part = _grid(*numbers, _BLOCK_SOURCES, _BLOCK_TARGETS)
        out = [x.new_empty(grid[1], *x.shape) for x in (self.src, self.message)]
        given = *self[:3], grad, self.excluded, self.state, most, share, mean, *out
        sizes = self.p, *self._sizes, per_part
        keys, width = self.src.size(1), self.message.size(1)
        blocks = _block(keys, _MOST_KEYS), _block(width, _MOST_WIDTH)
        options = {'BLOCK_KEYS': blocks[0], 'BLOCK_WIDTH': blocks[1]}
        most_blocks = max(triton.cdiv(keys, blocks[0]), triton.cdiv(width, blocks[1]))
        grid = *grid, most_blocks
        self._run(sum_targets, grid, *given, *sizes, NOISE=self.noise, **options)
        return out[0].sum(dim=0), out[1].sum(dim=0)

    @property
    def _numbers(self) -> tuple[int, int]:
        return self.dst.size(0), self.src.size(0)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return *self._numbers, self.dst.size(1), self.message.size(1), self.draws

    @property
    def _draw_options(self) -> dict[str, Any]:
        return {'NOISE': self.noise, 'BLOCK_DRAWS': triton.next_power_of_2(self.draws)}

    def _run(self, program: Any, grid: Sequence[int], *args: Any, **options: Any) -> None:
        device = self.dst.device
        # Triton launches on the current device.
        with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
            program[tuple(grid)](*args, **options, **_options())


class _PoolSum(torch.autograd.Function):
    """Sum messages, with gradients of targets, sources and messages."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        pool = _Pool(*given)
        most, share = pool.totals()
        out = pool.sums(most, share)
        ctx.save_for_backward(*pool[:5], most, share, out)
        ctx.options = pool[5:]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, most, share, out = ctx.saved_tensors
        pool, grad = _Pool(*tensors, *ctx.options), grad.contiguous()
        mean = (
            (grad * out).sum(dim=1, keepdim=True)
            if pool.draws == 1
            else pool.means(grad, most, share)
        )
        needs_dst, *needs_sources = ctx.needs_input_grad[:3]
        grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if needs_dst:
            grads[0] = pool.sums(most, share, grad, mean)
        if any(needs_sources):
            grads[1:3] = pool.source_sums(most, share, grad, mean)
        return tuple(grads)


def _padded(x: Tensor) -> Tensor:
    """Pad rows by zeros to the next multiple."""
    return F.pad(x, (0, -x.size(1) % _MULTIPLE or _MULTIPLE * (x.size(1) == 0)))


def _grid(number: int, other: int, block: int, step: int) -> tuple[list[int], int]:
    """Return the numbers of blocks and of parts of what they sum over, and its size."""
    blocks = triton.cdiv(number, block)
    steps = triton.cdiv(other, step)
    per_part = step * triton.cdiv(steps, triton.cdiv(_PROGRAMS, blocks))
    return [blocks, triton.cdiv(other, per_part)], per_part


def _block(width: int, most: int) -> int:
    """Return how many channels a program sums, a power of two."""
    return min(most, triton.next_power_of_2(width))


def _options() -> dict[str, Any]:
    """Return the options of all programs."""
    matmul = torch.backends.cuda.matmul
    # PyTorch from 2.9 on has one name for all devices, and refuses the older one then.
    setting = getattr(matmul, 'fp32_precision', None)
    is_tf32 = matmul.allow_tf32 if setting is None else setting == 'tf32'
    return {
        # Three products of halves of the digits, in place of one.
        'PRECISION': 'tf32' if is_tf32 else 'tf32x3',
        'BLOCK_TARGETS': _BLOCK_TARGETS,
        'BLOCK_SOURCES': _BLOCK_SOURCES,
        'BLOCK_CHANNELS': _BLOCK_CHANNELS,
        'num_warps': _WARPS,
    }
