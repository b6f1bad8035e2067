r"""The program of the race on the device: a block of races each.

Races take turns: some proposals of each race of the block at a time. Tensors have the
shape [R] of the races, [R, P] of these proposals, or [R, M] of the arrivals.
"""

# Triton's language has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import triton
import triton.language as tl

# SplitMix64, as in `noise`.
_GAMMA = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def _random_words(state):
    """Compute `noise.random_words` of unsigned numbers."""
    word = (state ^ (state >> 30)) * _MIX_1
    word = (word ^ (word >> 27)) * _MIX_2
    return word ^ (word >> 31)


@triton.jit
def _uniform(word):
    """Compute `noise.uniform` in float32."""
    whole = (word & 0x7FFFFF).to(tl.int32).to(tl.float32)
    return (whole + 0.5) * 1.1920928955078125e-07  # 2^-23


@triton.jit
def _compare(
    dst,
    src,
    channels,
    row,
    source,
    is_wanted,
    RESPONSE: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Compare targets with their sources [R, P]: products or squared distances."""
    target = dst + row * channels
    gathered = src + source.to(tl.int64) * channels
    total = tl.zeros([source.shape[0], source.shape[1], SIZE], tl.float32)
    for first in range(0, channels, SIZE):
        channel = first + tl.arange(0, SIZE)[None, :]
        is_channel = channel < channels
        u = tl.load(target[:, None] + channel, mask=is_channel, other=0.0)[:, None, :]
        v = tl.load(
            gathered[:, :, None] + channel[None],
            mask=is_wanted[:, :, None] & is_channel[None],
            other=0.0,
        )
        if RESPONSE == 'heat_kernel':
            total += (u - v) * (u - v)
        else:
            total += u * v
    return tl.sum(total, 2)


@triton.jit
def _respond(value, b, b_stride, c, c_stride, row, RESPONSE: tl.constexpr):
    """Return the responses to compared values [R, P]."""
    if RESPONSE == 'difference':
        value = 1 - value
    elif RESPONSE == 'gaussian':
        t = value - tl.load(b + row * b_stride)[:, None]
        value = tl.exp(-(t * t) / tl.load(c + row * c_stride)[:, None])
    elif RESPONSE == 'heat_kernel':
        width = tl.load(c + row * c_stride)[:, None]
        value = tl.exp(-tl.minimum(value, 1e36) / width)
    return value


@triton.jit
def _count(
    row, excluded, start, size, num_sources, log_size, BLOCK_RACES: tl.constexpr
):
    """Return the number of candidates, its logarithm, the excluded place."""
    own = tl.zeros([BLOCK_RACES], tl.int64)
    if size is None:
        count = tl.full([BLOCK_RACES], num_sources, tl.int64)
    else:
        count = tl.load(size + row)
    if excluded is not None:
        count -= 1
        own = tl.load(excluded + row)
        if start is not None:
            own -= tl.load(start + row)
    if size is None:
        log_count = tl.full([BLOCK_RACES], log_size, tl.float32)
    else:
        log_count = tl.log(count.to(tl.float32))
    return count, log_count, own


@triton.jit
def _propose(word, row, count, own, is_wanted, excluded, start, listed):
    """Return the proposed sources [R, P]."""
    index = (((word >> 32) * count[:, None].to(tl.uint64)) >> 32).to(tl.int64)
    if excluded is not None:
        index += (index >= own[:, None]).to(tl.int64)
    if start is not None:
        index += tl.load(start + row)[:, None]
    if listed is not None:
        index = tl.load(listed + index, mask=is_wanted, other=0)
    return index.to(tl.int32)


@triton.jit
def _select(values, is_kept):
    """Move values [R, P] to the places [R, M] of the arrivals; others are zero."""
    return tl.sum(tl.where(is_kept, values[:, :, None], 0), 1)


@triton.jit
def _close(source, noise, last_source, found, slot, num_arrivals):
    """Fill places [R, M] without an arrival, and drop repeated sources."""
    missing = slot >= found[:, None]
    # The last proposal stands in for an arrival; so it does in the definition.
    source = tl.where(missing, last_source[:, None], source)
    for earlier in range(0, num_arrivals - 1):
        one = tl.sum(tl.where(slot == earlier, source, 0), 1)
        missing = missing | ((slot > earlier) & (source == one[:, None]))
    return source, tl.where(missing, float('-inf'), noise)


# Options of a call: a kernel of its own for some of their values does not pay, and a
# specialised 1 would be no tensor.
_OPTIONS = ['num_races', 'per_target', 'proposals', 'num_arrivals', 'num_sources']


@triton.jit(do_not_specialize=_OPTIONS)
def run_races(
    dst,
    src,
    b,
    c,
    excluded,
    start,
    size,
    listed,
    seed,
    out_source,
    out_noise,
    out_horizon,
    num_races,
    per_target,
    proposals,
    num_arrivals,
    num_sources,
    channels,
    b_stride,
    c_stride,
    scale,
    upper,
    log_size,
    RESPONSE: tl.constexpr,
    BLOCK_RACES: tl.constexpr,
    BLOCK_PROPOSALS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_KEPT: tl.constexpr,
):
    """Run a block of races, some proposals at a time, until all have arrivals."""
    number = tl.program_id(0).to(tl.int64) * BLOCK_RACES + tl.arange(0, BLOCK_RACES)
    # What is too many runs the last race once more, and writes nothing.
    race = tl.minimum(number, num_races - 1)
    row = race // per_target
    count, log_count, own = _count(
        row, excluded, start, size, num_sources, log_size, BLOCK_RACES
    )
    shift = log_count + upper
    # The random states of first proposals [R], and the way to those of gaps.
    width = per_target.to(tl.int64) * proposals
    place = row * 2 * width + race % per_target * proposals + 1
    first = tl.load(seed).to(tl.uint64) + place.to(tl.uint64) * _GAMMA
    to_gap = width.to(tl.uint64) * _GAMMA
    slot = tl.arange(0, BLOCK_KEPT)[None, :]
    kept_source = tl.zeros([BLOCK_RACES, BLOCK_KEPT], tl.int32)
    kept_noise = tl.zeros([BLOCK_RACES, BLOCK_KEPT], tl.float32)
    last_source = tl.zeros([BLOCK_RACES], tl.int32)
    full_time = tl.zeros([BLOCK_RACES], tl.float32)
    clock = tl.zeros([BLOCK_RACES], tl.float32)
    found = tl.zeros([BLOCK_RACES], tl.int32)
    begin = tl.zeros([], tl.int32)
    while (begin < proposals) & (tl.min(found, 0) < num_arrivals):
        turn = (begin + tl.arange(0, BLOCK_PROPOSALS))[None, :]
        is_turn = turn < proposals
        is_last = turn == proposals - 1
        state = first[:, None] + turn.to(tl.uint64) * _GAMMA
        word = _random_words(state)
        gap = -tl.log(_uniform(_random_words(state + to_gap)))
        gap = tl.where(is_turn, gap, 0.0)
        time = tl.log(clock[:, None] + tl.cumsum(gap, 1)) - shift[:, None]
        # A race that is full needs no more scores.
        is_wanted = is_turn & (found < num_arrivals)[:, None]
        source = _propose(word, row, count, own, is_wanted, excluded, start, listed)
        value = _compare(
            dst, src, channels, row, source, is_wanted, RESPONSE, BLOCK_CHANNELS
        )
        score = scale * _respond(value, b, b_stride, c, c_stride, row, RESPONSE)
        accepted = is_wanted & (_uniform(word) < tl.exp(score - upper))
        rank = found[:, None] + tl.cumsum(accepted.to(tl.int32), 1)
        accepted = accepted | (is_last & (rank == 0))
        rank = tl.maximum(rank, 1)
        is_kept = accepted[:, :, None] & (rank[:, :, None] == slot[:, None, :] + 1)
        kept_source += _select(source, is_kept)
        kept_noise += _select(-(time + score), is_kept)
        full_time += tl.sum(tl.where(accepted & (rank == num_arrivals), time, 0.0), 1)
        last_source += tl.sum(tl.where(is_last, source, 0), 1)
        found += tl.sum(accepted.to(tl.int32), 1)
        clock += tl.sum(gap, 1)
        begin += BLOCK_PROPOSALS
    kept_source, kept_noise = _close(
        kept_source, kept_noise, last_source, found, slot, num_arrivals
    )
    horizon = tl.where(found >= num_arrivals, full_time, tl.log(clock) - shift)
    is_race = number < num_races
    out = race[:, None] * num_arrivals + slot
    is_place = is_race[:, None] & (slot < num_arrivals)
    tl.store(out_source + out, kept_source.to(tl.int64), mask=is_place)
    tl.store(out_noise + out, kept_noise, mask=is_place)
    tl.store(out_horizon + race, horizon, mask=is_race)
