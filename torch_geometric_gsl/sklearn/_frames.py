"""Read the columns of data frames and arrays, by names of any type."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

# Stands for any missing value in a name.
_GAP = object()
# The first letters of the dtypes of categories: of pandas, of polars, and of Arrow.
_CATEGORIES = ('categor', 'enum', 'dictionary')


def is_frame(X: Any) -> bool:
    """Return whether rows are a dense DataFrame of pandas or polars."""
    has_columns = hasattr(X, 'columns') and hasattr(X, '__getitem__')
    if not has_columns or not hasattr(X, 'dtypes'):
        return False
    if not hasattr(X, 'shape'):
        raise TypeError(
            f"'X' must be a table in memory: call 'collect' (got a {type(X).__name__})"
        )
    dtypes = [str(dtype) for dtype in X.dtypes]
    return not dtypes or not all(dtype.startswith('Sparse') for dtype in dtypes)


def is_gap(value: Any) -> bool:
    """Return whether a value is NaN, NaT or NA."""
    return type(value).__name__ == 'NAType' or bool(value != value)


def name_key(name: Any) -> Any:
    """Return a value that is equal for equal names, also if they are NaN."""
    if isinstance(name, tuple):
        return tuple(map(name_key, name))
    return _GAP if is_gap(name) else name


def find_names(names: list[Any], columns: Any) -> list[int]:
    """Return the positions of names among columns; raise unless each is there once."""
    keys = [name_key(column) for column in columns]
    positions = {key: position for position, key in enumerate(keys)}
    counts = Counter(keys)
    if duplicates := [name for name in names if counts[name_key(name)] > 1]:
        raise ValueError(
            f"'X' must have distinct column names (got {duplicates} twice)"
        )
    if missing := [name for name in names if name_key(name) not in positions]:
        raise ValueError(
            f"'X' must have the columns of training (columns are missing: {missing}). "
            "Pass 'X.to_numpy()' for columns in the order of training"
        )
    return [positions[name_key(name)] for name in names]


def select_columns(X: Any, names: list[Any]) -> Any:
    """Return the named columns of a DataFrame, in this order."""
    positions = find_names(names, X.columns)
    if positions == [*range(X.shape[1])]:
        return X
    # Of pandas by position, as a name may be NaN or a tuple.
    return X.iloc[:, positions] if hasattr(X, 'iloc') else X[names]


def store_names(estimator: Any, X: Any, *, reset: bool) -> None:
    """Store the number of columns and their names, or compare them."""
    if not reset or not is_frame(X) or all(isinstance(n, str) for n in X.columns):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return
    # scikit-learn stores strings only, and rejects a mixture of types.
    estimator.n_features_in_ = X.shape[1]
    vars(estimator).pop('feature_names_in_', None)


def read_columns(X: Any) -> list[tuple[Any, Any, str | None]]:
    """Return the names of columns, their values, and their kinds if declared."""
    if not is_frame(X):
        if isinstance(X, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(X)
            X = np.array(X.data, dtype=object)
            X[mask] = None
        X = X if hasattr(X, 'shape') else np.array(X, dtype=object)
        rows = check_array(X, dtype=None, ensure_all_finite=False)
        return [(i, to_native(values), None) for i, values in enumerate(rows.T)]
    names = list(X.columns)
    counts = Counter(map(name_key, names))
    if duplicates := [name for name in names if counts[name_key(name)] > 1]:
        raise ValueError(
            f"'X' must have distinct column names (got {duplicates[:1]} twice)"
        )
    if 0 in X.shape:
        raise ValueError(f"'X' must have rows and columns (got shape {X.shape})")
    columns = []
    for position, name in enumerate(names):
        column = X.iloc[:, position] if hasattr(X, 'iloc') else X[name]
        values = np.asarray(column.to_numpy())
        if values.ndim != 1:
            raise TypeError(
                f'column {name!r} must hold one value per row (got {column.dtype})'
            )
        is_category = str(column.dtype).lower().startswith(_CATEGORIES)
        columns.append((name, to_native(values), 'category' if is_category else None))
    return columns


def columns_of(rows: Any, index: Any = slice(None)) -> dict[Any, Any]:
    """Return the columns of some rows of a table, by name."""
    if is_frame(rows):
        rows = {name: values for name, values, _ in read_columns(rows)}
    if isinstance(rows, dict):
        return {name: column[index] for name, column in rows.items()}
    rows = rows[index]
    rows = rows.toarray() if hasattr(rows, 'toarray') else rows
    return {f'x{i}': column for i, column in enumerate(np.asarray(rows).T)}


def row_labels(X: Any, num_rows: int) -> Any:
    """Return the labels of the rows of a DataFrame, else their positions."""
    labels = np.arange(num_rows)
    return to_native(np.array(getattr(X, 'index', labels))) if is_frame(X) else labels


def to_native(values: Any) -> Any:
    """Convert to this machine's byte order, and to at most double precision."""
    if values.dtype.kind == 'f' and values.dtype.itemsize > 8:
        return values.astype(np.float64)
    if not values.dtype.isnative:
        return values.astype(values.dtype.newbyteorder('='))
    return values


def check_unmasked(values: Any, name: str) -> None:
    """Raise if an array has masked values, which conversions would ignore."""
    if np.ma.is_masked(values):
        num_masked = int(np.ma.getmaskarray(values).sum())
        raise ValueError(
            f"'{name}' must have no masked values (got {num_masked}): fill them, or "
            'drop their rows'
        )


def distinct(names: list[Any], reserved: set[Any]) -> list[Any]:
    """Append underscores to names that are taken or repeated, until they differ."""
    present = set(reserved)
    repeated = []
    for position, name in enumerate(names):
        if name in present:
            repeated.append(position)
        present.add(name)
    renamed = list(names)
    for position in repeated:
        name = names[position]
        while name in present:
            name += '_'
        present.add(name)
        renamed[position] = name
    return renamed
