"""Check the labels of a user's table, and count its classes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

#: Texts, in lower case, that stand for an unknown value.
MISSING = ('', '?', 'na', 'n/a', 'nan', 'none', 'null')
# Up to so many classes a table may have, however rare they are.
_FEW_CLASSES = 20


def check_labels(y: NDArray[Any], where: str, num_nodes: int, kinds: str) -> None:
    """Raise unless labels are a vector with one entry for each node."""
    if y.dtype.kind not in kinds or y.shape != (num_nodes,):
        raise ValueError(
            f'{where} must be a vector of {num_nodes} classes, one for each row of the '
            f'features (got {y.dtype} of shape {y.shape})'
        )


def encode(labels: Sequence[Any], where: str) -> tuple[Tensor, list[str]]:
    """Count classes in the order of their numbers, or else of their names.

    Labels are numbers if all of them are, and none has leading zeros as a code has.
    Numbers are compared to the last digit: ``1`` and ``1.0`` are one class.
    """
    names = dict.fromkeys(labels)
    if all(math.isfinite(to_number(name)) for name in names):
        numbers = {name: _to_whole(name) for name in names}
        if broken := [name for name, number in numbers.items() if number is None]:
            raise ValueError(
                f'{where} must be classes, not measured numbers (got {broken[0]})'
            )
        if not any(re.match(r'\s*[+-]?0\d', str(name)) for name in names):
            labels = [numbers[name] for name in labels]
    sizes = Counter(labels)
    if len(sizes) < 2:
        raise ValueError(f'{where} must have at least two classes (got {set(sizes)})')
    # A number to predict, or the name of each row, is one that no two rows share.
    single = sum(size == 1 for size in sizes.values())
    if len(sizes) > _FEW_CLASSES and 2 * single > len(sizes):
        raise ValueError(
            f'{where} must be classes, which rows share (got {len(sizes)} classes in '
            f'{len(labels)} rows, {single} of them with one row only: is it a number '
            'to predict, or the name of each row?)'
        )
    place = {name: i for i, name in enumerate(sorted(sizes))}
    return torch.tensor([place[name] for name in labels]), list(map(str, place))


def to_number(field: Any) -> float:
    """Return the number that a field holds; NaN if it holds none."""
    if isinstance(field, str) and '_' in field:  # Python would read past it.
        return math.nan
    try:
        return float(field)
    except ValueError:
        return math.nan


def _to_whole(name: Any) -> int | None:
    """Return the whole number that a finite one is, to the last digit, or none."""
    if isinstance(name, int):
        return name
    try:
        number = Decimal(name)
    except InvalidOperation:  # Its exponent has more than 18 digits.
        return None
    return int(number) if number == number.to_integral_value() else None
