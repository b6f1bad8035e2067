r"""The Gumbel race in one kernel: proposals, scores and the arrivals that are kept.

:func:`torch_geometric_gsl.ops.race.race_arrivals` is the definition. Nothing of the
size of all proposals is stored: the kernel writes arrivals alone. It draws the same
random words, so that both propose the same sources. Where a score differs in its last
bits, a proposal may be accepted by one and rejected by the other, once in about ten
million.

Checked under Triton's interpreter against the definition, and compiled for compute
capabilities 8.0 and 9.0; not yet measured on a GPU.
"""

# Triton's language has neither types nor stubs.
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator"
# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_geometric_gsl.ops.arrivals import Arrivals
from torch_geometric_gsl.ops.fused import FusedScore
from torch_geometric_gsl.ops.scorer import Law, Scorer

# SplitMix64, as in `counter`.
_GAMMA = tl.constexpr(0x9E3779B97F4A7C15)
_MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
_MIX_2 = tl.constexpr(0x94D049BB133111EB)

# Proposals and channels at a time, and the number of entries of a tile: small, so that
# its registers suffice and no race waits long for another.
_BLOCK_PROPOSALS = 16
_BLOCK_CHANNELS = 64
_TILE = 1024


@torch.no_grad()
def race_kernel(
    scorer: Scorer, fused: FusedScore, law: Law, proposals: int, seed: Tensor
) -> Arrivals:
    r"""Finds the first arrivals of each race in one kernel.

    Args:
        scorer (Scorer): The scores; their bound, excluded sources and candidates
            are used.
        fused (FusedScore): The same scores as a formula.
        law (Law): How neighbours are drawn.
        proposals (int): The number of proposals :math:`P`.
        seed (torch.Tensor): The seed, one number of type :obj:`torch.int64` on the
            device.

    Returns:
        Arrivals: The first arrivals, without gradient.

    Raises:
        ValueError: If the scores are not of type :obj:`torch.float32`, do not match
            :obj:`scorer`, their response is unknown, or neighbours are to be drawn
            without replacement.
    """
    _check(scorer, fused, law, proposals)
    (num_targets, num_sources), kept = scorer.size, law.kept
    shape, device = (num_targets, law.draws, kept), scorer.device
    source = torch.empty(shape, dtype=torch.long, device=device)
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    horizon = noise.new_empty(shape[:2])
    num_races = num_targets * law.draws
    if num_races == 0:
        return Arrivals(source, noise, horizon)
    inputs = _inputs(scorer, fused)
    options = _options(proposals, fused.src.size(1), kept)
    # Triton launches on the current device.
    with torch.cuda.device(device) if device.type == 'cuda' else nullcontext():
        _race[(triton.cdiv(num_races, options['BLOCK_RACES']),)](
            *inputs,
            seed,
            source,
            noise,
            horizon,
            num_races,
            law.draws,
            proposals,
            kept,
            num_sources,
            fused.src.size(1),
            # A number for all targets comes as a tensor of stride 0.
            0 if fused.b is None else fused.b.stride(0),
            0 if fused.c is None else fused.c.stride(0),
            fused.scale,
            scorer.upper,
            0.0 if scorer.candidates is not None else math.log(scorer.available),
            RESPONSE=fused.response,
            enable_fp_fusion=True,
            **options,
        )
    return Arrivals(source, noise, horizon)


def _inputs(scorer: Scorer, fused: FusedScore) -> list[Tensor | None]:
    """The tensors that the kernel reads; an absent one is left out of the kernel."""
    sets = (None, None, None) if scorer.candidates is None else scorer.candidates
    packed = [
        None if x is None else x.contiguous()
        for x in (fused.dst, fused.src, scorer.excluded, *sets)
    ]
    return [*packed[:2], fused.b, fused.c, *packed[2:]]


def _check(scorer: Scorer, fused: FusedScore, law: Law, proposals: int) -> None:
    fused.check()
    if not law.replace:
        raise ValueError("'law' must draw with replacement (got replace=False)")
    for name in ('dst', 'src', 'b', 'c'):
        given = getattr(fused, name)
        if given is not None and given.dtype != torch.float32:
            raise ValueError(f"'{name}' must be of type float32 (got {given.dtype})")
    size = fused.dst.size(0), fused.src.size(0)
    if size != tuple(scorer.size) or fused.dst.size(1) != fused.src.size(1):
        raise ValueError(
            f"'fused' must hold the embeddings of {tuple(scorer.size)} targets and "
            f'sources, equally wide (got {tuple(fused.dst.shape)} and '
            f'{tuple(fused.src.shape)})'
        )
    if not (1 <= proposals < 2**31 and 1 <= scorer.size[1] < 2**31):
        raise ValueError(
            f"'proposals' and sources must be between 1 and 2^31 - 1 "
            f'(got {proposals} and {scorer.size[1]})'
        )


def _options(proposals: int, channels: int, kept: int) -> dict[str, int]:
    """Shapes of the tiles, powers of two, and the number of warps."""
    block_p = min(_BLOCK_PROPOSALS, triton.next_power_of_2(proposals))
    block_c = min(_BLOCK_CHANNELS, triton.next_power_of_2(channels))
    block_k = triton.next_power_of_2(kept)
    per_race = block_p * max(block_c, block_k)
    races = max(1, _TILE // per_race)
    return {
        'BLOCK_RACES': races,
        'BLOCK_PROPOSALS': block_p,
        'BLOCK_CHANNELS': block_c,
        'BLOCK_KEPT': block_k,
        'num_warps': max(1, min(8, races * per_race // 512)),
    }


@triton.jit
def _random_words(state):
    """`counter.random_words` of unsigned numbers."""
    word = (state ^ (state >> 30)) * _MIX_1
    word = (word ^ (word >> 27)) * _MIX_2
    return word ^ (word >> 31)


@triton.jit
def _uniform(word):
    """`counter.uniform` in float32."""
    whole = (word & 0x7FFFFF).to(tl.int32).to(tl.float32)
    return (whole + 0.5) * 1.1920928955078125e-07  # 2^-23


@triton.jit
def _compare(
    dst,
    src,
    row,
    source,
    is_wanted,
    channels,
    IS_DISTANCE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
):
    """Inner products or squared distances of targets and their sources [R, P]."""
    target = dst + row * channels
    gathered = src + source.to(tl.int64) * channels
    shape: tl.constexpr = [source.shape[0], source.shape[1], BLOCK_CHANNELS]
    total = tl.zeros(shape, tl.float32)
    for first in range(0, channels, BLOCK_CHANNELS):
        channel = first + tl.arange(0, BLOCK_CHANNELS)
        is_channel = channel < channels
        u = tl.load(
            target[:, None] + channel[None, :], mask=is_channel[None, :], other=0.0
        )[:, None, :]
        v = tl.load(
            gathered[:, :, None] + channel[None, None, :],
            mask=is_wanted[:, :, None] & is_channel[None, None, :],
            other=0.0,
        )
        if IS_DISTANCE:
            total += (u - v) * (u - v)
        else:
            total += u * v
    return tl.sum(total, 2)


@triton.jit
def _score(
    dst,
    src,
    b,
    c,
    b_stride,
    c_stride,
    row,
    source,
    is_wanted,
    channels,
    scale,
    RESPONSE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
):
    """`FusedScore.score` [R, P]."""
    value = _compare(
        dst,
        src,
        row,
        source,
        is_wanted,
        channels,
        RESPONSE == 'heat_kernel',
        BLOCK_CHANNELS,
    )
    if RESPONSE == 'difference':
        value = 1 - value
    elif RESPONSE == 'gaussian':
        t = value - tl.load(b + row * b_stride)[:, None]
        value = tl.exp(-(t * t) / tl.load(c + row * c_stride)[:, None])
    elif RESPONSE == 'heat_kernel':
        width = tl.load(c + row * c_stride)[:, None]
        value = tl.exp(-tl.minimum(value, 1e36) / width)
    return scale * value


# Options of a call: a kernel of its own for some of their values does not pay, and a
# specialised 1 would be no tensor.
_OPTIONS = ['num_races', 'draws', 'proposals', 'kept', 'num_sources']


@triton.jit(do_not_specialize=_OPTIONS)
def _race(
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
    draws,
    proposals,
    kept,
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
    """Runs a block of races, some proposals at a time, until all have arrivals."""
    number = tl.program_id(0).to(tl.int64) * BLOCK_RACES + tl.arange(0, BLOCK_RACES)
    # What is too many runs the last race once more, and writes nothing.
    race = tl.minimum(number, num_races - 1)
    row = race // draws
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
        shift = tl.full([BLOCK_RACES], log_size + upper, tl.float32)
    else:
        shift = tl.log(count.to(tl.float32)) + upper
    # The place of a race's first proposal in the table of random words.
    width = draws.to(tl.int64) * proposals
    place = row * 2 * width + (race % draws) * proposals + 1
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
    while (begin < proposals) & (tl.min(found, 0) < kept):
        turn = (begin + tl.arange(0, BLOCK_PROPOSALS))[None, :]
        is_turn = turn < proposals
        is_last = turn == proposals - 1
        state = first[:, None] + turn.to(tl.uint64) * _GAMMA
        word = _random_words(state)
        gap = -tl.log(_uniform(_random_words(state + to_gap)))
        gap = tl.where(is_turn, gap, 0.0)
        time = tl.log(clock[:, None] + tl.cumsum(gap, 1)) - shift[:, None]
        index = (((word >> 32) * count[:, None].to(tl.uint64)) >> 32).to(tl.int64)
        if excluded is not None:
            index += (index >= own[:, None]).to(tl.int64)
        # A race that is full needs no more scores.
        is_wanted = is_turn & (found < kept)[:, None]
        if start is not None:
            index += tl.load(start + row)[:, None]
        if listed is not None:
            index = tl.load(listed + index, mask=is_wanted, other=0)
        source = index.to(tl.int32)
        score = _score(
            dst,
            src,
            b,
            c,
            b_stride,
            c_stride,
            row,
            source,
            is_wanted,
            channels,
            scale,
            RESPONSE,
            BLOCK_CHANNELS,
        )
        accepted = is_wanted & (_uniform(word) < tl.exp(score - upper))
        rank = found[:, None] + tl.cumsum(accepted.to(tl.int32), 1)
        accepted = accepted | (is_last & (rank == 0))
        rank = tl.maximum(rank, 1)
        is_kept = accepted[:, :, None] & (rank[:, :, None] == slot[:, None, :] + 1)
        noise = -(time + score)
        kept_source += tl.sum(tl.where(is_kept, source[:, :, None], 0), 1)
        kept_noise += tl.sum(tl.where(is_kept, noise[:, :, None], 0.0), 1)
        full_time += tl.sum(tl.where(accepted & (rank == kept), time, 0.0), 1)
        last_source += tl.sum(tl.where(is_last, source, 0), 1)
        found += tl.sum(accepted.to(tl.int32), 1)
        clock += tl.sum(gap, 1)
        begin += BLOCK_PROPOSALS
    # A place without an arrival repeats the last proposal; so does the definition.
    missing = slot >= found[:, None]
    kept_source = tl.where(missing, last_source[:, None], kept_source)
    for earlier in range(0, kept - 1):
        one = tl.sum(tl.where(slot == earlier, kept_source, 0), 1)
        missing = missing | ((slot > earlier) & (kept_source == one[:, None]))
    kept_noise = tl.where(missing, float('-inf'), kept_noise)
    horizon = tl.where(found >= kept, full_time, tl.log(clock) - shift)
    is_race = number < num_races
    out = race[:, None] * kept + slot
    is_place = is_race[:, None] & (slot < kept)
    tl.store(out_source + out, kept_source.to(tl.int64), mask=is_place)
    tl.store(out_noise + out, kept_noise, mask=is_place)
    tl.store(out_horizon + race, horizon, mask=is_race)
