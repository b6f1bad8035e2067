r"""The programs of the sum over a pool: a tile of targets and of sources at a time.

Tensors have the shape [T] of the targets of a tile, [S] of its sources, [T, S] or
[S, T] of their pairs, [T, W] of channels, or [T, K] of draws. Programs that add to one
number write a part of it each: so one seed gives the same bits each time.
"""

# Triton's language has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import triton
import triton.language as tl

from torch_geometric_gsl.ops._triton.race_program import (
    _GAMMA,
    _random_words,
    _uniform,
)


@triton.jit
def _load(matrix, row, is_row, column, width):
    """Load rows and columns of a matrix; zeros lie outside."""
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    is_inside = is_row[:, None] & (column < width)[None, :]
    return tl.load(matrix + place, mask=is_inside, other=0.0)


@triton.jit
def _store(matrix, part, size, row, is_row, column, width, value):
    """Store rows and columns of a part of a matrix of some rows."""
    place = (part.to(tl.int64) * size + row)[:, None] * width + column[None, :]
    is_inside = is_row[:, None] & (column < width)[None, :]
    tl.store(matrix + place, value, mask=is_inside)


@triton.jit
def _products(
    left,
    row,
    is_row,
    right,
    other,
    is_other,
    channels,
    SIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the inner products of rows of one matrix and rows of another."""
    total = tl.zeros([row.shape[0], other.shape[0]], tl.float32)
    for begin in range(0, channels, SIZE):
        channel = begin + tl.arange(0, SIZE)
        u = _load(left, row, is_row, channel, channels)
        v = _load(right, other, is_other, channel, channels)
        total = tl.dot(u, tl.trans(v), total, input_precision=PRECISION)
    return total


@triton.jit
def _mask(score, excluded, row, is_row, source, is_source):
    """Set the scores of what is no pair to minus infinity; indices broadcast."""
    is_pair = is_row & is_source
    if excluded is not None:
        is_pair = is_pair & (source != tl.load(excluded + row, mask=is_row, other=-1))
    return tl.where(is_pair, score, float('-inf'))


@triton.jit
def _words(state, row, is_row, source):
    """Return the random words of pairs, and none other."""
    first = tl.load(state + row, mask=is_row, other=0).to(tl.uint64)
    return _random_words(first + (source + 1).to(tl.uint64) * _GAMMA)


@triton.jit
def _exponential(word):
    """Compute `pool_sum._from_bits` of the upper 32 bits in float32."""
    number = tl.abs((word >> 32).to(tl.int32).to(tl.float32))
    share = tl.minimum((number + 0.5) * 4.656612873077393e-10, 0.99999994)  # 2^-31
    # Near 1 a logarithm is imprecise, and -log(1 - share) has a series.
    series = 0.5 + share * (0.3333333333 + share * (0.25 + share * 0.2))
    series = share + share * share * series
    return tl.where(share < 0.0625, series, -tl.log(1.0 - share))


@triton.jit
def _weigh(
    score,
    most,
    share,
    mean,
    state,
    row,
    is_row,
    source,
    draws,
    p,
    NOISE: tl.constexpr,
):
    """Return the weights of pairs, and the sums of those of each draw times its mean.

    Indices broadcast against the scores. Dropout takes weights, but not from the sums.
    """
    rate = tl.exp(score - tl.load(most + row, mask=is_row, other=0.0))
    weight = tl.zeros_like(rate)
    total = tl.zeros_like(rate)
    for draw in range(0, draws):
        place = row * draws + draw
        part = rate * tl.load(share + place, mask=is_row, other=0.0)
        left = part
        if NOISE == 'draws':
            part = part / _exponential(_words(state, place, is_row, source))
            left = part
        if NOISE == 'dropout':
            is_left = _uniform(_words(state, place, is_row, source)) >= p
            left = tl.where(is_left, part / (1 - p), 0.0)
        weight += left
        if mean is not None:
            total += part * tl.load(mean + place, mask=is_row, other=0.0)
    return weight, total


@triton.jit
def find_totals(
    dst,
    src,
    excluded,
    state,
    out_most,
    out_total,
    num_targets,
    num_sources,
    channels,
    draws,
    per_part,
    NOISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_DRAWS: tl.constexpr,
):
    """Find the largest score of a part of the sources, and the sums of their rates."""
    row = tl.program_id(0) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    is_row = row < num_targets
    number = tl.arange(0, BLOCK_DRAWS)
    most = tl.full([BLOCK_TARGETS], float('-inf'), tl.float32)
    total = tl.zeros([BLOCK_TARGETS, BLOCK_DRAWS], tl.float32)
    begin = tl.program_id(1) * per_part
    end = tl.minimum(begin + per_part, num_sources)
    for first in range(begin, end, BLOCK_SOURCES):
        source = first + tl.arange(0, BLOCK_SOURCES)
        is_source = source < end
        score = _products(
            dst, row, is_row, src, source, is_source, channels, BLOCK_CHANNELS, PRECISION
        )
        rows, sources = row[:, None], source[None, :]
        score = _mask(
            score, excluded, rows, is_row[:, None], sources, is_source[None, :]
        )
        higher = tl.maximum(most, tl.max(score, 1))
        # The difference of two infinities is no number.
        level = tl.where(higher == float('-inf'), 0.0, higher)
        rate = tl.exp(score - level[:, None])
        total = total * tl.exp(most - level)[:, None]
        for draw in range(0, draws):
            part = rate
            if NOISE == 'draws':
                place = rows * draws + draw
                part /= _exponential(_words(state, place, is_row[:, None], sources))
            is_draw = (number == draw)[None, :]
            total += tl.where(is_draw, tl.sum(part, 1)[:, None], 0.0)
        most = higher
    part = tl.program_id(1)
    tl.store(out_most + part.to(tl.int64) * num_targets + row, most, mask=is_row)
    _store(out_total, part, num_targets, row, is_row, number, draws, total)


@triton.jit
def find_means(
    dst,
    src,
    message,
    grad,
    excluded,
    state,
    most,
    share,
    out,
    num_targets,
    num_sources,
    channels,
    width,
    draws,
    per_part,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_DRAWS: tl.constexpr,
):
    """Sum the gradients of weights over a part of the sources, by each draw."""
    row = tl.program_id(0) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    is_row = row < num_targets
    number = tl.arange(0, BLOCK_DRAWS)
    total = tl.zeros([BLOCK_TARGETS, BLOCK_DRAWS], tl.float32)
    begin = tl.program_id(1) * per_part
    end = tl.minimum(begin + per_part, num_sources)
    level = tl.load(most + row, mask=is_row, other=0.0)[:, None]
    for first in range(begin, end, BLOCK_SOURCES):
        source = first + tl.arange(0, BLOCK_SOURCES)
        is_source = source < end
        score = _products(
            dst, row, is_row, src, source, is_source, channels, BLOCK_CHANNELS, PRECISION
        )
        rows, sources = row[:, None], source[None, :]
        score = _mask(
            score, excluded, rows, is_row[:, None], sources, is_source[None, :]
        )
        gain = _products(
            grad, row, is_row, message, source, is_source, width, BLOCK_CHANNELS, PRECISION
        )
        gain *= tl.exp(score - level)
        for draw in range(0, draws):
            place = rows * draws + draw
            part = gain / _exponential(_words(state, place, is_row[:, None], sources))
            part *= tl.load(share + place, mask=is_row[:, None], other=0.0)
            is_draw = (number == draw)[None, :]
            total += tl.where(is_draw, tl.sum(part, 1)[:, None], 0.0)
    part = tl.program_id(1)
    _store(out, part, num_targets, row, is_row, number, draws, total)


@triton.jit
def sum_sources(
    dst,
    src,
    message,
    grad,
    excluded,
    state,
    most,
    share,
    mean,
    out,
    p,
    num_targets,
    num_sources,
    channels,
    width,
    draws,
    per_part,
    NOISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Sum the weighed messages of a part of the sources; with a gradient of the sums
    the embeddings of the sources, weighed by the gradient of their scores.
    """
    row = tl.program_id(0) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    is_row = row < num_targets
    column = tl.program_id(2) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    result = tl.zeros([BLOCK_TARGETS, BLOCK_WIDTH], tl.float32)
    begin = tl.program_id(1) * per_part
    end = tl.minimum(begin + per_part, num_sources)
    for first in range(begin, end, BLOCK_SOURCES):
        source = first + tl.arange(0, BLOCK_SOURCES)
        is_source = source < end
        score = _products(
            dst, row, is_row, src, source, is_source, channels, BLOCK_CHANNELS, PRECISION
        )
        rows, sources, are_rows = row[:, None], source[None, :], is_row[:, None]
        score = _mask(score, excluded, rows, are_rows, sources, is_source[None, :])
        weight, total = _weigh(
            score, most, share, mean, state, rows, are_rows, sources, draws, p, NOISE
        )
        if grad is None:
            value = _load(message, source, is_source, column, width)
        else:
            gain = _products(
                grad,
                row,
                is_row,
                message,
                source,
                is_source,
                width,
                BLOCK_CHANNELS,
                PRECISION,
            )
            weight = weight * gain - total
            value = _load(src, source, is_source, column, channels)
        result = tl.dot(weight, value, result, input_precision=PRECISION)
    size = width if grad is None else channels
    _store(out, tl.program_id(1), num_targets, row, is_row, column, size, result)


@triton.jit
def sum_targets(
    dst,
    src,
    message,
    grad,
    excluded,
    state,
    most,
    share,
    mean,
    out_src,
    out_message,
    p,
    num_targets,
    num_sources,
    channels,
    width,
    draws,
    per_part,
    NOISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Sum the gradients of sources and of their messages over a part of the targets."""
    source = tl.program_id(0) * BLOCK_SOURCES + tl.arange(0, BLOCK_SOURCES)
    is_source = source < num_sources
    key = tl.program_id(2) * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
    column = tl.program_id(2) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    result = tl.zeros([BLOCK_SOURCES, BLOCK_KEYS], tl.float32)
    told = tl.zeros([BLOCK_SOURCES, BLOCK_WIDTH], tl.float32)
    begin = tl.program_id(1) * per_part
    end = tl.minimum(begin + per_part, num_targets)
    for first in range(begin, end, BLOCK_TARGETS):
        row = first + tl.arange(0, BLOCK_TARGETS)
        is_row = row < end
        score = _products(
            src, source, is_source, dst, row, is_row, channels, BLOCK_CHANNELS, PRECISION
        )
        rows, sources, are_rows = row[None, :], source[:, None], is_row[None, :]
        score = _mask(score, excluded, rows, are_rows, sources, is_source[:, None])
        weight, total = _weigh(
            score, most, share, mean, state, rows, are_rows, sources, draws, p, NOISE
        )
        gain = _products(
            message, source, is_source, grad, row, is_row, width, BLOCK_CHANNELS, PRECISION
        )
        target = _load(dst, row, is_row, key, channels)
        result = tl.dot(
            weight * gain - total, target, result, input_precision=PRECISION
        )
        heard = _load(grad, row, is_row, column, width)
        told = tl.dot(weight, heard, told, input_precision=PRECISION)
    part = tl.program_id(1)
    _store(out_src, part, num_sources, source, is_source, key, channels, result)
    _store(out_message, part, num_sources, source, is_source, column, width, told)
