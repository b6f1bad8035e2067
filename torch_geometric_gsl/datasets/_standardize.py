from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def standardize_columns(x: NDArray[Any]) -> NDArray[Any]:
    """Scales columns to zero mean and unit variance; constant ones become zero."""
    centred = x - x.mean(axis=0)
    # A constant column's deviation may be a rounding error rather than zero.
    constant = x.min(axis=0) == x.max(axis=0)
    scale = np.where(constant, 1.0, x.std(axis=0))
    result: NDArray[Any] = np.where(constant, 0.0, centred / scale)
    return result
