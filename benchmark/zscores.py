"""Compute two-sample z-scores of two methods, and the bound that they must keep."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

# The probability that a correct method exceeds the bound anywhere in the table.
ERROR_RATE = 0.01
# What differs from the definition on purpose.
DIFFERS = 'entropy'


class Comparison(NamedTuple):
    """The z-scores of one quantity, and the relative differences of its means."""

    z: list[float]
    difference: list[float]

    @property
    def largest(self) -> float:
        return max(map(abs, self.z))

    @property
    def rms(self) -> float:
        return math.sqrt(statistics.fmean(z * z for z in self.z))

    def plain(self) -> dict[str, list[float | None]]:
        """Return four digits of the numbers; JSON knows no NaN and no infinity."""
        return {
            name: [float(f'{z:.4g}') if math.isfinite(z) else None for z in values]
            for name, values in self._asdict().items()
        }


def compare(dense: Tensor, race: Tensor) -> Comparison:
    """Return two-sample z-scores of columns; the rows are independent repeats."""
    difference = race.mean(0) - dense.mean(0)
    error = (race.var(0) / race.size(0) + dense.var(0) / dense.size(0)).sqrt()
    sizes = error, dense.mean(0).abs()
    # Means that are equal do not differ: also where nothing varies, or both are zero.
    parts = (torch.where(difference == 0, 0, difference / size) for size in sizes)
    return Comparison(*(part.tolist() for part in parts))


def comparisons(row: dict[str, Any]) -> Iterator[tuple[str, Comparison]]:
    """Iterate over the quantities that a row compares, by name."""
    for name, value in row.items():
        if isinstance(value, Comparison):
            yield name, value


def bonferroni_bound(count: int, degrees: int) -> float:
    """Return the bound that the largest of so many |z| exceeds at `ERROR_RATE`."""
    z = statistics.NormalDist().inv_cdf(1 - ERROR_RATE / 2 / count)
    # Student's quantile, to first order: variances are estimated, too.
    return z + (z**3 + z) / (4 * degrees)


def verdict(rows: list[dict[str, Any]], repeats: int) -> tuple[float, set[str], str]:
    """Return the bound, the quantities that exceed it, and a text that says so."""
    every = [(name, each) for row in rows for name, each in comparisons(row)]
    count = sum(len(each.z) for _, each in every)
    bound = bonferroni_bound(count, 2 * (repeats // 2 - 1))
    lines, above = [], set()
    for name in dict.fromkeys(name for name, _ in every):
        z = [abs(z) for own, each in every if own == name for z in each.z]
        over = sum(not value <= bound for value in z)  # NaN exceeds it, too.
        says = f'{over} ABOVE THE BOUND' if over else 'all below the bound'
        says += ', as documented' if over and name == DIFFERS else ''
        lines.append(f'- {name}: {says} (of {len(z)}; largest |z| {max(z):.2f})')
        above |= {name} if over else set()
    ratio = statistics.fmean(row['variance_ratio'] for row in rows)
    text = (
        f'{count} two-sided comparisons with {repeats} graphs of either method (half '
        f'as many without gradients): a correct method exceeds |z| = {bound:.2f} '
        f'anywhere with a probability of at most {ERROR_RATE:.0%} (Bonferroni).'
    )
    lines.append(f'- gradient variance ratio: {ratio:.3f} on average')
    return bound, above, '\n'.join([text, *lines])
