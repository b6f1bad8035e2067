"""Read features, labels and a split from a ``.pt`` file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from torch_geometric_gsl._checks import check_features
from torch_geometric_gsl._damage import ERRORS, check_memory, refused_global
from torch_geometric_gsl.datasets._labels import (
    check_labels,
    encode,
    is_measured,
    read_targets,
)

_MASKS = ('train_mask', 'val_mask', 'test_mask')
# Torch must be allowed to load these; of them PyG itself allows only the first.
_PARTS_OF_DATA: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def read_data(path: Path, task: str | None = None) -> Data:
    r"""Read a data object that :func:`torch.save` has written; nothing is executed."""
    data = _load(path)
    x = _read_features(data, path)
    labels = _read_labels(data, len(x), path, task)
    names = getattr(data, 'class_names', None)
    masks = _read_masks(data, len(x), path)
    if names is None and is_measured(labels, task):
        return Data(x=x, **read_targets(labels, f"'y' in '{path}'", task), **masks)
    y, class_names = _name_classes(labels, names, path)
    return Data(x=x, y=y, class_names=class_names, **masks)


def _load(path: Path) -> Data:
    # Leaving the context forbids what it allowed, and must not forbid more.
    allowed = torch.serialization.get_safe_globals()
    parts = [part for part in _PARTS_OF_DATA if part not in allowed]
    with path.open('rb') as stream:
        try:
            with torch.serialization.safe_globals(parts):
                data = torch.load(stream, map_location='cpu', weights_only=True)
        except (*ERRORS, OSError) as error:
            check_memory(error, path.stat().st_size)
            name = refused_global(error)
            reason = f'it asks for {name}' if name else type(error).__name__
            raise ValueError(
                f"'{path}' must hold a Data object, and nothing that could run code "
                f'when loaded ({reason})'
            ) from error
    if not isinstance(data, Data):
        raise ValueError(
            f"'{path}' must hold a Data object (got {type(data).__name__})"
        )
    return data


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


def _read_labels(data: Data, num_nodes: int, path: Path, task: str | None) -> list[Any]:
    where = f"'y' in '{path}'"
    try:
        y: NDArray[Any] = cast(Tensor, data.y).detach().numpy()
    except (AttributeError, RuntimeError, TypeError) as error:
        raise ValueError(
            f'{where} must be a dense tensor of integers (got {_kind_of(data.y)})'
        ) from error
    check_labels(y, where, num_nodes, 'iu', task)
    labels: list[Any] = y.tolist()
    if y.min(initial=0) < 0 and not is_measured(labels, task):
        raise ValueError(f'{where} must not be negative (got {y.min()})')
    return labels


def _kind_of(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    shape = list(value.shape)
    return f'{value.dtype}, {value.layout}, of shape {shape} on {value.device}'


def _name_classes(
    numbers: Sequence[int], names: object, path: Path
) -> tuple[Tensor, list[Any]]:
    """Count classes that may have names, each a name or each number up to the last.

    In the second case the numbers stay, even where a class has no row.
    """
    y, own = encode(numbers, f"'y' in '{path}'")
    if names is None:
        return y, own
    counts = len(own), max(numbers) + 1
    if not isinstance(names, list | tuple) or len(names) not in counts:
        size = f' of {len(names)}' if isinstance(names, list | tuple) else ''
        raise ValueError(
            f"'class_names' in '{path}' must be a list with a name for each of the "
            f"{counts[0]} classes of 'y', or for each number from 0 to {counts[1] - 1} "
            f'(got a {type(names).__name__}{size})'
        )
    return (y if len(names) == len(own) else torch.tensor(numbers)), list(names)


def _read_masks(data: Data, num_nodes: int, path: Path) -> dict[str, Any]:
    """Return the masks of a split that comes with the data, or none."""
    found = {name: data[name] for name in _MASKS if name in data}
    if found and len(found) < len(_MASKS):
        raise ValueError(
            f"'{path}' must hold all of {list(_MASKS)} or none (got {list(found)})"
        )
    like = torch.zeros(num_nodes, dtype=torch.bool)
    for name, mask in found.items():
        if _kind_of(mask) != _kind_of(like) or not mask.any():
            empty = ' that chooses none' if _kind_of(mask) == _kind_of(like) else ''
            raise ValueError(
                f"'{name}' in '{path}' must be a mask of one split that chooses nodes, "
                f'{_kind_of(like)} (got {_kind_of(mask)}{empty})'
            )
    for first, second in combinations(found, 2):
        if shared := int((found[first] & found[second]).sum()):
            raise ValueError(
                f"'{first}' and '{second}' in '{path}' must not share nodes "
                f'(got {shared} in both)'
            )
    return found
