r"""Random numbers: Gumbel noise of a generator, counter-based noise, the proposals of
races drawn from it, and a generator for functions of PyTorch that take none.

The noise of a race's draw depends only on the seed and the draw's index, not on blocks
or the device, so that it is recomputed instead of stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import (
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function_unary,
)

# torch.rand can return zero, whose arrival time would be infinite.
_MIN_UNIFORM = 2.0**-54
# The constants of SplitMix64 as signed numbers: torch multiplies int64 modulo 2^64.
STEP = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64
_MASK_32, _MASK_33, _MASK_34 = 2**32 - 1, 2**33 - 1, 2**34 - 1
_MASK_37, _MASK_52 = 2**37 - 1, 2**52 - 1
_METHODS = (
    *('bernoulli', 'bernoulli_', 'cauchy_', 'exponential_', 'geometric_'),
    *('log_normal_', 'multinomial', 'normal_', 'random_', 'uniform_'),
)
_FUNCTIONS = (
    *('bernoulli', 'multinomial', 'normal', 'poisson'),
    *('rand', 'randint', 'randn', 'randperm'),
)
# Functions that use the global generator by default.
_RANDOM = frozenset(
    [
        *(getattr(Tensor, name) for name in _METHODS),
        *(getattr(torch, name) for name in _FUNCTIONS),
    ]
)


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


def clone_generator(
    generator: torch.Generator | None, device: torch.device
) -> torch.Generator:
    """Return a generator that repeats the next draws of another one.

    Without :obj:`generator` it clones the global one of the device.
    """
    empty = torch.empty(0, device=device)
    if generator is None and has_torch_function_unary(empty):
        # A mode such as GeneratorMode determines the next generator.
        return handle_torch_function(
            clone_generator, (empty,), generator=generator, device=device
        )
    twin = torch.Generator(device=device)
    if generator is not None:
        twin.set_state(generator.get_state())
    elif device.type == 'cuda':
        twin.set_state(torch.cuda.get_rng_state(device))
    else:
        twin.set_state(torch.get_rng_state())
    return twin


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


def dropout(
    x: Tensor, p: float, training: bool, generator: torch.Generator | None
) -> Tensor:
    """Apply :func:`torch.nn.functional.dropout`, with a generator if there is one.

    Its 16 bits an entry are drawn six times as fast, and round the probability to a
    multiple of :math:`2^{-16}`.

    Example:
        >>> x, generator = torch.ones(4), torch.Generator().manual_seed(0)
        >>> dropout(x, 0.5, True, generator)
        tensor([0., 0., 2., 0.])
    """
    if generator is None or not training or p in (0, 1):
        return F.dropout(x, p, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    bits = words.random_(-(2**63), None, generator=generator).view(torch.int16)
    threshold = min(round(p * 2**16), 2**16 - 1) - 2**15  # A number of 16 bits.
    is_kept = bits[: x.numel()].view(x.shape) >= threshold
    return x * is_kept.to(x.dtype).mul_(1 / (1 - p))


class GeneratorMode(TorchFunctionMode):
    """Make this thread draw from a generator in calls that pass none.

    Other threads and the global generator are not affected. Covers the initialisation
    of parameters and :func:`torch.nn.functional.dropout`, but not other functions that
    draw in C++, such as :func:`torch.nn.functional.gumbel_softmax`. A tensor on another
    device gets numbers of a generator there, with the same initial seed.

    Example:
        >>> with GeneratorMode(torch.Generator().manual_seed(0)):
        ...     lin = torch.nn.Linear(2, 1)
        >>> generator, bound = torch.Generator().manual_seed(0), 2**-0.5
        >>> weight = torch.empty(1, 2).uniform_(-bound, bound, generator=generator)
        >>> bool(torch.allclose(lin.weight, weight))
        True
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.seed = generator.initial_seed()
        self.generators = {generator.device: generator}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout:
            return self._dropout(*args, **kwargs)
        # Functions of torch.nn.init pass on `generator=None`.
        is_random = func in _RANDOM or 'generator' in kwargs
        if is_random and kwargs.get('generator') is None:
            kwargs = kwargs | {'generator': self._generator(args, kwargs)}
        return func(*args, **kwargs)

    def _dropout(
        self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        out = dropout(x, p, training, self._generator((x,), {}))
        return x.copy_(out) if inplace else out

    def _generator(self, args: Any, kwargs: Any) -> torch.Generator:
        """Return the generator for the device on which a function draws."""
        values = (value for value in (*args, *kwargs.values()))
        device = next((v.device for v in values if isinstance(v, Tensor)), None)
        if device is None:
            device = kwargs.get('device') or torch.get_default_device()
        device = torch.empty(0, device=device).device  # With its number.
        if device not in self.generators:
            generator = torch.Generator(device).manual_seed(self.seed)
            self.generators[device] = generator
        return self.generators[device]
