r"""Random numbers: Gumbel noise of a generator, and noise as a function of its key.

What a draw of the race gets depends on the seed and on its own number alone, not on how
the work is cut into blocks nor on the device, and can be computed again, not stored.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

# torch.rand draws zeros, and their arrival time would be infinite.
_MIN_UNIFORM = 2.0**-54
# The constants of SplitMix64 as signed numbers: torch multiplies int64 modulo 2^64.
STEP = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_MASK_32, _MASK_33, _MASK_34 = 2**32 - 1, 2**33 - 1, 2**34 - 1
_MASK_37, _MASK_52 = 2**37 - 1, 2**52 - 1


def draw_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw the seed of a call from torch's generator; it stays on the device."""
    low, high = -(2**63), 2**63 - 1
    return torch.randint(low, high, (), device=device, generator=generator)


def random_words(state: Tensor) -> Tensor:
    r"""Turn places of the sequence of a seed into 64 random bits each.

    This is the output function of SplitMix64 from the `"Fast Splittable Pseudorandom
    Number Generators" <https://doi.org/10.1145/2660193.2660195>`_ paper. Place
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


def race_states(seed: Tensor, first: int, count: int) -> Tensor:
    r"""Return the states :math:`[\mathrm{count}]` of races, each a sequence of its own.

    Word :math:`p` of a race is :obj:`random_words(state + p * STEP)`; :obj:`first` is
    the number of the first race.
    """
    number = torch.arange(first + 1, first + count + 1, device=seed.device)
    return random_words(seed + number * STEP)


def below(word: Tensor, size: Tensor | int) -> Tensor:
    r"""Turn the upper 32 bits of words into numbers from 0 to :obj:`size - 1`.

    A number's share differs from :math:`1 / \mathrm{size}` by less than
    :math:`2^{-32}`; :obj:`size` is at most :math:`2^{32}`.
    """
    # The product is an unsigned number of 64 bits.
    return (word >> 32 & _MASK_32) * size >> 32 & _MASK_32


def uniform(word: Tensor, dtype: torch.dtype) -> Tensor:
    r"""Turn the lower 32 bits of words into numbers of the open interval (0, 1).

    They have 23 bits in :obj:`torch.float32`, so that none is rounded to one.
    """
    bits = 32 if dtype == torch.float64 else 23
    whole = (word & ((1 << bits) - 1)).to(dtype)
    return (whole + 0.5) * 2.0**-bits


def upper_uniform(word: Tensor) -> Tensor:
    r"""Turn the upper 32 bits of words into double numbers of (0, 1)."""
    return ((word >> 32 & _MASK_32).double() + 0.5) * 2.0**-32


def precise_uniform(word: Tensor) -> Tensor:
    r"""Turn the upper 52 bits of words into double numbers of (0, 1)."""
    return ((word >> 12 & _MASK_52).double() + 0.5) * 2.0**-52


def arrival_times(
    size: Sequence[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw arrival times :math:`E = -\log U` of a process of unit rate.

    :math:`-\log E` is standard Gumbel noise, and :math:`E / e^{s}` is the arrival
    time of an item with score :math:`s`, so that the smallest arrival time is the
    largest perturbed score (Gumbel-max). Times are positive and finite. On a CPU a
    tensor drawn in pieces equals one drawn at once.
    """
    uniform = torch.rand(tuple(size), dtype=dtype, device=device, generator=generator)
    smallest = max(_MIN_UNIFORM, torch.finfo(dtype).tiny)
    return uniform.clamp_(min=smallest).log_().neg_()


def clone_generator(
    generator: torch.Generator | None, device: torch.device
) -> torch.Generator:
    """Return a generator that will repeat what another one draws next.

    Without :obj:`generator` it is the global one of the device.
    """
    like = torch.empty(0, device=device)
    if generator is None and has_torch_function_unary(like):
        # A mode such as DrawsFrom tells which one draws next.
        twin: torch.Generator = handle_torch_function(
            clone_generator, (like,), generator=generator, device=device
        )
        return twin
    twin = torch.Generator(device=device)
    if generator is not None:
        twin.set_state(generator.get_state())
    elif device.type == 'cuda':
        twin.set_state(torch.cuda.get_rng_state(device))
    else:
        twin.set_state(torch.get_rng_state())
    return twin
