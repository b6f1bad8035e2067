"""Scale numeric columns and find missing classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl._warnings import warn_caller

#: The label of a row of unknown class.
UNLABELLED = -1

# Distance of an outlier from the median, in ranges of the quartiles.
_OUTLIER_RANGES = 1e6
# Its distance in multiples of the largest distance of other values.
_OUTLIER_GAP = 100
_EPS = float(np.finfo(np.float64).eps)


def measure_columns(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return means and standard deviations of finite numbers in double precision.

    Neither overflows nor underflows where the values do not. The deviation is zero
    where a column is constant up to rounding, in the precision of :obj:`x`.
    """
    eps = np.finfo(x.dtype).eps if x.dtype.kind == 'f' else _EPS
    x = x.astype(np.float64)
    largest = np.abs(x).max(axis=0, initial=0.0)
    # A power of two changes no digit.
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
    x /= unit
    mean = x.mean(axis=0)
    x -= mean
    # Correct the rounding error of the sum.
    residual = x.mean(axis=0)
    x -= residual
    mean += residual
    deviation = np.sqrt(np.einsum('ij,ij->j', x, x) / max(1, len(x)))
    # A few units in the last place, or the error of n summands as in scikit-learn.
    noise = max(4 * float(eps), len(x) * _EPS) * np.abs(mean)
    return mean * unit, np.where(deviation > noise, deviation, 0.0) * unit


def scale_columns(
    x: NDArray[Any], mean: NDArray[Any], deviation: NDArray[Any]
) -> NDArray[Any]:
    """Standardize columns in double precision; constant columns become zero."""
    # A difference of halves cannot overflow.
    centred = 0.5 * x.astype(np.float64) - 0.5 * mean
    with np.errstate(over='ignore'):
        return np.divide(
            centred, 0.5 * deviation, out=np.zeros_like(centred), where=deviation > 0
        )


def find_far(column: NDArray[Any]) -> int | None:
    """Return the row of a value with a gap to all others, unlike in a heavy tail."""
    low, middle, high = 0.5 * np.percentile(column, (25, 50, 75))
    distance = np.abs(0.5 * column.astype(np.float64) - middle)
    is_far = distance > _OUTLIER_RANGES * (high - low)
    if high == low or not is_far.any():
        return None
    is_apart = distance[is_far].min() > _OUTLIER_GAP * distance[~is_far].max()
    return int(distance.argmax()) if is_apart else None


def find_labelled(y: NDArray[Any], name: str | None = 'y') -> NDArray[np.bool_]:
    """Return a mask of the rows that have a class.

    A label of -1 means unlabelled if there are two or more other labels, none of them
    negative. Warns if the labels have a name, unless most rows are unlabelled: of two
    other labels nine in ten, as -1, 0 and 1 may be three classes.
    """
    is_labelled = np.ones(len(y), dtype=bool)
    if y.dtype.kind not in 'if' or not (y == UNLABELLED).any():
        return is_labelled
    classes = np.unique(y[y != UNLABELLED])
    if len(classes) == 1 or classes.min(initial=0) < 0:
        return is_labelled
    is_labelled = np.asarray(y != UNLABELLED, dtype=bool)
    num_unlabelled = int((~is_labelled).sum())
    max_share = 0.9 if len(classes) == 2 else 0.5
    if name is not None and num_unlabelled <= max_share * len(y):
        warn_caller(
            f"'{name}' has the label -1 in {num_unlabelled} of {len(y)} rows, which "
            f'count as unlabelled: pass strings, e.g. {name}.astype(str), if -1 is a '
            'class',
            UserWarning,
        )
    return is_labelled


def check_same_kind(y: Any) -> None:
    """Raise if classes mix strings with other types, such as numbers or None."""
    # NumPy would turn all values of such a list into strings.
    y = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if y.dtype.kind != 'O':
        return
    types = sorted({type(value).__name__ for value in np.ravel(y)})
    if 'str' in types and len(types) > 1:
        raise ValueError(
            f"'y' must hold classes of one kind (got {' and '.join(types)}). Encode "
            'them as integers, e.g. with LabelEncoder; -1 is a row without a class'
        )
