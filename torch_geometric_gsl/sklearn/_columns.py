"""Read the columns of data frames and arrays, and convert them to numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from datetime import date, timedelta, timezone
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_array, validate_data

#: The types of columns that convert to numbers.
NUMBERS = ('numbers', 'durations', 'dates')
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


def _is_gap(value: Any) -> bool:
    """Return whether a value is NaN, NaT or NA."""
    return type(value).__name__ == 'NAType' or bool(value != value)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or NA."""
    return value is None or (isinstance(value, Hashable) and _is_gap(value))


def _name_key(name: Any) -> Any:
    """Return a value that is equal for equal names, also if they are NaN."""
    if isinstance(name, tuple):
        return tuple(map(_name_key, name))
    return _GAP if _is_gap(name) else name


def select_columns(X: Any, names: list[Any]) -> Any:
    """Return the named columns of a DataFrame, in this order.

    Raises:
        ValueError: If the DataFrame lacks a name, or has one twice.
    """
    keys = [_name_key(column) for column in X.columns]
    positions = {key: position for position, key in enumerate(keys)}
    counts = Counter(keys)
    if duplicates := [name for name in names if counts[_name_key(name)] > 1]:
        raise ValueError(
            f"'X' must have distinct column names (got {duplicates} twice)"
        )
    if missing := [name for name in names if _name_key(name) not in positions]:
        raise ValueError(
            f"'X' must have the columns of training (columns are missing: {missing}). "
            "Pass 'X.to_numpy()' for columns in the order of training"
        )
    selected = [positions[_name_key(name)] for name in names]
    if selected == [*range(X.shape[1])]:
        return X
    # Of pandas by position, as a name may be NaN or a tuple.
    return X.iloc[:, selected] if hasattr(X, 'iloc') else X[names]


def store_names(estimator: Any, X: Any, *, reset: bool) -> None:
    """Store the number of columns and their names, or compare them."""
    if not reset or not is_frame(X) or all(isinstance(n, str) for n in X.columns):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return
    # scikit-learn stores strings only, and rejects a mixture of types.
    estimator.n_features_in_ = X.shape[1]
    vars(estimator).pop('feature_names_in_', None)


def read_columns(X: Any) -> list[tuple[Any, Any, str | None]]:
    """Return the names of columns, their values, and their types if declared."""
    if not is_frame(X):
        if isinstance(X, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(X)
            X = np.array(X.data, dtype=object)
            X[mask] = None
        X = X if hasattr(X, 'shape') else np.array(X, dtype=object)
        rows = check_array(X, dtype=None, ensure_all_finite=False)
        return [(i, to_native(values), None) for i, values in enumerate(rows.T)]
    names = list(X.columns)
    counts = Counter(map(_name_key, names))
    if duplicates := [name for name in names if counts[_name_key(name)] > 1]:
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
    """Append underscores to names that are reserved or repeated, until they differ."""
    taken = reserved.union(names)
    seen = set(reserved)
    renamed = []
    for name in names:
        new_name = name
        if name in seen:
            while new_name in taken:
                new_name += '_'
        renamed.append(new_name)
        taken.add(new_name)
        seen.add(name)
    return renamed


class ParsedColumn(NamedTuple):
    """A column: its type, one of :obj:`NUMBERS` or a category, and its values.

    Numbers have :obj:`nan` for missing values; categories have strings of values, or
    :obj:`None`, and the names of the types of the values.
    """

    type: str
    values: Any
    value_types: Any = ()


def parse_column(values: Any, where: str, expected: str | None = None) -> ParsedColumn:
    """Parse a column as the expected type, or infer its type."""
    column_type = {'m': 'durations', 'M': 'dates'}.get(values.dtype.kind, 'numbers')
    is_plain = values.dtype.kind in 'iufmM' and expected in (None, column_type)
    if is_plain and not np.isnan(values).all():
        numbers = _to_float(values)
        _check_finite(numbers, where)
        return ParsedColumn(column_type, numbers)
    # As plain values, times would lose their unit.
    items = list(values) if values.dtype.kind in 'mM' else values.tolist()
    items = [None if is_missing(item) else item for item in items]
    present = [item for item in items if item is not None]
    item_types = {_type_of(item, where) for item in present}
    inferred = min(item_types) if len(item_types) == 1 else 'category'
    column_type = expected or inferred
    if column_type in NUMBERS:
        # Numbers may come as strings or flags; other types must match.
        if item_types - {column_type}:
            items = [_parse_item(item, column_type, where) for item in items]
        numbers = _to_numbers(items, column_type)
        _check_finite(numbers, where)
        return ParsedColumn(column_type, numbers)
    texts = [None if item is None else _text(item) for item in items]
    value_types = sorted({type(item).__name__ for item in present})
    return ParsedColumn('category', texts, value_types)


def _type_of(item: Any, where: str) -> str:
    """Return the type of column of a value; raise if it is not supported."""
    if isinstance(item, timedelta | np.timedelta64):
        return 'durations'
    if isinstance(item, date | np.datetime64):
        return 'dates'
    if isinstance(item, complex) or not isinstance(item, Hashable):
        raise TypeError(
            f'{where} must hold numbers, strings, booleans, dates or durations: an '
            f'argument must be a string or a real number (got {type(item).__name__})'
        )
    is_number = isinstance(item, Number) and not isinstance(item, bool)
    return 'numbers' if is_number else 'category'


def _text(item: Any) -> str:
    """Convert a category to a string, equal for 1, 1.0 and True."""
    if isinstance(item, bool) or not isinstance(item, Number):
        return str(item)
    value: Any = item
    try:
        integer = int(value)
    except OverflowError:  # Infinite.
        return str(item)
    return str(integer) if integer == value else repr(float(value))


def _parse_item(item: Any, expected: str, where: str) -> Any:
    if item is None or _type_of(item, where) == expected:
        return item
    if expected == 'numbers' and isinstance(item, str | bool | np.bool_):
        try:
            return float(item)
        except ValueError:
            pass
    hint = ': use pandas.to_datetime' * (expected == 'dates')
    raise ValueError(
        f'{where} must hold {expected}, as in training (got {item!r}){hint}'
    )


def _to_numbers(items: list[Any], column_type: str) -> Any:
    """Convert values of one type to double precision."""
    if column_type == 'numbers':
        return np.array([_to_number(item) for item in items], dtype=np.float64)
    if column_type == 'durations':
        return _to_float(np.array(items, dtype='timedelta64[us]'))
    # Times without a zone are in UTC.
    dates = [
        item.astimezone(timezone.utc).replace(tzinfo=None)
        if getattr(item, 'tzinfo', None) is not None
        else item
        for item in items
    ]
    return _to_float(np.array(dates, dtype='datetime64[us]'))


def _to_number(item: Any) -> float:
    if item is None:
        return np.nan
    try:
        return float(item)
    except OverflowError:
        return np.inf


def _to_float(values: Any) -> Any:
    """Convert to double precision; times become seconds."""
    if values.dtype.kind == 'M':
        values = values - np.datetime64(0, 's')
    if values.dtype.kind == 'm':
        return values / np.timedelta64(1, 's')
    return values.astype(np.float64)


def _check_finite(numbers: Any, where: str) -> None:
    """Raise unless numbers are finite or missing."""
    is_infinite = np.isinf(numbers)
    if is_infinite.any():
        row = int(is_infinite.argmax())
        raise ValueError(
            f'{where} must hold finite numbers (got infinity, inf, in row {row})'
        )
