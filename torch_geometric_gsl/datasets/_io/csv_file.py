"""Read a table of features and labels from a ``.csv`` file."""

from __future__ import annotations

import csv
import math
from array import array
from collections import Counter
from pathlib import Path

import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets._io.labels import MISSING, encode, to_number


def read_csv(path: Path, label: str | None) -> tuple[Data, list[str]]:
    """Read numbers, and a column of labels, below a line of names."""
    number = 0
    values = array('d')
    labels: list[str] = []
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            column = _find_label(path, header, label)
            for fields in reader:
                number = reader.line_num
                if fields:  # Blank lines have none.
                    where = f"'{path}', line {number}"
                    row, name = _read_row(where, header, fields, column)
                    values.extend(row)
                    labels.append(name)
    except csv.Error as error:
        raise ValueError(f"'{path}', after line {number}: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"'{path}' must be text in UTF-8 ({error})") from error
    if not labels:
        raise ValueError(f"'{path}' must have rows below its header (got none)")
    y, class_names = encode(labels, f"the column '{label}' of '{path}'")
    x = torch.frombuffer(values, dtype=torch.float64).view(len(labels), -1)
    header.pop(column)
    return Data(x=x, y=y, class_names=class_names), header


def _find_label(path: Path, header: list[str], label: str | None) -> int:
    """Return the place of the labels among columns whose names are unique."""
    if not header:
        raise ValueError(f"'{path}' must begin with the names of its columns")
    if '' in header:
        raise ValueError(
            f"'{path}' must name every column (column {header.index('') + 1} has no "
            'name: is it an index that was saved along?)'
        )
    if twice := sorted(name for name, count in Counter(header).items() if count > 1):
        raise ValueError(f"'{path}' must give each column its own name (got {twice})")
    if label not in header:
        raise ValueError(
            f"'label' must name the column of labels of '{path}', one of {header} "
            f'(got {label!r})'
        )
    if len(header) < 2:
        raise ValueError(f"'{path}' must have features beside the column '{label}'")
    return header.index(label)


def _read_row(
    where: str, header: list[str], fields: list[str], column: int
) -> tuple[list[float], str]:
    """Return the features and the label of a row."""
    if len(fields) != len(header):
        raise ValueError(
            f'{where} must have {len(header)} fields, as the header has '
            f'(got {len(fields)})'
        )
    label = fields[column].strip()
    row = [to_number(field) for field in fields]
    row[column] = 0.0  # The label need not be a number.
    if label.lower() in MISSING or not all(map(math.isfinite, row)):
        for name, field, value in zip(header, fields, row, strict=True):
            if field.strip().lower() in MISSING:
                raise ValueError(
                    f"{where}: '{name}' must not be missing (got {field!r})"
                )
            if not math.isfinite(value):
                raise ValueError(
                    f"{where}: '{name}' must be a finite number (got {field!r}); "
                    'encode text as numbers, or leave the column out'
                )
    del row[column]
    return row, label
