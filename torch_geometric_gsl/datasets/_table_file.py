"""Read features and labels from a user's file, without executing code."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from torch_geometric_gsl._checks import (
    check_absent,
    check_features,
    check_flag,
    check_option,
)
from torch_geometric_gsl._columns import measure_columns, scale_columns
from torch_geometric_gsl._files import load_safely
from torch_geometric_gsl.datasets._labels import (
    MISSING,
    is_measured,
    read_targets,
    to_number,
)

#: The kinds of files that :func:`read_table_file` reads.
SUFFIXES: tuple[str, ...] = ('.csv', '.npz', '.pt')
_MASKS = ('train_mask', 'val_mask', 'test_mask')
# Types that torch may load; PyG itself allows only the first.
_PARTS_OF_DATA: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


class _Table(NamedTuple):
    """The content of a file.

    Columns are the names of the features, if known; the other fields are attributes of
    the data.
    """

    x: Tensor
    labels: list[Any]
    where: str
    columns: Sequence[str]
    rest: dict[str, Any]


def read_table_file(
    path: str | Path,
    label: str | None = None,
    standardize: bool | None = None,
    task: str | None = None,
    missing: Sequence[str] | None = None,
) -> Data:
    """Read features and labels for :func:`load_dataset`."""
    if task is not None:
        check_option(task, ['classification', 'regression'], 'task')
    if isinstance(missing, str):
        raise TypeError("'missing' must be a sequence of strings (got a str)")
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    standardize = suffix == '.csv' if standardize is None else standardize
    check_flag(standardize, 'standardize')
    if suffix == '.csv':
        table = _read_csv(path, label)
    elif suffix == '.npz':
        table = _read_npz(path, 'y' if label is None else label, task)
    else:
        check_absent(label, 'label', "for a '.pt' file, which has its labels in 'y'")
        check_absent(missing, 'missing', "for a '.pt' file, whose labels are numbers")
        table = _read_pt(path, task)
    names = table.rest.get('class_names')
    if names is not None:
        task = 'classification'
    targets = read_targets(table.labels, table.where, task, missing)
    if names is not None:
        targets = _name_classes(targets, table.labels, names, path)
    x = _standardized(table.x, path) if standardize else table.x
    data = Data(x=x.float(), y=targets.pop('y'), **table.rest | targets)
    _check_finite(cast(Tensor, data.x), path, table.columns)
    return data


def read_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the place in the file and the fields of each line."""
    # The reader of pandas pads short rows, and that of NumPy ignores quotes.
    line = 0
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            reader = csv.reader(file, strict=True)
            for fields in reader:
                line = reader.line_num
                yield f"'{path}', line {line}", fields
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(
            f"'{path}', after line {line}, must be text in UTF-8 with commas ({error})"
        ) from error


def check_width(where: str, fields: list[str], width: int, what: str) -> None:
    """Raise unless a line has this many fields."""
    if len(fields) != width:
        raise ValueError(f'{where} must have {width} fields{what} (got {len(fields)})')


def _read_csv(path: Path, label: str | None) -> _Table:
    rows, labels, lines = [], [], read_lines(path)
    header = [name.strip() for name in next(lines, ('', []))[1]]
    column = _find_label(path, header, label)
    for where, fields in lines:
        if fields:  # Skip blank lines.
            rows.append(_read_row(where, header, fields, column))
            labels.append(fields[column].strip())
    if not rows:
        raise ValueError(f"'{path}' must have rows below its header (got none)")
    where = f"the column '{header.pop(column)}' of '{path}'"
    return _Table(torch.tensor(rows, dtype=torch.float64), labels, where, header, {})


def _find_label(path: Path, header: list[str], label: str | None) -> int:
    """Return the index of the label column; check the names of all columns."""
    if len(header) != len({*header} - {''}) or len(header) < 2:
        raise ValueError(
            f"'{path}' must start with distinct names of two or more columns "
            f'(got {header})'
        )
    if label not in header:
        raise ValueError(
            f"'label' must be the label column of '{path}', one of {header} "
            f'(got {label!r})'
        )
    return header.index(label)


def _read_row(
    where: str, header: list[str], fields: list[str], column: int
) -> list[float]:
    """Return the features of a row, without its label."""
    check_width(where, fields, len(header), ', like the header')
    row = [to_number(field) for field in fields]
    for place, value in enumerate(row):
        if not math.isfinite(value) and place != column:
            is_missing = fields[place].strip().lower() in MISSING
            what = 'not be missing' if is_missing else 'be a finite number'
            raise ValueError(
                f"{where}: '{header[place]}' must {what} (got {fields[place]!r})"
            )
    del row[column]
    return row


def _read_npz(path: Path, label: str, task: str | None) -> _Table:
    """Read a matrix of features and a vector of labels."""
    with path.open('rb') as stream:
        try:
            with np.load(stream, allow_pickle=False) as archive:
                others = [name for name in archive.files if name != label]
                feature = others[0] if len(others) == 1 else 'x'
                found = {feature, label} & set(archive.files)
                # Members that are not arrays are read as bytes.
                arrays = {name: np.asarray(archive[name]) for name in found}
        except MemoryError:
            raise
        except Exception as error:  # Damaged files raise many errors.
            # Drop NumPy's advice to load the file anyway.
            reason = re.split(r'\.\s', str(error))[0] or type(error).__name__
            raise ValueError(
                f"'{path}' must hold arrays of numbers ({reason})"
            ) from error
    for name, what in ((label, 'labels'), (feature, 'features')):
        if name not in arrays:
            names = sorted({*others, *arrays})
            raise ValueError(
                f"'{path}' must have an array '{name}' of {what} (got {names})"
            )
    x, y = arrays[feature], arrays[label]
    if x.dtype.kind not in 'biuf' or x.ndim != 2 or 0 in x.shape:
        raise ValueError(
            f"'{feature}' in '{path}' must be a matrix of numbers, one row per "
            f'node (got {x.dtype} of shape {x.shape})'
        )
    where = f"'{label}' in '{path}'"
    _check_labels(y, where, len(x), 'biuU', task)
    # Too large values become infinite, and raise an error later.
    with np.errstate(over='ignore'):
        kind = np.float32 if x.dtype == np.float32 else np.float64
        return _Table(torch.from_numpy(x.astype(kind)), y.tolist(), where, [], {})


def _read_pt(path: Path, task: str | None) -> _Table:
    """Read a data object written by :func:`torch.save`."""
    # Allow the types for this call only.
    allowed = torch.serialization.get_safe_globals()
    parts = [part for part in _PARTS_OF_DATA if part not in allowed]
    with path.open('rb') as stream, torch.serialization.safe_globals(parts):
        try:
            data: Data = load_safely(stream, path, 'Data object', Data)
        except OSError as error:
            raise ValueError(str(error)) from error
    x, where = _read_features(data, path), f"'y' in '{path}'"
    labels: list[Any] = _dense(data.y, where).tolist()
    _check_labels(np.asarray(labels), where, len(x), 'iu', task)
    rest = {k: data[k] for k in ('class_names', *_MASKS) if data.get(k) is not None}
    is_class = 'class_names' in rest or not is_measured(labels, task)
    if is_class and min(labels, default=0) < 0:
        raise ValueError(f'{where} must not be negative (got {min(labels)})')
    _check_masks({k: v for k, v in rest.items() if k in _MASKS}, len(x), path)
    return _Table(x, labels, where, [], rest)


def _read_features(data: Data, path: Path) -> Tensor:
    try:
        x = data.x  # Data of an old PyG has none.
        check_features(x)
        x = cast(Tensor, x).detach()
        if x.size(1) == 0 or x.is_meta:
            kind = f'{list(x.shape)} on {x.device}'
            raise ValueError(f"'x' must have channels and values (got {kind})")
        if x.layout != torch.strided:
            # Loading does not validate the indices.
            parts = x.crow_indices(), x.col_indices(), x.values()
            torch.sparse_csr_tensor(*parts, size=x.shape, check_invariants=True)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"'{path}' must hold node features: {error}") from error
    return x


def _dense(value: object, where: str) -> Tensor:
    """Return a value, which must be a dense tensor with entries."""
    if not isinstance(value, Tensor):
        raise ValueError(f'{where} must be a tensor (got {type(value).__name__})')
    if value.layout != torch.strided or value.is_meta:
        kind = f'{value.layout} on {value.device}'
        raise ValueError(f'{where} must be dense and hold values (got {kind})')
    return value


def _check_labels(
    y: NDArray[Any], where: str, num_nodes: int, kinds: str, task: str | None
) -> None:
    """Raise unless labels are a vector with one entry per node.

    Floating-point labels must be regression targets.
    """
    if y.dtype.kind == 'f' and y.ndim == 1:
        kinds += 'f' * is_measured(y[np.isfinite(y)].tolist(), task)
    if y.dtype.kind not in kinds or y.shape != (num_nodes,):
        raise ValueError(
            f'{where} must be a vector of {num_nodes} classes, one per row of the '
            f'features (got {y.dtype} of shape {y.shape})'
        )


def _check_masks(masks: dict[str, Any], num_nodes: int, path: Path) -> None:
    """Raise unless masks select disjoint sets of nodes."""
    total = torch.zeros(num_nodes, dtype=torch.long)
    for name, mask in masks.items():
        mask = _dense(mask, f"'{name}' in '{path}'")
        if mask.dtype != torch.bool or mask.shape != (num_nodes,):
            raise ValueError(
                f"'{name}' in '{path}' must be a boolean mask of {num_nodes} nodes "
                f'(got {mask.dtype} of shape {list(mask.shape)})'
            )
        total += mask
    if shared := int((total > 1).sum()):
        raise ValueError(
            f"the masks in '{path}' must not share nodes (got {shared} in two or more)"
        )


def _name_classes(
    targets: dict[str, Any], numbers: list[int], names: Any, path: Path
) -> dict[str, Any]:
    """Name each class, or each number up to the last, without renumbering."""
    counts = len(targets['class_names']), max(numbers) + 1
    if not isinstance(names, list | tuple) or len(names) not in counts:
        raise ValueError(
            f"'class_names' in '{path}' must be a list with one name per class of 'y', "
            f'{counts[0]}, or per number from 0 to {counts[1] - 1} '
            f'(got {names!r:.80})'
        )
    y = targets['y'] if len(names) == counts[0] else torch.tensor(numbers)
    return {'y': y, 'class_names': list(names)}


def _standardized(x: Tensor, path: Path) -> Tensor:
    if x.layout != torch.strided:
        raise ValueError(
            f"'standardize' must be False for '{path}': its features are sparse and "
            'would become dense (got True)'
        )
    # Rounding errors depend on the precision of the file.
    is_single = x.dtype == torch.float32
    return torch.from_numpy(
        standardize_columns(x.numpy() if is_single else x.double().numpy())
    )


def standardize_columns(x: NDArray[Any]) -> NDArray[Any]:
    """Scale columns to zero mean and unit variance; constant ones become zero.

    A column with non-finite values stays unchanged.
    """
    is_finite = np.isfinite(x).all(axis=0)
    known = np.where(is_finite, x, 0)
    return np.where(is_finite, scale_columns(known, *measure_columns(known)), x)


def _check_finite(x: Tensor, path: Path, columns: Sequence[str]) -> None:
    is_dense = x.layout == torch.strided
    bad = ~(x if is_dense else x.values()).isfinite()
    if not bad.any():
        return
    place = int(bad.nonzero()[0, 1] if is_dense else x.col_indices()[bad][0])
    column = repr(columns[place]) if columns else place
    raise ValueError(
        f"'{path}' must have finite features (got {int(bad.sum())} that are not, or "
        f'overflow float32, the first in column {column})'
    )
