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

from torch_geometric_gsl.ops import scan

# SplitMix64, as in `noise`.
GAMMA = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)
_SHARE = tl.constexpr(scan.SCAN_FACTOR)


@triton.jit
def random_words(state):
    """Compute `noise.random_words` of unsigned numbers."""
    word = (state ^ (state >> 30)) * _MIX_1
    word = (word ^ (word >> 27)) * _MIX_2
    return word ^ (word >> 31)


@triton.jit
def uniform(word):
    """Compute `noise.uniform` in float32."""
    whole = (word & 0x7FFFFF).to(tl.int32).to(tl.float32)
    return (whole + 0.5) * 1.1920928955078125e-07  # 2^-23


@triton.jit
def _below(word, size):
    """Compute `noise.below`."""
    return (((word >> 32) * size.to(tl.uint64)) >> 32).to(tl.int64)


@triton.jit
def _compare(
    dst,
    src,
    channels,
    row,
    source,
    is_wanted,
    COMPARISON: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Compare targets with their sources [R, P]: products or squared distances."""
    target = dst + row * channels
    gathered = src + source * channels
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
        if COMPARISON == 'dot':
            total += u * v
        else:
            total += (u - v) * (u - v)
    value = tl.sum(total, 2)
    return value if COMPARISON == 'dot' else tl.minimum(value, 1e36)


@triton.jit
def _respond(value, b, b_stride, c, c_stride, row, RESPONSE: tl.constexpr):
    """Return the responses to compared values [R, P]."""
    if RESPONSE == 'difference':
        value = 1 - value
    elif RESPONSE == 'gaussian':
        t = value - tl.load(b + row * b_stride)[:, None]
        value = tl.exp(-(t * t) / tl.load(c + row * c_stride)[:, None])
    elif RESPONSE == 'heat_kernel':
        value = tl.exp(-value / tl.load(c + row * c_stride)[:, None])
    elif RESPONSE == 'negative':
        value = -value
    return value


@triton.jit
def _last_turn(count, length):
    """Return the end of the first round at or beyond some numbers [R]."""
    step = length.to(tl.int64)
    end = tl.zeros_like(count) + step
    while tl.max((end < count).to(tl.int32), 0) > 0:
        step *= 2
        end += tl.where(end < count, step, 0)
    return end


@triton.jit
def _search(table, first, size, value, is_wanted):
    """Return how many of ascending entries do not exceed values [R, P]."""
    low = tl.zeros([value.shape[0], value.shape[1]], tl.int64)
    high = low + size
    left = size.to(tl.int64)
    while left > 0:
        middle = (low + high) // 2
        is_open = is_wanted & (low < high)
        entry = tl.load(table + first + middle, mask=is_open, other=0)
        is_past = is_open & (entry <= value)
        low = tl.where(is_past, middle + 1, low)
        high = tl.where(is_past, high, middle)
        left = left // 2
    return low


@triton.jit
def _propose_flat(word, row, count, excluded, start, listed, is_wanted):
    """Return uniform candidates [R, P]."""
    index = _below(word, count[:, None])
    if excluded is not None:
        own = tl.load(excluded + row)
        if start is not None:
            own -= tl.load(start + row)
        index += (index >= own[:, None]).to(tl.int64)
    if start is not None:
        index += tl.load(start + row)[:, None]
    if listed is not None:
        index = tl.load(listed + index, mask=is_wanted, other=0)
    return index


@triton.jit
def _propose_kinds(
    word, other, row, share, member, offset, head, num_kinds, num_clusters, is_wanted
):
    """Return candidates [R, P] of clusters and heads, their kinds, and which count."""
    kind = (other >> 32).to(tl.int32)
    kinds = (row * num_kinds)[:, None]
    number = _search(share, kinds, num_kinds, kind, is_wanted)
    # Rounding may lead past the last kind of a target.
    number = tl.minimum(number, num_kinds - 1)
    own = offset + tl.minimum(number, num_clusters - 1)
    first = tl.load(own, mask=is_wanted, other=0)
    size = tl.load(own + 1, mask=is_wanted, other=0) - first
    source = tl.load(member + first + _below(word, size), mask=is_wanted, other=0)
    if head is not None:
        # Proposed by a cluster, members of the head are void: they have their rates.
        num_heads = num_kinds - num_clusters
        heads = (row * num_heads)[:, None]
        is_head = is_wanted & (number >= num_clusters)
        is_other = is_wanted & (number < num_clusters)
        near = heads + _search(head, heads, num_heads, source, is_other) - 1
        near = tl.where(is_head, heads + number - num_clusters, near)
        found = tl.load(head + near, mask=is_wanted & (near >= heads), other=-1)
        is_wanted = is_wanted & (is_head | (found != source))
        source = tl.where(is_head, found, source)
    return source, kinds + number, is_wanted


@triton.jit
def _select(values, is_kept):
    """Move values [R, P] to the places [R, M] of the arrivals; others are zero."""
    return tl.sum(tl.where(is_kept, values[:, :, None], 0), 1)


# Options of a call: a kernel of its own for some of their values does not pay, and a
# specialised 1 would be no tensor.
_OPTIONS = [
    'num_races',
    'per_target',
    'length',
    'least',
    'num_arrivals',
    'num_kinds',
    'num_clusters',
]


@triton.jit(do_not_specialize=_OPTIONS)
def run_races(
    dst,
    src,
    b,
    c,
    scale,
    excluded,
    start,
    listed,
    count,
    bound,
    total,
    share,
    head,
    member,
    offset,
    state,
    out_source,
    out_noise,
    out_horizon,
    out_found,
    out_clock,
    num_races,
    per_target,
    length,
    least,
    num_arrivals,
    num_kinds,
    num_clusters,
    channels,
    b_stride,
    c_stride,
    RESPONSE: tl.constexpr,
    COMPARISON: tl.constexpr,
    BLOCK_RACES: tl.constexpr,
    BLOCK_PROPOSALS: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_KEPT: tl.constexpr,
):
    """Run a block of races, some proposals at a time, until all rounds end."""
    number = tl.program_id(0).to(tl.int64) * BLOCK_RACES + tl.arange(0, BLOCK_RACES)
    # What is too many runs the last race once more, and writes nothing.
    race = tl.minimum(number, num_races - 1)
    row = race // per_target
    sizes = tl.load(count + row)
    end = _last_turn((sizes + _SHARE - 1) // _SHARE, length)
    first = tl.load(state + race).to(tl.uint64)
    log_rate = tl.load(total + row)
    factor = tl.load(scale)
    slot = tl.arange(0, BLOCK_KEPT)[None, :]
    kept_source = tl.zeros([BLOCK_RACES, BLOCK_KEPT], tl.int32)
    kept_noise = tl.zeros([BLOCK_RACES, BLOCK_KEPT], tl.float32)
    horizon = tl.zeros([BLOCK_RACES], tl.float32)
    clock = tl.zeros([BLOCK_RACES], tl.float32)
    found = tl.zeros([BLOCK_RACES], tl.int32)
    begin = tl.zeros([], tl.int64)
    limit = begin + length
    while begin < tl.max(tl.where(found < num_arrivals, end, 0), 0):
        turn = (begin + tl.arange(0, BLOCK_PROPOSALS))[None, :]
        # A race that is full needs no more scores.
        is_lacking = (found < num_arrivals)[:, None]
        is_wanted = (turn < tl.minimum(end, limit)[:, None]) & is_lacking
        place = first[:, None] + (2 * turn + 1).to(tl.uint64) * GAMMA
        word, other = random_words(place), random_words(place + GAMMA)
        gap = tl.where(is_wanted, -tl.log(uniform(other)), 0.0)
        time = tl.log(clock[:, None] + tl.cumsum(gap, 1)) - log_rate[:, None]
        if share is None:
            source = _propose_flat(word, row, sizes, excluded, start, listed, is_wanted)
            most = tl.load(bound + row)[:, None]
        else:
            source, kind, is_wanted = _propose_kinds(
                word,
                other,
                row,
                share,
                member,
                offset,
                head,
                num_kinds,
                num_clusters,
                is_wanted,
            )
            if excluded is not None:
                is_wanted = is_wanted & (source != tl.load(excluded + row)[:, None])
            most = tl.load(bound + kind, mask=is_wanted, other=0.0)
        value = _compare(
            dst, src, channels, row, source, is_wanted, COMPARISON, BLOCK_CHANNELS
        )
        score = factor * _respond(value, b, b_stride, c, c_stride, row, RESPONSE)
        accepted = is_wanted & (uniform(word) < tl.exp(score - most))
        rank = found[:, None] + tl.cumsum(accepted.to(tl.int32), 1)
        is_kept = accepted[:, :, None] & (rank[:, :, None] == slot[:, None, :] + 1)
        kept_source += _select(source.to(tl.int32), is_kept)
        kept_noise += _select(-(time + score), is_kept)
        horizon += tl.sum(tl.where(accepted & (rank == num_arrivals), time, 0.0), 1)
        found += tl.sum(accepted.to(tl.int32), 1)
        clock += tl.sum(gap, 1)
        begin = tl.minimum(begin + BLOCK_PROPOSALS, limit)
        if begin == limit:  # The end of a round, and of races that have enough.
            end = tl.where(found < least, end, begin)
            limit = 2 * limit + length
    found = tl.minimum(found, num_arrivals)
    is_race = number < num_races
    out = race[:, None] * num_arrivals + slot
    is_place = is_race[:, None] & (slot < found[:, None])
    tl.store(out_source + out, kept_source.to(tl.int64), mask=is_place)
    tl.store(out_noise + out, kept_noise, mask=is_place)
    last = tl.where(found == num_arrivals, horizon, tl.log(clock) - log_rate)
    tl.store(out_horizon + race, last, mask=is_race & (found >= least))
    tl.store(out_found + race, found.to(tl.int64), mask=is_race)
    tl.store(out_clock + race, clock, mask=is_race)
