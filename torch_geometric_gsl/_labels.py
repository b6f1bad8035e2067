"""Which labels are classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl._warnings import warn_caller

#: The label of a row whose class is not known.
UNLABELLED = -1


def find_labelled(y: NDArray[Any], name: str | None = 'y') -> NDArray[np.bool_]:
    r"""Return which labels are classes.

    A label of -1 is none beside two or more others, of which none is negative. A
    warning tells so unless these rows are the majority, as where few are labelled.

    Args:
        y (numpy.ndarray): Labels :math:`[n]`.
        name (str, optional): Their name in the warning, which :obj:`None` leaves out.
            (default: :obj:`"y"`)
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
