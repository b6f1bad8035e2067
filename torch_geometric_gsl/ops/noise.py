r"""Random numbers: Gumbel noise of a generator, counter-based noise, and the proposals
of races drawn from it.

The noise of a race's draw depends only on the seed and the draw's index, not on blocks
or the device, so that it is recomputed instead of stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# torch.rand can return zero, whose arrival time would be infinite.
_MIN_UNIFORM = 2.0**-54
# The constants of SplitMix64 as signed numbers: torch multiplies int64 modulo 2^64.
STEP = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_MASK_32, _MASK_33, _MASK_34 = 2**32 - 1, 2**33 - 1, 2**34 - 1
_MASK_37, _MASK_52 = 2**37 - 1, 2**52 - 1


def draw_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw the seed of a call from a generator; it stays on the device."""
    low, high = -(2**63), 2**63 - 1
    return torch.randint(low, high, (), device=device, generator=generator)


def random_words(state: Tensor) -> Tensor:
    r"""Map positions in the sequence of a seed to 64 random bits each.

    This is the output function of SplitMix64 from the `"Fast Splittable Pseudorandom
    Number Generators" <https://doi.org/10.1145/2660193.2660195>`_ paper. Position
    :math:`p` of the sequence is :obj:`seed + p * STEP`.
    """
    # Shifts of signed numbers keep the sign, which the masks remove.
    word = (state >> 30).bitwise_and_(_MASK_34).bitwise_xor_(state).mul_(_MIX_1)
    word = (word >> 27).bitwise_and_(_MASK_37).bitwise_xor_(word).mul_(_MIX_2)
    return (word >> 31).bitwise_and_(_MASK_33).bitwise_xor_(word)


def table_words(seed: Tensor, rows: slice, width: int) -> Tensor:
    r"""Return rows of a table of random words, :math:`[|\mathrm{rows}|, width]`."""
    row = torch.arange(rows.start, rows.stop, device=seed.device)
    column = torch.arange(1, width + 1, device=seed.device)
    return random_words((seed + row * width * STEP).unsqueeze(1) + column * STEP)


def race_states(seed: Tensor, first_race: int, count: int) -> Tensor:
    r"""Return the states :math:`[\mathrm{count}]` of races, each with its own sequence.

    Word :math:`p` of a race is :obj:`random_words(state + p * STEP)`, and
    :obj:`first_race` is the index of the first one.
    """
    race = torch.arange(first_race + 1, first_race + count + 1, device=seed.device)
    return random_words(seed + race * STEP)


def below(word: Tensor, size: Tensor | int) -> Tensor:
    r"""Map the upper 32 bits of words to integers from 0 to :obj:`size - 1`.

    Each probability differs from :math:`1 / \mathrm{size}` by less than
    :math:`2^{-32}`; :obj:`size` is at most :math:`2^{32}`.
    """
    # The product is an unsigned number of 64 bits.
    return (word >> 32 & _MASK_32) * size >> 32 & _MASK_32


def uniform(word: Tensor, dtype: torch.dtype) -> Tensor:
    r"""Map the lower 32 bits of words to the open interval (0, 1).

    Uses 23 bits in :obj:`torch.float32`, so that no number is rounded to one.
    """
    bits = 32 if dtype == torch.float64 else 23
    level = (word & ((1 << bits) - 1)).to(dtype)
    return (level + 0.5) * 2.0**-bits


def upper_uniform(word: Tensor) -> Tensor:
    r"""Map the upper 32 bits of words to (0, 1) in double precision."""
    return ((word >> 32 & _MASK_32).double() + 0.5) * 2.0**-32


def precise_uniform(word: Tensor) -> Tensor:
    r"""Map the upper 52 bits of words to (0, 1) in double precision."""
    return ((word >> 12 & _MASK_52).double() + 0.5) * 2.0**-52


def log_arrival_times(
    size: Sequence[int], like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    r"""Draw the logarithms of arrival times :math:`E = -\log U` of unit rate.

    :math:`-\log E` is standard Gumbel noise, and :math:`E / e^{s}` is the arrival
    time of an item with score :math:`s`, so that the smallest arrival time is the
    largest perturbed score (Gumbel-max). Logarithms are finite, and overflow for no
    score. On a CPU a tensor drawn in pieces equals one drawn at once.
    """
    options: Any = {'dtype': like.dtype, 'device': like.device, 'generator': generator}
    uniform = torch.rand(tuple(size), **options)
    smallest = max(_MIN_UNIFORM, torch.finfo(like.dtype).tiny)
    return uniform.clamp_(min=smallest).log_().neg_().log_()


def draw_uniform(
    state: Tensor, columns: Tensor, count: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the candidate, the acceptance level and the time gap of each proposal.

    Races have random states :math:`[r]` and :obj:`count` candidates :math:`[r, 1]`;
    :obj:`columns` :math:`[2, 1, q]` are the increments of the state for a proposal's
    two words. Returns, :math:`[r, q]` each, the position of the candidate, the uniform
    number that decides on acceptance, and the time since the previous proposal in units
    of the mean.
    """
    words = random_words(state.unsqueeze(1) + columns)
    level, gap = uniform(words, dtype)
    return below(words[0], count), level, gap.log().neg()


def propose(
    level: Tensor,
    word: Tensor,
    row: Tensor,
    share: Tensor,
    bound: Tensor,
    source: Tensor,
    offsets: Tensor,
    head: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Look up proposed candidates :math:`[r, q]` for the targets :obj:`row`.

    Uniform numbers :obj:`level` from :math:`-2^{31}` to :math:`2^{31} - 1` choose a
    bound, and random words a source under it; the other arguments are
    :attr:`~torch_geometric_gsl.ops.envelope.Rates.lookup`. Returns the sources, bounds
    of their scores, and a mask of void ones: proposed by a cluster, but in the head.
    """
    row = row.unsqueeze(1)
    column = _count_up_to(share, row, level).clamp(max=share.size(1) - 1)
    limit = bound.reshape(-1)[row * bound.size(1) + column]
    num_clusters = offsets.size(0) - 1
    cluster = column.clamp(max=num_clusters - 1)
    start = offsets[cluster]
    member = source[start + below(word, offsets[cluster + 1] - start)]
    if head is None:
        return member, limit, None
    start = row * head.size(1)
    is_head = column >= num_clusters
    listed = head.reshape(-1)[start + (column - num_clusters).clamp(min=0)]
    position = (_count_up_to(head, row, member) - 1).clamp(min=0)
    is_void = (head.reshape(-1)[start + position] == member) & ~is_head
    return torch.where(is_head, listed, member), limit, is_void


def _count_up_to(ascending: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """Count the entries of a row [n, d] that are at most a value, by bisection."""
    # Twice as fast as torch.searchsorted, whose branches are hard to predict.
    width = ascending.size(1)
    entries = ascending.reshape(-1)
    base = row * width - 1
    count = torch.zeros_like(value, dtype=torch.long)
    bits = 0
    while 1 << bits <= width:  # One program for all widths between two powers.
        bits += 1
    for bit in reversed(range(bits)):
        larger = count + (1 << bit)
        entry = entries[base + larger.clamp(max=width)]
        count = torch.where((larger <= width) & (entry <= value), larger, count)
    return count
