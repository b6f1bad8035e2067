"""Generators: copies of them, and draws of PyTorch's functions that take none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import (
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function_unary,
)

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
