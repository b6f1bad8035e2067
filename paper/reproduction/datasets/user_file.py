"""Read features and classes from a file, without executing code."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data

SUFFIXES = ('.csv', '.npz')
MASKS = ('train_mask', 'val_mask', 'test_mask')


def read_user_file(path: Path, label: str | None) -> Data:
    """Read a table with a header, whose columns are standardized, or arrays.

    Arrays are a matrix :obj:`x`, classes :obj:`y`, and optionally the masks of a split.

    Raises:
        ValueError: If the file does not hold finite features and classes.
    """
    try:
        arrays = _read_csv(path, label) if path.suffix == '.csv' else _read_npz(path)
        x, y = arrays['x'].astype(np.float64), arrays['y']
        if x.ndim != 2 or x.size == 0 or y.shape != x.shape[:1]:
            raise ValueError(f'features of shape {x.shape} for labels of {y.shape}')
        if not np.isfinite(x).all():
            raise ValueError('features that are not finite')
        class_names, classes = np.unique(y, return_inverse=True)
        if len(class_names) < 2:
            raise ValueError(f'the classes {class_names.tolist()}, less than two')
    except MemoryError:
        raise
    except OSError:
        raise
    except Exception as error:  # A damaged archive may raise any.
        raise ValueError(
            f"'{path}' must hold a row of numbers and a class for each node ({error})"
        ) from error
    if path.suffix == '.csv':
        x = StandardScaler().fit_transform(x)
    masks = {name: torch.from_numpy(arrays[name]) for name in MASKS if name in arrays}
    return Data(
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(classes),
        class_names=[str(name) for name in class_names],
        **masks,
    )


def _read_csv(path: Path, label: str | None) -> dict[str, Any]:
    with path.open(encoding='utf-8-sig', newline='') as file:
        header, *rows = [line for line in csv.reader(file, strict=True) if line]
    names = [name.strip() for name in header]
    if label not in names:
        raise ValueError(f"'label' must be one of the columns {names}, got {label!r}")
    # A row that is too short or too long raises.
    table = np.char.strip(np.array(rows, dtype=np.str_))
    column = names.index(label)
    return {'x': np.delete(table, column, axis=1), 'y': table[:, column]}


def _read_npz(path: Path) -> dict[str, Any]:
    # NumPy leaves a damaged file open.
    with path.open('rb') as stream, np.load(stream, allow_pickle=False) as archive:
        return dict(archive)
