"""Find the rows of a table that have a class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_geometric_gsl._warnings import warn_caller

#: The label of a row of unknown class.
UNLABELLED = -1


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
