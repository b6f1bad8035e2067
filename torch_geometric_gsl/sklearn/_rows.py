"""Check the rows of a table and their targets, and hold those of training."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from sklearn.base import is_classifier
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data
from torch import Tensor

from torch_geometric_gsl._labels import check_same_kind
from torch_geometric_gsl.sklearn._columns import (
    check_unmasked,
    columns_of,
    is_frame,
    is_missing,
    parse_column,
    read_columns,
    store_names,
    to_native,
)
from torch_geometric_gsl.sklearn.table_transformer import TableTransformer

# Single precision, of pandas and polars, and in another byte order.
_SINGLE = {'float32', '>f4', '<f4'}


class TrainingRows(NamedTuple):
    """The rows that an estimator was fitted on."""

    x: Any  # As numbers, dense or SciPy sparse.
    columns: Any  # As passed: the columns of a DataFrame by name, else the numbers.
    labels: Any  # The index of a DataFrame, else positions.
    encoder: TableTransformer | None  # Of a DataFrame.
    targets: Any  # As passed, and the name of their column.
    target_name: str
    known_y: Tensor  # Targets of networks: classes or numbers, -1 or NaN if unknown.
    num_classes: int  # 0 for numbers.
    group: Tensor | None  # Rows of one group do not see each other.
    order: Tensor | None  # Rows see those of a lower number.

    @property
    def num_rows(self) -> int:
        """Return the number of rows."""
        return int(self.x.shape[0])

    @property
    def num_outputs(self) -> int:
        """Return the number of classes, or of targets."""
        return self.num_classes or self.known_y.size(1)

    @property
    def is_hidden(self) -> bool:
        """Return whether some rows are hidden from others, by groups or by order."""
        return self.group is not None or self.order is not None

    def row_mask(self, device: torch.device) -> dict[str, Tensor | None]:
        """Return groups and order on a device, by the names of their arguments."""
        codes = {'group': self.group, 'order': self.order}
        return {k: v if v is None else v.to(device) for k, v in codes.items()}


def name_of(y: Any) -> str:
    """Return the name of a target column."""
    name = None if is_frame(y) else getattr(y, 'name', None)
    return ('' if name is None else str(name)) or 'target'


def stored_columns(X: Any, x: Any) -> Any:
    """Return copies of the columns of a DataFrame, else its rows as numbers."""
    if not is_frame(X):
        return x
    return {name: np.array(column) for name, column in columns_of(X).items()}


def check_table(estimator: Any, X: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return an encoder of a DataFrame, and copies of rows as numbers and of targets.

    Targets are classes or numbers, as the estimator is a classifier or not.
    """
    if isinstance(y, str):
        raise TypeError(
            f"'y' must hold a value per row (got {y!r}): pass the column, X[{y!r}]"
        )
    if hasattr(y, 'dtype') and np.dtype(np.longdouble) == y.dtype:
        with np.errstate(over='ignore'):  # Infinite if out of range.
            y = np.asarray(y, dtype=np.float64)
    is_number = not is_classifier(estimator)
    _check_no_gaps(y, is_number)
    if not is_number:
        check_same_kind(y)
    _check_two_dimensions(X)
    encoder = TableTransformer().fit(X) if is_frame(X) else None
    x = _encode_rows(estimator, X, encoder, reset=True)
    options = {'accept_sparse': 'csr', 'dtype': [x.dtype], 'estimator': estimator}
    try:
        x, y = check_X_y(x, y, **options, multi_output=is_number, y_numeric=is_number)
        if is_number and y.dtype.kind in 'mM':
            raise ValueError(f"'y' must hold numbers (got {y.dtype})")
        y = y.astype(np.float64) if is_number and y.dtype.kind not in 'biuf' else y
    except (TypeError, ValueError) as error:
        if 'could not convert' not in str(error) and 'NA is' not in str(error):
            raise
        raise ValueError(f"'y' must hold numbers ({error})") from error
    # Copies: later changes of the caller's table have no effect.
    return encoder, x.copy(), to_native(y).copy()


def check_rows(estimator: Any, X: Any, encoder: TableTransformer | None) -> Any:
    """Convert the rows of a fitted estimator to numbers; encode a DataFrame."""
    _check_two_dimensions(X)
    return _encode_rows(estimator, X, encoder, reset=False)


def _check_no_gaps(y: Any, is_number: bool) -> None:
    """Raise if a target is missing, or a number is infinite."""
    infinities = (np.inf, -np.inf) if is_number else ()
    gaps = np.vectorize(lambda value: is_missing(value) or value in infinities, [bool])(
        np.array(y, dtype=object)
    )
    if gaps.size > 1 and (has_gap := gaps.reshape(len(gaps), -1).any(axis=1)).any():
        count = f'in {has_gap.sum()} of {len(has_gap)} rows'
        raise ValueError(
            f"'y' must hold finite numbers (got NaN or inf {count}, first in row "
            f'{has_gap.argmax()}): drop these rows'
            if is_number
            else f"'y' has no class, such as NaN, {count}: drop them, or encode "
            'the classes as integers with -1 for these'
        )


def _check_two_dimensions(X: Any) -> None:
    """Raise if rows are one row, a mapping, or a path."""
    if len(shape := tuple(getattr(X, 'shape', ()))) == 1:
        reshaped = 'X.to_frame().T' if hasattr(X, 'iloc') else 'X.reshape(1, -1)'
        raise ValueError(
            f"'X' must be a table (got a {type(X).__name__} of {shape[0]} values). "
            f"Reshape your data: '{reshaped}' is one row"
        )
    sample = X[0] if isinstance(X, list) and X else X
    if isinstance(sample, Mapping) and not hasattr(X, 'shape'):  # As sparse ones have.
        is_row = X is sample and all(np.ndim(value) == 0 for value in X.values())
        hint = 'pandas.DataFrame([X])' if is_row else 'pandas.DataFrame(X)'
        raise TypeError(f"'X' must be a table (got a {type(X).__name__}): use '{hint}'")
    if isinstance(X, str | PathLike):
        raise TypeError(f"'X' must be a table (got {X!r}): use 'pandas.read_csv'")


def _encode_rows(
    estimator: Any, X: Any, encoder: TableTransformer | None, *, reset: bool
) -> Any:
    """Convert rows to numbers; store the names of columns, or compare them."""
    options = {'accept_sparse': 'csr', 'dtype': (np.float64, np.float32)}
    if encoder is None:
        check_unmasked(X, 'X')
        X = to_native(X) if isinstance(X, np.ndarray) else X
        try:
            return validate_data(estimator, X, reset=reset, **options)
        except (TypeError, ValueError) as error:
            if not (column := _first_non_numeric(X)):
                raise
            error_class = TypeError if isinstance(error, TypeError) else ValueError
            reason = str(error).partition('\n')[0]
            raise error_class(
                f"'X' must hold numbers if 'fit' had no DataFrame ({column}: "
                f'{reason}): make_table_transformer() encodes strings and gaps'
            ) from error
    if reset or not is_frame(X):
        store_names(estimator, X, reset=reset)
    X = X.toarray() if scipy.sparse.issparse(X) else X
    rows = check_array(encoder.encode(encoder.read(X)), **options)
    is_single = reset and {str(dtype).lower() for dtype in X.dtypes} <= _SINGLE
    return rows.astype(np.float32) if is_single else rows


def _first_non_numeric(X: Any) -> str:
    """Find the first column that is not numeric, if any."""
    try:
        for name, values, declared in read_columns(X):
            column = parse_column(values, f'column {name!r}', declared)
            if column.type != 'numbers' or np.isnan(column.values).any():
                return f'column {name!r}'
    except (TypeError, ValueError) as error:  # Perhaps without columns.
        return str(error) if str(error).startswith('column') else ''
    return ''
