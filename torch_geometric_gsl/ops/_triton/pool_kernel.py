r"""The sum over a pool of sources on a GPU, without a matrix of all pairs.

``benchmark/pool_weights.py`` has the definition. A first pass finds the largest score
of each target and the sum of the rates of each draw, as online softmax does; a second
one weighs the messages. The backward pass recomputes scores, noise and weights, tile by
tile. Noise is a function of the seed, the target, the draw and the source.

Products run on tensor cores: scores take three, which lose at most the last bits of
:obj:`torch.float32`; messages take one if PyTorch allows TF32.

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
    find_totals,
    sum_sources,
    sum_targets,
)
from torch_geometric_gsl.ops.noise import draw_seed, race_states
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import disable_compile, once_differentiable

# Targets and sources of a tile, and the most channels that a program sums. By Triton
# 3.9 eight warps have the registers for that (at 8.0 one program spills a few), and
# shared memory suffices on small cards.
_BLOCK_TARGETS, _BLOCK_SOURCES = 64, 32
# Programs that sum over targets have two sums.
_FEW_TARGETS = 32
_MOST_KEYS, _MOST_WIDTH = 128, 256
_WARPS, _STAGES = 8, 2
# Programs that keep a card busy: fewer share the work by parts.
_PROGRAMS = 256
# Rows of a multiple of these channels are read by long words.
_MULTIPLE = 16


@disable_compile
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
    options = state, count, float(p), noise
    out: Tensor = _PoolSum.apply(*given, excluded, *options)  # type: ignore[no-untyped-call]
    return out[:, : h.size(1)].to(h.dtype)


class _Pool(NamedTuple):
    """Targets, sources, messages and noise; each method runs one program."""

    dst: Tensor  # Embeddings of the targets [n, m].
    src: Tensor  # Embeddings of the sources [N, m].
    message: Tensor  # Of the sources [N, w].
    excluded: Tensor | None  # The source that is no candidate of a target [n].
    state: Tensor | None  # The random state of each draw of each target [n K].
    draws: int
    p: float
    noise: str | None

    def shares(self) -> tuple[Tensor, Tensor]:
        """Return the largest scores [n], and the weights of a rate of 1 [n, K]."""
        most, total = self._totals(None, None)
        level = most.amax(dim=0)
        level = level.masked_fill(level == -torch.inf, 0)
        total = (total * (most - level).exp().unsqueeze(-1)).sum(dim=0)
        share = (self.draws * total).reciprocal()
        return level, share.masked_fill_(total == 0, 0)  # Without candidates.

    def means(self, grad: Tensor, most: Tensor, share: Tensor) -> Tensor:
        """Return the mean gradient of the weights of each draw [n, K]."""
        return self.draws * share * self._totals(grad, most)[1].sum(dim=0)

    def _totals(
        self, grad: Tensor | None, most: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        grid, part = _grid(self.dst, self.src, _BLOCK_TARGETS, _BLOCK_SOURCES)
        if most is None:
            most = self.dst.new_empty(grid[1], len(self.dst))
        total = self.dst.new_empty(grid[1], len(self.dst), self.draws)
        given = *self[:3], grad, self.excluded, self.state, most, total
        blocks = {'BLOCK_DRAWS': triton.next_power_of_2(self.draws)}
        sizes = *self._sizes, part
        _run(find_totals, grid, *given, *sizes, NOISE=self.noise, **blocks)
        return most, total

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
        grid, part = _grid(self.dst, self.src, _BLOCK_TARGETS, _BLOCK_SOURCES)
        out = self.dst.new_empty(grid[1], len(self.dst), width)
        given = *self[:3], grad, self.excluded, self.state, most, share, mean, out
        grid = *grid, triton.cdiv(width, block)
        kind: dict[str, Any] = {'NOISE': self.noise, 'BLOCK_WIDTH': block}
        _run(sum_sources, grid, *given, self.p, *self._sizes, part, **kind)
        return out.sum(dim=0)

    def source_sums(
        self, most: Tensor, share: Tensor, grad: Tensor, mean: Tensor
    ) -> list[Tensor]:
        """Return the gradients of sources [N, m] and of their messages [N, w]."""
        grid, part = _grid(self.src, self.dst, _BLOCK_SOURCES, _FEW_TARGETS)
        out = [x.new_empty(grid[1], *x.shape) for x in (self.src, self.message)]
        given = *self[:3], grad, self.excluded, self.state, most, share, mean, *out
        keys, width = self.src.size(1), self.message.size(1)
        block_keys, block_width = _block(keys, _MOST_KEYS), _block(width, _MOST_WIDTH)
        number = max(triton.cdiv(keys, block_keys), triton.cdiv(width, block_width))
        kind: dict[str, Any] = {'NOISE': self.noise, 'BLOCK_TARGETS': _FEW_TARGETS}
        kind |= {'BLOCK_KEYS': block_keys, 'BLOCK_WIDTH': block_width}
        _run(sum_targets, (*grid, number), *given, self.p, *self._sizes, part, **kind)
        return [x.sum(dim=0) for x in out]

    @property
    def _sizes(self) -> tuple[int, ...]:
        channels, width = self.dst.size(1), self.message.size(1)
        return len(self.dst), len(self.src), channels, width, self.draws


class _PoolSum(torch.autograd.Function):
    """Sum messages, with gradients of targets, sources and messages."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        pool = _Pool(*given)
        most, share = pool.shares()
        out = pool.sums(most, share)
        ctx.save_for_backward(*pool[:5], most, share, out)
        ctx.options = pool[5:]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, most, share, out = ctx.saved_tensors
        pool, grad = _Pool(*tensors, *ctx.options), grad.contiguous()
        if pool.draws == 1:  # The sum suffices for one draw.
            mean = (grad * out).sum(dim=1, keepdim=True)
        else:
            mean = pool.means(grad, most, share)
        needs_dst, *needs_sources = ctx.needs_input_grad[:3]
        grads: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if needs_dst:
            grads[0] = pool.sums(most, share, grad, mean)
        if any(needs_sources):
            grads[1:3] = pool.source_sums(most, share, grad, mean)
        return tuple(grads)


def _padded(x: Tensor) -> Tensor:
    """Pad rows with zeros to the next multiple of channels."""
    width = max(_MULTIPLE, _MULTIPLE * triton.cdiv(x.size(1), _MULTIPLE))
    return F.pad(x, (0, width - x.size(1))).contiguous()


def _grid(own: Tensor, other: Tensor, block: int, step: int) -> tuple[Any, int]:
    """Return the number of row blocks, the number of parts, and the size of a part."""
    blocks, steps = triton.cdiv(len(own), block), triton.cdiv(len(other), step)
    part = step * triton.cdiv(steps, triton.cdiv(_PROGRAMS, blocks))
    return (blocks, triton.cdiv(len(other), part)), part


def _block(width: int, most: int) -> int:
    """Return the number of channels that a program sums, a power of two."""
    return min(most, int(triton.next_power_of_2(width)))


def _run(program: Any, grid: Sequence[int], *args: Any, **kind: Any) -> None:
    """Run a program on the device of its arguments, not on the current one."""
    options: dict[str, Any] = {
        'PRECISION': 'tf32' if _allows_tf32() else 'tf32x3',
        'BLOCK_TARGETS': _BLOCK_TARGETS,
        'BLOCK_SOURCES': _BLOCK_SOURCES,
        'num_warps': _WARPS,
        'num_stages': _STAGES,
        'enable_fp_fusion': True,
    }
    device = args[0].device
    with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
        program[tuple(grid)](*args, **options | kind)


def _allows_tf32() -> bool:
    """Return whether PyTorch may use TF32 in matrix products."""
    matmul = torch.backends.cuda.matmul
    # Since PyTorch 2.9 the older name raises where the newer one was set.
    setting = getattr(matmul, 'fp32_precision', None)
    return bool(matmul.allow_tf32 if setting is None else setting == 'tf32')
