"""Read features, labels and a split from a ``.pt`` file."""

from __future__ import annotations

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
from torch_geometric_gsl.datasets._io.damage import ERRORS, check_memory, refused_global
from torch_geometric_gsl.datasets._io.labels import check_labels, encode_named

_MASKS = ('train_mask', 'val_mask', 'test_mask')
# Torch must be allowed to load these; of them PyG itself allows only the first.
_PARTS_OF_DATA: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def read_data(path: Path) -> Data:
    r"""Read a data object that :func:`torch.save` has written; nothing is executed."""
    data = _load(path)
    x = _read_features(data, path)
    y = _read_labels(data, x.size(0), path)
    given = getattr(data, 'class_names', None)
    numbers, class_names = encode_named(y.tolist(), given, path)
    masks = _read_masks(data, x.size(0), path)
    return Data(x=x, y=numbers, class_names=class_names, **masks)


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


def _read_labels(data: Data, num_nodes: int, path: Path) -> NDArray[Any]:
    if not isinstance(data.y, Tensor):
        raise ValueError(
            f"'y' in '{path}' must be a tensor (got {type(data.y).__name__})"
        )
    where = f"'y' in '{path}'"
    try:
        y: NDArray[Any] = data.y.detach().numpy()
    except (RuntimeError, TypeError) as error:
        kind = f'{data.y.dtype}, {data.y.layout}, on {data.y.device}'
        raise ValueError(
            f'{where} must be a dense tensor of integers (got {kind})'
        ) from error
    check_labels(y, where, num_nodes, kinds='iu')
    if y.min(initial=0) < 0:
        raise ValueError(f'{where} must not be negative (got {y.min()})')
    return y


def _read_masks(data: Data, num_nodes: int, path: Path) -> dict[str, Any]:
    """Return the masks of a split that comes with the data, or none."""
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
