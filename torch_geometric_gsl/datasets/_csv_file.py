"""Read a table from a ``.csv`` file.

By Python's own reader: that of pandas fills short rows, accepts stray quotes, and does
not tell the lines of rows with line breaks, and that of NumPy knows no quotes.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets._labels import (
    MISSING,
    find_missing,
    read_targets,
    to_number,
)


def read_csv(
    path: Path, label: str | None, task: str | None, missing: Sequence[str] | None
) -> tuple[Data, list[str]]:
    """Read numbers, and a column of labels, below a line of names.

    Returns:
        The data, and the names of the features.
    """
    line = 0
    values, lines = array('d'), array('q')
    labels: list[str] = []
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            column = _find_label(path, header, label)
            line = reader.line_num
            for fields in reader:
                if fields:  # Blank lines have none.
                    values.extend(_read_row(path, line + 1, header, fields, column))
                    labels.append(fields[column])
                    lines.append(_line_of(line + 1, fields, column))
                line = reader.line_num
    except csv.Error as error:
        raise ValueError(f"'{path}', after line {line}: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"'{path}' must be text in UTF-8 ({error}; line {_find_damage(path)})"
        ) from error
    if not labels:
        raise ValueError(f"'{path}' must have rows below its header (got none)")
    if (unknown := find_missing(labels, missing)) is not None:
        place, name = unknown
        raise ValueError(
            f"'{path}', line {lines[place]}: '{label}' must not be missing (got "
            f"{name!r}); 'missing' tells which texts are, should it name a class"
        )
    where = f"the column '{label}' of '{path}'"
    targets = read_targets([name.strip() for name in labels], where, task)
    x = torch.frombuffer(values, dtype=torch.float64).view(len(labels), -1)
    header.pop(column)
    return Data(x=x, **targets), header


def _line_of(first: int, fields: list[str], column: int) -> int:
    """Return the line of a field: those before it may hold ends of lines."""
    before = ','.join([*fields[:column], 'x'])
    return first + len(re.findall(r'\r\n|\r|\n', before))


def _find_damage(path: Path) -> int:
    """Return the first line that is no text in UTF-8."""
    with path.open(encoding='utf-8', errors='replace') as file:
        return next((n for n, line in enumerate(file, 1) if '\ufffd' in line), 0)


def _find_label(path: Path, header: list[str], label: str | None) -> int:
    """Return the place of the labels among columns whose names are unique."""
    twice = sorted(name for name, count in Counter(header).items() if count > 1)
    if not header:
        reason = f"'{path}' must begin with the names of its columns"
    elif '' in header:
        reason = (
            f"'{path}' must name every column (column {header.index('') + 1} has no "
            'name: is it an index that was saved along?)'
        )
    elif twice:
        reason = f"'{path}' must give each column its own name (got {twice})"
    elif label not in header:
        reason = (
            f"'label' must name the column of labels of '{path}', one of {header} "
            f'(got {label!r})'
        )
    elif len(header) < 2:
        reason = f"'{path}' must have features beside the column '{label}'"
    else:
        return header.index(label)
    raise ValueError(reason)


def _read_row(
    path: Path, line: int, header: list[str], fields: list[str], column: int
) -> list[float]:
    """Return the features of a row, which begins at a line."""
    if len(fields) != len(header):
        raise ValueError(
            f"'{path}', line {line} must have {len(header)} fields, as the header has "
            f'(got {len(fields)})'
        )
    row = [to_number(field) for field in fields]
    for place, value in enumerate(row):
        if not math.isfinite(value) and place != column:
            field = fields[place]
            where = f"'{path}', line {_line_of(line, fields, place)}: '{header[place]}'"
            if field.strip().lower() in MISSING:
                raise ValueError(f'{where} must not be missing (got {field!r})')
            raise ValueError(
                f'{where} must be a finite number (got {field!r}); '
                'encode text as numbers, or leave the column out'
            )
    del row[column]
    return row
