r"""Operations on a tile, for the programs of the sum over a pool.

Tensors have the shape [T] of the targets of a tile, [S] of its sources, [T, S] or
[S, T] of their pairs, [T, W] of channels, or [T, K] of draws.
"""

# Triton's language has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import triton
import triton.language as tl

from torch_geometric_gsl.ops._triton.race_program import GAMMA, random_words, uniform

# Channels of a product at a time.
_CHANNELS = tl.constexpr(16)


@triton.jit
def load(matrix, row, is_row, column, width):
    """Load rows and columns of a matrix; zeros lie outside."""
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    is_inside = is_row[:, None] & (column < width)[None, :]
    return tl.load(matrix + place, mask=is_inside, other=0.0)


@triton.jit
def store(matrix, part, size, row, is_row, column, width, value):
    """Store rows and columns of a part of a matrix of some rows."""
    place = (part.to(tl.int64) * size + row)[:, None] * width + column[None, :]
    is_inside = is_row[:, None] & (column < width)[None, :]
    tl.store(matrix + place, value, mask=is_inside)


@triton.jit
def products(
    left, row, is_row, right, other, is_other, channels, PRECISION: tl.constexpr
):
    """Return the inner products of rows of one matrix and rows of another."""
    total = tl.zeros([row.shape[0], other.shape[0]], tl.float32)
    for begin in range(0, channels, _CHANNELS):
        channel = begin + tl.arange(0, _CHANNELS)
        u = load(left, row, is_row, channel, channels)
        v = load(right, other, is_other, channel, channels)
        total = tl.dot(u, tl.trans(v), total, input_precision=PRECISION)
    return total


@triton.jit
def mask(score, excluded, row, is_row, source, is_source):
    """Set the scores of excluded pairs to minus infinity; indices broadcast."""
    is_pair = is_row & is_source
    if excluded is not None:
        is_pair = is_pair & (source != tl.load(excluded + row, mask=is_row, other=-1))
    return tl.where(is_pair, score, float('-inf'))


@triton.jit
def words(state, row, is_row, source):
    """Compute the random words of the given pairs only."""
    first = tl.load(state + row, mask=is_row, other=0).to(tl.uint64)
    return random_words(first + (source + 1).to(tl.uint64) * GAMMA)


@triton.jit
def exponential(word):
    """Compute `pool_sum.from_bits` of the upper 32 bits in float32."""
    number = tl.abs((word >> 32).to(tl.int32).to(tl.float32))
    share = tl.minimum((number + 0.5) * 4.656612873077393e-10, 0.99999994)  # 2^-31
    # Near 1 a logarithm is imprecise, and -log(1 - share) has a series.
    series = 0.5 + share * (0.3333333333 + share * (0.25 + share * 0.2))
    series = share + share * share * series
    return tl.where(share < 0.0625, series, -tl.log(1.0 - share))


@triton.jit
def weigh(
    score, most, share, mean, state, row, is_row, source, draws, p, NOISE: tl.constexpr
):
    """Return the weights of pairs, and the sums of those of each draw times its mean.

    Indices broadcast against the scores. Dropout takes weights, but not from the sums.
    """
    level = tl.load(most + row, mask=is_row, other=0.0)
    # Of huge scores another program may have rounded the largest to less.
    rate = tl.exp(tl.minimum(score - level, 0.0))
    weight = tl.zeros_like(rate)
    total = tl.zeros_like(rate)
    for draw in range(0, draws):
        place = row * draws + draw
        part = rate * tl.load(share + place, mask=is_row, other=0.0)
        left = part
        if NOISE == 'draws':
            part = part / exponential(words(state, place, is_row, source))
            left = part
        if NOISE == 'dropout':
            is_left = uniform(words(state, place, is_row, source)) >= p
            left = tl.where(is_left, part / (1 - p), 0.0)
        weight += left
        if mean is not None:
            total += part * tl.load(mean + place, mask=is_row, other=0.0)
    return weight, total
