"""Convert names, labels and values of tables to plain values, and back."""

from __future__ import annotations

import datetime
from decimal import Decimal
from numbers import Real
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

_PANDAS = ('Interval', 'NAType', 'NaTType', 'Period', 'Timedelta', 'Timestamp')
_DATES = ('datetime', 'date', 'time')
_TYPES: dict[str, Any] = {
    'timedelta': datetime.timedelta,
    'bytes': bytes.fromhex,
    'Decimal': Decimal,
    'UUID': UUID,
}


def encode(value: Any, as_text: bool = False) -> Any:
    """Convert a value to plain ones: a list that begins with the name of its type.

    Raises:
        TypeError: If a file cannot hold the type, unless other values become text.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        return ['numpy', str(value.dtype), int(value.astype(np.int64))]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (str, int, float, bool):
        return value
    name = type(value).__name__
    if isinstance(value, tuple):
        return ['tuple', *(encode(item, as_text) for item in value)]
    if type(value).__module__.partition('.')[0] == 'pandas' and name in _PANDAS:
        return [name, *_encode_pandas(value, name)]
    if name in _DATES:
        # The text has the offset of a time, which has no date for a named zone.
        zone = None if name == 'time' else _named_zone(value)
        return [name, value.isoformat(), zone, getattr(value, 'fold', 0)]
    if isinstance(value, datetime.timedelta):
        return ['timedelta', value.days, value.seconds, value.microseconds]
    if isinstance(value, bytes):
        return ['bytes', value.hex()]
    if isinstance(value, Decimal | UUID):
        return [name, str(value)]
    if as_text and isinstance(value, Real):
        return float(value)  # As a column of fractions is read.
    if as_text or isinstance(value, str):
        return str(value)
    raise TypeError(
        f'a file cannot hold the name or class {value!r} of type {name}: convert it, '
        "such as by '.map(str)'"
    )


def decode(value: Any) -> Any:
    """Restore a value that was encoded."""
    if not isinstance(value, list):
        return value
    name, *values = value
    if name == 'tuple':
        return tuple(map(decode, values))
    if name == 'numpy':
        return np.int64(values[1]).astype(values[0])
    if name in _DATES:
        text, zone, fold = values
        date = getattr(datetime, name).fromisoformat(text)
        return date if zone is None else date.replace(tzinfo=ZoneInfo(zone), fold=fold)
    if name in _PANDAS:
        return _decode_pandas(name, *values)
    return _TYPES[name](*values)


def _named_zone(value: Any) -> str | None:
    """Return the name of a time's zone, of the standard library or of pytz."""
    zone = getattr(value, 'tzinfo', None)
    return getattr(zone, 'key', None) or getattr(zone, 'zone', None)


def _zone_of(value: Any) -> str | float | None:
    """Return the name of a timestamp's zone, or its offset in seconds."""
    if getattr(value, 'tzinfo', None) is None:
        return None
    return _named_zone(value) or float(value.utcoffset().total_seconds())


def _zone(zone: str | float) -> datetime.tzinfo:
    if isinstance(zone, str):
        return ZoneInfo(zone)
    return datetime.timezone(datetime.timedelta(seconds=zone))


def _encode_pandas(value: Any, name: str) -> list[Any]:
    if name in ('NAType', 'NaTType'):
        return []
    if name == 'Interval':
        return [encode(value.left), encode(value.right), value.closed]
    if name == 'Period':
        return [value.ordinal, value.freqstr]
    time = value.asm8  # In UTC.
    return [str(time.dtype), int(time.astype(np.int64)), _zone_of(value)]


def _decode_pandas(name: str, *values: Any) -> Any:
    import pandas

    if name in ('NAType', 'NaTType'):
        return pandas.NA if name == 'NAType' else pandas.NaT
    if name == 'Interval':
        return pandas.Interval(decode(values[0]), decode(values[1]), values[2])
    if name == 'Period':
        return pandas.Period(ordinal=values[0], freq=values[1])
    time = np.int64(values[1]).astype(values[0])
    zone = values[2]
    if name == 'Timedelta':
        return pandas.Timedelta(time)
    if zone is None:
        return pandas.Timestamp(time)
    return pandas.Timestamp(time, tz='UTC').tz_convert(_zone(zone))
