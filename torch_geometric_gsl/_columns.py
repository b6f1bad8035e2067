"""Means and deviations of columns, and columns that are scaled by them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_EPS = float(np.finfo(np.float64).eps)


def measure_columns(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Return means and standard deviations in double precision.

    Neither overflows nor underflows where the values do not. The deviation is zero
    where a column is constant but for rounding, in the precision of :obj:`x`.

    Args:
        x (numpy.ndarray): Rows of finite numbers :math:`[n, d]`.
    """
    eps = np.finfo(x.dtype).eps if x.dtype.kind == 'f' else _EPS
    x = x.astype(np.float64)
    largest = np.abs(x).max(axis=0, initial=0.0)
    # A power of two, which changes no digit.
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
    x /= unit
    mean = x.mean(axis=0)
    x -= mean
    # The first mean is off by the rounding of its sum.
    rest = x.mean(axis=0)
    x -= rest
    mean += rest
    deviation = np.sqrt(np.einsum('ij,ij->j', x, x) / max(1, len(x)))
    # A few units in the last place, or those of a sum of n terms as in scikit-learn.
    noise = max(4 * float(eps), len(x) * _EPS) * np.abs(mean)
    return mean * unit, np.where(deviation > noise, deviation, 0.0) * unit


def scale_columns(
    x: NDArray[Any], mean: NDArray[Any], deviation: NDArray[Any]
) -> NDArray[Any]:
    r"""Subtract means and divide by deviations, in double precision.

    A column of deviation zero becomes zero, whatever it holds.
    """
    # The difference of halves cannot overflow.
    centred = 0.5 * x.astype(np.float64) - 0.5 * mean
    with np.errstate(over='ignore'):
        return np.divide(
            centred, 0.5 * deviation, out=np.zeros_like(centred), where=deviation > 0
        )
