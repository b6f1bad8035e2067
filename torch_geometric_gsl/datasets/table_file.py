from __future__ import annotations

import csv
import math
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_absent, check_flag, check_option
from torch_geometric_gsl._columns import measure_columns, scale_columns
from torch_geometric_gsl.datasets._io.data_file import read_data
from torch_geometric_gsl.datasets._io.labels import (
    MISSING,
    TASKS,
    find_missing,
    read_targets,
    to_number,
)
from torch_geometric_gsl.datasets._io.npz_file import read_npz

#: The kinds of files that :func:`read_table_file` reads.
SUFFIXES: tuple[str, ...] = ('.csv', '.npz', '.pt')


def read_table_file(
    path: str | Path,
    label: str | None = None,
    standardize: bool | None = None,
    task: str | None = None,
    missing: Sequence[str] | None = None,
) -> Data:
    """Read features and labels as :func:`load_dataset` does if given a path."""
    if task is not None:
        check_option(task, TASKS, 'task')
    if isinstance(missing, str):
        raise TypeError("'missing' must be a sequence of texts (got a str)")
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if standardize is None:
        standardize = suffix == '.csv'
    check_flag(standardize, 'standardize')
    columns: list[str] = []
    if suffix == '.csv':
        data, columns = _read_csv(path, label, task, missing)
    elif suffix == '.npz':
        data = read_npz(path, label, task, missing)
    else:
        check_absent(label, 'label', "for a '.pt' file, whose labels are its 'y'")
        check_absent(missing, 'missing', "for a '.pt' file, whose labels are numbers")
        data = read_data(path, task)
    x = cast(Tensor, data.x)
    if standardize:
        if x.layout != torch.strided:
            raise ValueError(
                f"'standardize' must be False for '{path}', whose features are sparse: "
                'they would be dense (got True)'
            )
        # Rounding is told from values by the precision of the file.
        is_single = x.dtype == torch.float32
        rows = x.numpy() if is_single else x.double().numpy()
        x = torch.from_numpy(standardize_columns(rows))
    data.x = x.float()
    _check_finite(data.x, path, columns)
    return data


def _read_csv(
    path: Path, label: str | None, task: str | None, missing: Sequence[str] | None
) -> tuple[Data, list[str]]:
    """Read numbers, and a column of labels, below a line of names."""
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
    if (found := find_missing(labels, missing)) is not None:
        place, name = found
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
    path: Path, line: int, header: list[str], fields: list[str], column: int
) -> list[float]:
    """Return the features of a row, which begins at a line."""
    if len(fields) != len(header):
        raise ValueError(
            f"'{path}', line {line} must have {len(header)} fields, as the header has "
            f'(got {len(fields)})'
        )
    row = []
    for place, (name, field) in enumerate(zip(header, fields, strict=True)):
        if place == column:
            continue
        value = to_number(field)
        if not math.isfinite(value):
            where = f"'{path}', line {_line_of(line, fields, place)}: '{name}'"
            if field.strip().lower() in MISSING:
                raise ValueError(f'{where} must not be missing (got {field!r})')
            raise ValueError(
                f'{where} must be a finite number (got {field!r}); '
                'encode text as numbers, or leave the column out'
            )
        row.append(value)
    return row


def standardize_columns(x: NDArray[Any]) -> NDArray[Any]:
    """Scale columns to zero mean and unit variance; constant ones become zero.

    A column that is not finite stays as it is.
    """
    is_finite = np.isfinite(x).all(axis=0)
    known = np.where(is_finite, x, 0)
    return np.where(is_finite, scale_columns(known, *measure_columns(known)), x)


def _check_finite(x: Tensor, path: Path, columns: list[str]) -> None:
    is_dense = x.layout == torch.strided
    bad = ~(x if is_dense else x.values()).isfinite()
    if not bad.any():
        return
    place = int(bad.nonzero()[0, 1] if is_dense else x.col_indices()[bad][0])
    column = repr(columns[place]) if columns else place
    raise ValueError(
        f"'{path}' must have finite features (got {int(bad.sum())} that are not, or "
        f'are too large for float32, the first in column {column})'
    )
