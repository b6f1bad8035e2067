r"""The programs of the sum over a pool: a tile of targets and of sources at a time.

Each program sums over a part of the sources, or of the targets, and stores its partial
sum separately; the caller adds them up. No two programs add to one number, so a seed
gives the same bits each time. Shapes are those of `pool_tiles`.
"""

# Triton's language has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import triton
import triton.language as tl

from torch_geometric_gsl.ops._triton.pool_tiles import (
    exponential,
    load,
    mask,
    products,
    store,
    weigh,
    words,
)

# Three products in place of one: errors of scores grow in exponentials.
_PRECISE = tl.constexpr('tf32x3')
# Specialised programs for multiples of 16, or for 1, do not pay.
_NUMBERS = ['num_targets', 'num_sources', 'size']


@triton.jit(do_not_specialize=_NUMBERS)
def find_totals(
    dst,
    src,
    message,
    grad,
    excluded,
    state,
    most,
    out,
    num_targets,
    num_sources,
    channels,
    width,
    draws,
    size,
    NOISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
    BLOCK_DRAWS: tl.constexpr,
):
    """Find the largest scores in a part of the sources, and the sum of the rates of
    each draw; with a gradient of the sums of messages that of the weights, by rates.
    """
    row = tl.program_id(0) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    is_row = row < num_targets
    number = tl.arange(0, BLOCK_DRAWS)
    total = tl.zeros([BLOCK_TARGETS, BLOCK_DRAWS], tl.float32)
    level = tl.full([BLOCK_TARGETS], float('-inf'), tl.float32)
    if grad is not None:
        level = tl.load(most + row, mask=is_row, other=0.0)
    begin = tl.program_id(1) * size
    end = tl.minimum(begin + size, num_sources)
    for first in range(begin, end, BLOCK_SOURCES):
        source = first + tl.arange(0, BLOCK_SOURCES)
        is_source = source < end
        rows, sources, are_rows = row[:, None], source[None, :], is_row[:, None]
        score = products(dst, row, is_row, src, source, is_source, channels, _PRECISE)
        score = mask(score, excluded, rows, are_rows, sources, is_source[None, :])
        if grad is None:
            higher = tl.maximum(level, tl.max(score, 1))
            # The difference of two infinities is no number.
            base = tl.where(higher == float('-inf'), 0.0, higher)
            rate = tl.exp(score - base[:, None])
            total = total * tl.exp(level - base)[:, None]
            level = higher
        else:
            gain = products(
                grad, row, is_row, message, source, is_source, width, PRECISION
            )
            rate = tl.exp(tl.minimum(score - level[:, None], 0.0)) * gain
        for draw in range(0, draws):
            drawn = rate
            if NOISE == 'draws':
                word = words(state, rows * draws + draw, are_rows, sources)
                drawn = drawn / exponential(word)
            is_draw = (number == draw)[None, :]
            total += tl.where(is_draw, tl.sum(drawn, 1)[:, None], 0.0)
    part = tl.program_id(1)
    if grad is None:
        tl.store(most + part.to(tl.int64) * num_targets + row, level, mask=is_row)
    store(out, part, num_targets, row, is_row, number, draws, total)


@triton.jit(do_not_specialize=_NUMBERS)
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
    size,
    NOISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Sum the weighed messages of a part of the sources; with a gradient of the sums
    the embeddings of the sources, weighed by the gradient of their scores.
    """
    row = tl.program_id(0) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    is_row = row < num_targets
    column = tl.program_id(2) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    result = tl.zeros([BLOCK_TARGETS, BLOCK_WIDTH], tl.float32)
    begin = tl.program_id(1) * size
    end = tl.minimum(begin + size, num_sources)
    for first in range(begin, end, BLOCK_SOURCES):
        source = first + tl.arange(0, BLOCK_SOURCES)
        is_source = source < end
        rows, sources, are_rows = row[:, None], source[None, :], is_row[:, None]
        score = products(dst, row, is_row, src, source, is_source, channels, _PRECISE)
        score = mask(score, excluded, rows, are_rows, sources, is_source[None, :])
        weight, total = weigh(
            score, most, share, mean, state, rows, are_rows, sources, draws, p, NOISE
        )
        if grad is None:
            value = load(message, source, is_source, column, width)
        else:
            gain = products(
                grad, row, is_row, message, source, is_source, width, PRECISION
            )
            weight = weight * gain - total
            value = load(src, source, is_source, column, channels)
        result = tl.dot(weight, value, result, input_precision=PRECISION)
    stride = width if grad is None else channels
    store(out, tl.program_id(1), num_targets, row, is_row, column, stride, result)


@triton.jit(do_not_specialize=_NUMBERS)
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
    size,
    NOISE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_SOURCES: tl.constexpr,
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
    begin = tl.program_id(1) * size
    end = tl.minimum(begin + size, num_targets)
    for first in range(begin, end, BLOCK_TARGETS):
        row = first + tl.arange(0, BLOCK_TARGETS)
        is_row = row < end
        rows, sources, are_rows = row[None, :], source[:, None], is_row[None, :]
        score = products(src, source, is_source, dst, row, is_row, channels, _PRECISE)
        score = mask(score, excluded, rows, are_rows, sources, is_source[:, None])
        weight, total = weigh(
            score, most, share, mean, state, rows, are_rows, sources, draws, p, NOISE
        )
        gain = products(message, source, is_source, grad, row, is_row, width, PRECISION)
        target = load(dst, row, is_row, key, channels)
        result = tl.dot(
            weight * gain - total, target, result, input_precision=PRECISION
        )
        heard = load(grad, row, is_row, column, width)
        told = tl.dot(weight, heard, told, input_precision=PRECISION)
    part = tl.program_id(1)
    store(out_src, part, num_sources, source, is_source, key, channels, result)
    store(out_message, part, num_sources, source, is_source, column, width, told)
