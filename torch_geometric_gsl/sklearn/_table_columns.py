"""Read a column of a table, whatever holds its values."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import date, timedelta, timezone
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

#: The kinds of columns that become numbers.
NUMBERS = ('numbers', 'durations', 'dates')
_SECOND = np.timedelta64(1, 's')


class Read(NamedTuple):
    """The kind of a column, one of :obj:`NUMBERS` or a category, and its content.

    That is numbers, :obj:`nan` where one is missing, with the precision in which they
    were rounded, or texts of values of some types, :obj:`None` where one is missing.
    """

    kind: str
    content: Any
    types: Any = ()
    dtype: Any = np.dtype(np.float64)


def read_column(values: Any, where: str, expected: str | None = None) -> Read:
    """Read a column as what it holds, or as the expected kind."""
    kind = {'m': 'durations', 'M': 'dates'}.get(values.dtype.kind, 'numbers')
    is_plain = values.dtype.kind in 'iufmM' and expected in (None, kind)
    if is_plain and not np.isnan(values).all():
        return Read(kind, _finite(_to_float(values), where), (), _precision(values))
    # As plain values, times would lose their unit.
    items = list(values) if values.dtype.kind in 'mM' else values.tolist()
    items = [None if _is_missing(item) else item for item in items]
    known = [item for item in items if item is not None]
    kinds = {_kind(item, where) for item in known}
    kind = expected or (min(kinds) if len(kinds) == 1 else 'category')
    if kind in NUMBERS:
        # Numbers may come as texts or flags, but nothing else as something else.
        if kinds - {kind}:
            items = [_parsed(item, kind, where) for item in items]
        numbers = _finite(_gather(items, kind), where)
        return Read(kind, numbers, (), _precision(np.array(known)))
    texts = [None if item is None else _text(item) for item in items]
    return Read('category', texts, sorted({type(item).__name__ for item in known}))


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ == 'NAType':
        return True
    return isinstance(value, Hashable) and bool(value != value)


def _kind(item: Any, where: str) -> str:
    """Return the kind of a value; raise if it is none that a table holds."""
    if isinstance(item, timedelta | np.timedelta64):
        return 'durations'
    if isinstance(item, date | np.datetime64):
        return 'dates'
    if isinstance(item, complex) or not isinstance(item, Hashable):
        raise TypeError(
            f'{where} must hold numbers, texts, booleans, dates or durations: an '
            f'argument must be a string or a real number (got {type(item).__name__})'
        )
    is_number = isinstance(item, Number) and not isinstance(item, bool)
    return 'numbers' if is_number else 'category'


def _text(item: Any) -> str:
    """Return the text of a category: that of 1 for 1.0, and of True for True."""
    if isinstance(item, bool) or not isinstance(item, Number):
        return str(item)
    number: Any = item
    try:
        whole = int(number)
    except OverflowError:  # It is infinite.
        return str(item)
    return str(whole) if whole == number else repr(float(number))


def _parsed(item: Any, expected: str, where: str) -> Any:
    if item is None or _kind(item, where) == expected:
        return item
    if expected == 'numbers' and isinstance(item, str | bool | np.bool_):
        try:
            return float(item)
        except ValueError:
            pass
    raise ValueError(f'{where} must hold {expected}, as in training (got {item!r})')


def _gather(items: list[Any], kind: str) -> Any:
    """Return items of one kind as numbers."""
    if kind == 'numbers':
        return np.array([_number(item) for item in items], dtype=np.float64)
    if kind == 'durations':
        return _to_float(np.array(items, dtype='timedelta64[us]'))
    # A time without a zone is taken to be one in UTC.
    dates = [
        item.astimezone(timezone.utc).replace(tzinfo=None)
        if getattr(item, 'tzinfo', None) is not None
        else item
        for item in items
    ]
    return _to_float(np.array(dates, dtype='datetime64[us]'))


def _number(item: Any) -> float:
    if item is None:
        return np.nan
    try:
        return float(item)
    except OverflowError:
        return np.inf


def _to_float(values: Any) -> Any:
    """Return numbers in double precision; of times these are seconds."""
    if values.dtype.kind == 'M':
        values = values - np.datetime64(0, 's')
    if values.dtype.kind == 'm':
        return values / _SECOND
    return values.astype(np.float64)


def _precision(values: Any) -> Any:
    return values.dtype if values.dtype.kind == 'f' else np.dtype(np.float64)


def _finite(numbers: Any, where: str) -> Any:
    """Raise unless numbers are finite or missing."""
    bad = np.isinf(numbers)
    if bad.any():
        place = int(bad.argmax())
        raise ValueError(
            f'{where} must hold finite numbers (got infinity, inf, in row {place})'
        )
    return numbers
