"""Columns of numbers, which are scaled, and columns of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl._warnings import warn_caller

#: The label of a row whose class is not known.
UNLABELLED = -1

_EPS = float(np.finfo(np.float64).eps)


def measure_columns(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return means and standard deviations of finite numbers in double precision.

    Neither overflows nor underflows where the values do not. The deviation is zero
    where a column is constant but for rounding, in the precision of :obj:`x`.
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
    """Subtract means and divide by deviations, in double precision, or return zero."""
    # The difference of halves cannot overflow.
    centred = 0.5 * x.astype(np.float64) - 0.5 * mean
    with np.errstate(over='ignore'):
        return np.divide(
            centred, 0.5 * deviation, out=np.zeros_like(centred), where=deviation > 0
        )


def find_labelled(y: NDArray[Any], name: str | None = 'y') -> NDArray[np.bool_]:
    """Return which labels are classes.

    A label of -1 is none beside two or more others, of which none is negative. A
    warning, if the labels have a name, says so unless these rows are the majority.
    """
    known = np.ones(len(y), dtype=bool)
    if y.dtype.kind not in 'if' or not (y == UNLABELLED).any():
        return known
    others = np.unique(y[y != UNLABELLED])
    if len(others) == 1 or others.min(initial=0) < 0:
        return known
    known = np.asarray(y != UNLABELLED, dtype=bool)
    number = int((~known).sum())
    if name is not None and 2 * number <= len(y):
        warn_caller(
            f"'{name}' has the label -1 in {number} of {len(y)} rows, which count as "
            f'unlabelled: pass texts, such as {name}.astype(str), if -1 is a class',
            UserWarning,
        )
    return known


def check_same_kind(y: Any) -> None:
    """Raise if classes are texts and something else, such as numbers or none."""
    # NumPy would make a text of all that stands in a list beside one.
    y = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if y.dtype.kind != 'O':
        return
    kinds = sorted({type(value).__name__ for value in np.ravel(y)})
    if 'str' in kinds and len(kinds) > 1:
        raise ValueError(
            f"'y' must hold classes of one kind (got {' and '.join(kinds)}). Rows "
            'without a class are those of -1: number the classes, as with LabelEncoder'
        )
