from __future__ import annotations

import csv
import math
from array import array
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_absent, check_flag
from torch_geometric_gsl.datasets._io.data_file import read_data
from torch_geometric_gsl.datasets._io.labels import MISSING, encode, to_number
from torch_geometric_gsl.datasets._io.npz_file import read_npz

#: The kinds of files that :func:`read_table_file` reads.
SUFFIXES: tuple[str, ...] = ('.csv', '.npz', '.pt')


def read_table_file(
    path: str | Path, label: str | None = None, standardize: bool | None = None
) -> Data:
    """Read features and labels as :func:`load_dataset` does if given a path."""
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if standardize is None:
        standardize = suffix == '.csv'
    check_flag(standardize, 'standardize')
    columns: list[str] = []
    if suffix == '.csv':
        data, columns = _read_csv(path, label)
    elif suffix == '.npz':
        data = read_npz(path, label)
    else:
        check_absent(label, 'label', "for a '.pt' file, whose labels are its 'y'")
        data = read_data(path)
    x = cast(Tensor, data.x)
    if standardize:
        if x.layout != torch.strided:
            raise ValueError(
                f"'standardize' must be False for '{path}', whose features are sparse: "
                'they would be dense (got True)'
            )
        x = torch.from_numpy(standardize_columns(x.double().numpy()))
    data.x = x.float()
    _check_finite(data.x, path, columns)
    return data


def _read_csv(path: Path, label: str | None) -> tuple[Data, list[str]]:
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
                    row = _read_row(f"'{path}', line {number}", header, fields, column)
                    labels.append(fields[column].strip())
                    del row[column]
                    values.extend(row)
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
) -> list[float]:
    """Return the numbers of a row, and any number for its label."""
    if len(fields) != len(header):
        raise ValueError(
            f'{where} must have {len(header)} fields, as the header has '
            f'(got {len(fields)})'
        )
    row = [to_number(field) for field in fields]
    row[column] = math.nan if fields[column].strip().lower() in MISSING else 0.0
    for name, field, value in zip(header, fields, row, strict=True):
        if not math.isfinite(value):
            if field.strip().lower() in MISSING:
                raise ValueError(
                    f"{where}: '{name}' must not be missing (got {field!r})"
                )
            raise ValueError(
                f"{where}: '{name}' must be a finite number (got {field!r}); "
                'encode text as numbers, or leave the column out'
            )
    return row


def standardize_columns(x: NDArray[Any]) -> NDArray[Any]:
    """Scale columns to zero mean and unit variance; constant ones become zero.

    A column that is not finite, or whose variance overflows, stays as it is.
    """
    # A constant column's deviation may be a rounding error rather than zero.
    constant = (x.min(axis=0) == x.max(axis=0)) & np.isfinite(x[0])
    with np.errstate(over='ignore', invalid='ignore'):
        deviation = x.std(axis=0)
        # Also where all squares underflow to zero.
        scale = np.where(constant | (deviation == 0), 1.0, deviation)
        result = np.where(constant, 0.0, (x - x.mean(axis=0)) / scale)
    return np.where(np.isfinite(deviation) | constant, result, x)


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
