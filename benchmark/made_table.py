"""Make the table of `tables.py` with any number of rows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

NUM_WAVES, LENGTH, NOISE = 200, 0.05, 0.2
Array = NDArray[np.float64]


def make_table(num_rows: int, seed: int) -> tuple[Array, Array]:
    """Draw columns and target, from the same distribution for any number of rows."""
    law, random = np.random.default_rng(0), np.random.default_rng([seed, num_rows])
    frequency = law.normal(0, 1 / LENGTH, (2, NUM_WAVES))
    phase = law.uniform(0, 2 * math.pi, NUM_WAVES)
    place, x = random.random((num_rows, 2)), random.normal(size=(num_rows, 6))
    field = np.zeros(num_rows)
    # Wave by wave, so that a million rows take little memory.
    for wave, shift in zip(frequency.T, phase, strict=True):
        field += math.sqrt(2 / NUM_WAVES) * np.cos(place @ wave + shift)
    y = field + np.tanh(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * (x[:, 3] > 0)
    return np.hstack([place, x]), y + NOISE * random.normal(size=num_rows)
