from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_absent, check_flag
from torch_geometric_gsl.datasets._io.csv_file import read_csv
from torch_geometric_gsl.datasets._io.data_file import read_data
from torch_geometric_gsl.datasets._io.npz_file import read_npz

#: The kinds of files that :func:`read_table_file` reads.
SUFFIXES: tuple[str, ...] = ('.csv', '.npz', '.pt')


def read_table_file(
    path: str | Path, label: str | None = None, standardize: bool | None = None
) -> Data:
    """Read features and labels as :func:`load_dataset` does, if it is given a path."""
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if standardize is None:
        standardize = suffix == '.csv'
    check_flag(standardize, 'standardize')
    columns: list[str] = []
    if suffix == '.csv':
        data, columns = read_csv(path, label)
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
