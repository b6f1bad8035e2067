"""Classes or regression targets from the labels of a user's table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import torch
from torch import Tensor

#: Strings, in lower case, that mark a missing value.
MISSING = ('', '?', 'na', 'n/a', 'nan', 'none', 'null')
# Strings that never name a class. The others are missing values among numbers only.
_NO_NAMES = ('', '?', 'nan')
# Tables may always have this many classes, however rare.
_FEW_CLASSES = 20


def read_targets(
    labels: Sequence[Any], where: str, task: str | None, missing: Sequence[str] | None
) -> dict[str, Any]:
    """Return regression targets, or classes and their names."""
    _check_known(labels, where, missing)
    if not is_measured(labels, task):
        y, class_names = _encode(labels, where)
        return {'y': y, 'class_names': class_names}
    numbers = [to_number(label) for label in labels]
    for place, number in enumerate(numbers):
        if not math.isfinite(number):
            raise ValueError(
                f"{where} must be finite numbers with task='regression' "
                f'(got {labels[place]!r} for row {place})'
            )
    y = torch.tensor(numbers, dtype=torch.float64)
    spread = y.std(correction=0).nan_to_num(nan=0.0)
    lost = (y.float().double() - y).abs().max()
    return {'y': y.float() if bool(lost <= 1e-4 * spread) else y}


def is_measured(labels: Sequence[Any], task: str | None = None) -> bool:
    """Return whether labels are regression targets rather than classes.

    Without a task, labels with more than two values are regression targets if one is
    not whole, or if there are too many values for classes.
    """
    if task is not None:
        return task == 'regression'
    numbers = [to_number(label) for label in dict.fromkeys(labels)]
    if len(numbers) < 3 or not all(map(math.isfinite, numbers)):
        return False
    is_whole = all(number.is_integer() for number in numbers)
    return not is_whole or _num_single(Counter(labels)) is not None


def to_number(field: Any) -> float:
    """Convert a field to a number, or to NaN."""
    if isinstance(field, str) and '_' in field:  # Python ignores underscores.
        return math.nan
    try:
        return float(field)
    except ValueError:
        return math.nan


def _check_known(
    labels: Sequence[Any], where: str, missing: Sequence[str] | None
) -> None:
    """Raise if a label is missing.

    By default a string such as ``NA`` is a missing label among numbers, and a class
    among other strings, such as ``EU``.
    """
    texts = {label: str(label).strip().lower() for label in dict.fromkeys(labels)}
    if missing is None:
        others = [text for text in texts.values() if text not in MISSING]
        is_text = any(math.isnan(to_number(text)) for text in others)
        missing = _NO_NAMES if is_text else MISSING
    unknown = {text.strip().lower() for text in missing}
    for place, label in enumerate(labels):
        if texts[label] in unknown:
            raise ValueError(
                f'{where} must not be missing (got {label!r} for row {place}); if it '
                "names a class, pass the strings of missing labels as 'missing'"
            )


def _num_single(sizes: Counter[Any]) -> int | None:
    """Count values that occur once, if too many for classes, else return None."""
    # Targets, or names of rows, are rarely shared by two rows.
    single = sum(size == 1 for size in sizes.values())
    return single if len(sizes) > _FEW_CLASSES and 2 * single > len(sizes) else None


def _encode(labels: Sequence[Any], where: str) -> tuple[Tensor, list[str]]:
    """Encode classes in numeric order, or else in alphabetical order.

    Labels are numeric if all are numbers without leading zeros. Numbers are compared
    exactly: ``1`` and ``1.0`` are one class.
    """
    names = dict.fromkeys(labels)
    if all(math.isfinite(to_number(name)) for name in names):
        numbers = {name: _to_whole(name) for name in names}
        if broken := [name for name, number in numbers.items() if number is None]:
            raise ValueError(
                f'{where} must be classes, not real numbers (got {broken[0]}): '
                "pass task='regression' to predict numbers"
            )
        if not any(re.match(r'\s*[+-]?0\d', str(name)) for name in names):
            labels = [numbers[name] for name in labels]
    sizes = Counter(labels)
    if len(sizes) < 2:
        raise ValueError(f'{where} must have at least two classes (got {set(sizes)})')
    if (single := _num_single(sizes)) is not None:
        raise ValueError(
            f'{where} must be classes (got {len(sizes)} of them in {len(labels)} rows, '
            f'{single} in one row only): to predict numbers, pass '
            "task='regression'"
        )
    place = {name: i for i, name in enumerate(sorted(sizes))}
    return torch.tensor([place[name] for name in labels]), list(map(str, place))


def _to_whole(name: Any) -> int | None:
    """Convert a finite number to an exact integer; return None if it is not whole."""
    if isinstance(name, int):
        return name
    try:
        number = Decimal(name)
    except InvalidOperation:  # The exponent has more than 18 digits.
        return None
    return int(number) if number == number.to_integral_value() else None
