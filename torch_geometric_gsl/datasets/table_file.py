from __future__ import annotations

import re
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
from torch_geometric_gsl.datasets._csv_file import read_csv
from torch_geometric_gsl.datasets._data_file import read_data
from torch_geometric_gsl.datasets._labels import (
    TASKS,
    check_labels,
    find_missing,
    read_targets,
)

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
    standardize = suffix == '.csv' if standardize is None else standardize
    check_flag(standardize, 'standardize')
    columns: list[str] = []
    if suffix == '.csv':
        data, columns = read_csv(path, label, task, missing)
    elif suffix == '.npz':
        data = _read_npz(path, label, task, missing)
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


def _read_npz(
    path: Path, label: str | None, task: str | None, missing: Sequence[str] | None
) -> Data:
    """Read a matrix of features and a vector of labels; nothing is unpickled."""
    label = 'y' if label is None else label
    with path.open('rb') as stream:
        try:
            with np.load(stream, allow_pickle=False) as archive:
                others = [name for name in archive.files if name != label]
                feature = others[0] if len(others) == 1 else 'x'
                found = {feature, label} & set(archive.files)
                # A member that is no array is given as bytes.
                arrays = {name: np.asarray(archive[name]) for name in found}
        except MemoryError:
            raise
        except Exception as error:
            # NumPy's next sentence may advise to load the file all the same.
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
            f"'{feature}' in '{path}' must be a matrix of numbers, one row a node "
            f'(got {x.dtype} of shape {x.shape})'
        )
    where = f"'{label}' in '{path}'"
    check_labels(y, where, len(x), 'biuU', task)
    labels = y.tolist()
    if (unknown := find_missing(labels, missing)) is not None:
        place, name = unknown
        raise ValueError(f'{where} must not be missing (got {name!r} for row {place})')
    # Values that are too large become infinite, and are refused as such.
    with np.errstate(over='ignore'):
        kind = np.float32 if x.dtype == np.float32 else np.float64
        features = torch.from_numpy(x.astype(kind))
    return Data(x=features, **read_targets(labels, where, task))


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
