"""Read a table of features and labels from an ``.npz`` file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from torch_geometric_gsl.datasets._io.labels import MISSING, check_labels, encode
from torch_geometric_gsl.datasets._io.safe_npz import open_npz


def read_npz(path: Path, label: str | None) -> Data:
    """Read a matrix of features and a vector of labels."""
    label = 'y' if label is None else label
    with open_npz(path, _damaged) as reads:
        others = [name for name in reads if name != label]
        feature = others[0] if len(others) == 1 else 'x'
        arrays = {name: reads[name]() for name in (feature, label) if name in reads}
    for name, what in ((label, 'labels'), (feature, 'features')):
        if name not in arrays:
            raise ValueError(
                f"'{path}' must have an array '{name}' of {what} (got {list(reads)})"
            )
    x, y = arrays[feature], arrays[label]
    if x.dtype.kind not in 'biuf' or x.ndim != 2 or 0 in x.shape:
        raise ValueError(
            f"'{feature}' in '{path}' must be a matrix of numbers, one row a node "
            f'(got {x.dtype} of shape {x.shape})'
        )
    where = f"'{label}' in '{path}'"
    check_labels(y, where, len(x), kinds='biuU')
    for place, name in enumerate(y.tolist()):
        if str(name).strip().lower() in MISSING:
            raise ValueError(
                f'{where} must not be missing (got {name!r} for row {place})'
            )
    numbers, class_names = encode(y.tolist(), where)
    # Values that are too large become infinite, and are refused as such.
    with np.errstate(over='ignore'):
        features = torch.from_numpy(x.astype(np.float64))
    return Data(x=features, y=numbers, class_names=class_names)


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(f"'{path}' must hold arrays of numbers ({reason})")
