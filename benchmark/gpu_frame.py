"""Setup, comparisons and timing that the parts of a run on a device share."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl import GumbelKNNSampler, resolve_similarity

Found = dict[str, Any]
ROUNDS, LIMIT = 10, 10.0  # No round starts after this many rounds or seconds.


class Setup(NamedTuple):
    """Device, sizes and seed of all parts."""

    device: torch.device
    is_small: bool
    seed: int

    def randn(self, *size: int) -> Tensor:
        """Draw numbers that are the same on every device."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(*size, generator=generator).to(self.device)

    def sampler(self, name: str, m: int, **options: Any) -> GumbelKNNSampler:
        torch.manual_seed(self.seed)
        return GumbelKNNSampler.paper(resolve_similarity(name, m), **options).to(
            self.device
        )


class Part(NamedTuple):
    """A part of a run; its time is divided by that of the part `reference`."""

    name: str
    run: Callable[[Setup], Found]
    reference: str | None = None


def expect(holds: bool, message: str) -> None:
    """Raise an error unless a condition holds, also under `python -O`."""
    if not holds:
        raise AssertionError(message)


def difference(found: Tensor, expected: Tensor, rtol: float) -> float:
    """Return the largest difference over the largest number; raise if above `rtol`."""
    expect(found.shape == expected.shape, f'{found.shape}, not {expected.shape}')
    if found.numel() == 0:
        return 0.0
    found, expected = (x.detach().cpu().double() for x in (found, expected))
    size = expected.abs().max().clamp_min(1e-3)
    error = float((found - expected).abs().max() / size)
    expect(error <= rtol, f'relative difference {error:.2e} > {rtol:.0e}')
    return error


def seeded(x: Tensor) -> torch.Generator:
    return torch.Generator(x.device).manual_seed(1)


def timed(setup: Setup, step: Callable[[], object]) -> Found:
    """Time rounds of a step after an uncounted one; on CUDA by events."""
    rounds = 3 if setup.is_small else ROUNDS
    begin, seconds = time.perf_counter(), [seconds_of(setup, step)]
    while len(seconds) < 2 or (
        len(seconds) <= rounds and time.perf_counter() - begin < LIMIT
    ):
        seconds.append(seconds_of(setup, step))
    first, *rest = seconds

    return {
        'median': statistics.median(rest),
        'min': min(rest),
        'max': max(rest),
        'rounds': len(seconds) - 1,
        'first': first,
    }


def seconds_of(setup: Setup, step: Callable[[], object]) -> float:
    if setup.device.type != 'cuda':
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def rates(found: Found, moved: float | None, operations: float | None) -> Found:
    """Add the bytes and operations of a step, and both per second."""
    for name, number in (('bytes', moved), ('operations', operations)):
        if number is not None:
            rate = number / found['median']
            found |= {name: number, f'{name}_per_second': rate}
    return found
