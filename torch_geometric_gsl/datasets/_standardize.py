from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def standardize_columns(x: NDArray[Any]) -> NDArray[Any]:
    """Scale columns to zero mean and unit variance; constant ones become zero.

    A column that is not finite, or whose variance overflows, stays as it is.
    """
    # A constant column's deviation may be a rounding error rather than zero.
    constant = (x.min(axis=0) == x.max(axis=0)) & np.isfinite(x[0])
    with np.errstate(over='ignore', invalid='ignore'):
        deviation = x.std(axis=0)
        # Also where all squares underflow to zero.
        scale = np.where(constant | (deviation == 0), 1.0, deviation)
        result = np.where(constant, 0.0, (x - x.mean(axis=0)) / scale)
    return np.where(np.isfinite(deviation) | constant, result, x)
