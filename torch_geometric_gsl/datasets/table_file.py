from __future__ import annotations

import csv
import math
import pickle
import re
import zipfile
import zlib
from array import array
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from torch_geometric_gsl._checks import check_absent, check_features, check_flag
from torch_geometric_gsl.datasets._damage import check_memory
from torch_geometric_gsl.datasets._labels import (
    MISSING,
    check_labels,
    encode,
    encode_named,
    to_number,
)
from torch_geometric_gsl.datasets._standardize import standardize_columns

#: The kinds of files that :func:`read_table_file` reads.
SUFFIXES: tuple[str, ...] = ('.csv', '.npz', '.pt')
_MASKS = ('train_mask', 'val_mask', 'test_mask')
# What torch must be allowed to load; of these PyG itself allows only the first.
_PARTS_OF_DATA: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
# What numpy, torch and zipfile raise on files that are not what they expect.
_DAMAGED = (
    *(AttributeError, EOFError, KeyError, OSError, RuntimeError),
    *(TypeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile, zlib.error),
)


def read_table_file(
    path: str | Path, label: str | None = None, standardize: bool | None = None
) -> Data:
    r"""Reads features and labels from a file, as
    :func:`~torch_geometric_gsl.datasets.load_dataset` describes.

    Args:
        path (str or pathlib.Path): The file, of a kind in :obj:`SUFFIXES`.
        label (str, optional): The column (:obj:`.csv`) or array (:obj:`.npz`) of the
            labels. (default: :obj:`None`)
        standardize (bool, optional): Whether to scale every feature to zero mean and
            unit variance; if :obj:`None`, only those of a :obj:`.csv` file.
            (default: :obj:`None`)

    Returns:
        torch_geometric.data.Data: Features :obj:`x`, labels :obj:`y`,
        :obj:`class_names`, and the masks of a split if the file has them.

    Raises:
        ValueError: If the file is not what it must be; the text tells where.
        OSError: If the file cannot be opened.
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if standardize is None:
        standardize = suffix == '.csv'
    check_flag(standardize, 'standardize')
    columns: list[str] = []
    if suffix == '.csv':
        data, columns = _read_csv(path, label)
    elif suffix == '.npz':
        data = _read_npz(path, label)
    else:
        check_absent(label, 'label', "for a '.pt' file, whose labels are its 'y'")
        data = _read_data(path)
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
    """Returns the data, and the names of the columns of its features."""
    number = 0
    values = array('d')
    labels: list[str] = []
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            column = _label_column(path, header, label)
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


def _label_column(path: Path, header: list[str], label: str | None) -> int:
    """Checks the names of the columns, and returns the place of the labels."""
    if not header:
        raise ValueError(f"'{path}' must begin with the names of its columns")
    if '' in header:
        raise ValueError(
            f"'{path}' must name every column (column {header.index('') + 1} has no "
            'name: is it an index that was saved along?)'
        )
    if twice := sorted({name for name in header if header.count(name) > 1}):
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
    """Returns the features and the label of a row."""
    if len(fields) != len(header):
        raise ValueError(
            f'{where} must have {len(header)} fields, as the header has '
            f'(got {len(fields)})'
        )
    row = [to_number(field) for field in fields]
    label = fields[column].strip()
    row.pop(column)
    if label.lower() not in MISSING and all(map(math.isfinite, row)):
        return row, label
    place = next(
        i
        for i, field in enumerate(map(str.strip, fields))
        if field.lower() in MISSING
        or (i != column and not math.isfinite(to_number(field)))
    )
    if fields[place].strip().lower() in MISSING:
        raise ValueError(
            f"{where}: '{header[place]}' must not be missing (got {fields[place]!r})"
        )
    raise ValueError(
        f"{where}: '{header[place]}' must be a finite number (got {fields[place]!r}); "
        'encode text as numbers, or leave the column out'
    )


def _read_npz(path: Path, label: str | None) -> Data:
    label = 'y' if label is None else label
    with path.open('rb') as stream:
        try:
            with np.load(stream, allow_pickle=False) as file:
                names = list(file)
                others = [name for name in names if name != label]
                feature = others[0] if len(others) == 1 else 'x'
                arrays = {name: file[name] for name in (feature, label) if name in file}
        except _DAMAGED as error:
            # NumPy's next sentence may advise to load the file all the same.
            reason = str(error).split('. ')[0]
            raise ValueError(
                f"'{path}' must hold arrays of numbers ({reason})"
            ) from error
    for name, what in ((label, 'labels'), (feature, 'features')):
        if name not in arrays:
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
    check_labels(y, where, len(x), kinds='biuU')
    for place, name in enumerate(y.tolist()):
        if str(name).strip().lower() in MISSING:
            raise ValueError(
                f'{where} must not be missing (got {name!r} for row {place})'
            )
    numbers, class_names = encode(y.tolist(), where)
    # What is too large becomes infinite, and is told as such.
    with np.errstate(over='ignore'):
        x = torch.from_numpy(x.astype(np.float64))
    return Data(x=x, y=numbers, class_names=class_names)


def _read_data(path: Path) -> Data:
    # Leaving the context forbids what it allowed, and must not forbid more.
    allowed = torch.serialization.get_safe_globals()
    parts = [part for part in _PARTS_OF_DATA if part not in allowed]
    with path.open('rb') as stream:
        try:
            with torch.serialization.safe_globals(parts):
                data = torch.load(stream, map_location='cpu', weights_only=True)
        except _DAMAGED as error:
            check_memory(error, path.stat().st_size)
            # Not all of torch's text, which advises to trust the file.
            found = re.search(r'GLOBAL (\S+)', str(error))
            reason = f'it asks for {found[1]}' if found else type(error).__name__
            raise ValueError(
                f"'{path}' must hold a Data object, and nothing that could run code "
                f'when loaded ({reason})'
            ) from error
    if not isinstance(data, Data):
        raise ValueError(
            f"'{path}' must hold a Data object (got {type(data).__name__})"
        )
    x = _read_features(data, path)
    if not isinstance(data.y, Tensor):
        raise ValueError(
            f"'y' in '{path}' must be a tensor (got {type(data.y).__name__})"
        )
    where = f"'y' in '{path}'"
    try:
        y = data.y.detach().numpy()
    except (RuntimeError, TypeError) as error:
        kind = f'{data.y.dtype}, {data.y.layout}, on {data.y.device}'
        raise ValueError(
            f'{where} must be a dense tensor of integers (got {kind})'
        ) from error
    check_labels(y, where, x.size(0), kinds='iu')
    if y.min(initial=0) < 0:
        raise ValueError(f'{where} must not be negative (got {y.min()})')
    given = getattr(data, 'class_names', None)
    numbers, class_names = encode_named(y.tolist(), given, path)
    masks = _read_masks(data, x.size(0), path)
    return Data(x=x, y=numbers, class_names=class_names, **masks)


def _read_features(data: Data, path: Path) -> Tensor:
    try:
        x = data.x  # That of an old PyG has none.
        check_features(x)
        x = cast(Tensor, x).detach()
        if x.size(1) == 0 or x.is_meta:
            kind = f'{list(x.shape)} on {x.device}'
            raise ValueError(f"'x' must have channels and values (got {kind})")
        if x.layout != torch.strided:
            # Loading does not check where its entries are.
            parts = x.crow_indices(), x.col_indices(), x.values()
            torch.sparse_csr_tensor(*parts, size=x.shape, check_invariants=True)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"'{path}' must hold node features: {error}") from error
    return x


def _read_masks(data: Data, num_nodes: int, path: Path) -> dict[str, Any]:
    """The masks of a split that comes with the data, or none."""
    found = {name: data[name] for name in _MASKS if name in data}
    if found and len(found) < len(_MASKS):
        raise ValueError(
            f"'{path}' must hold all of {list(_MASKS)} or none (got {list(found)})"
        )
    for name, mask in found.items():
        where = f"'{name}' in '{path}'"
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise ValueError(f'{where} must be a boolean tensor (got {kind})')
        if mask.is_meta or mask.layout != torch.strided or mask.shape != (num_nodes,):
            raise ValueError(
                f'{where} must be dense and of shape [{num_nodes}], those of one split '
                f'(got {mask.layout} of shape {list(mask.shape)} on {mask.device})'
            )
        if not mask.any():
            raise ValueError(f'{where} must choose at least one node (got none)')
    for first, second in combinations(found, 2):
        if shared := int((found[first] & found[second]).sum()):
            raise ValueError(
                f"'{first}' and '{second}' in '{path}' must not share nodes "
                f'(got {shared} in both)'
            )
    return found


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
