from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import Linear
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from torch_geometric_gsl._checks import check_features, check_parameter_match
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import disable_compile, full_dtype

# Features stay the same in all epochs: cache their order by column.
_ORDERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_LOCK = Lock()


def plain_linear(in_channels: int, out_channels: int) -> Linear:
    """Make a projection without a bias."""
    size = in_channels, out_channels
    return Linear(*size, bias=False, weight_initializer='glorot')


def check_input(x: Tensor, lin: Linear, name: str = 'x') -> None:
    """Raise unless a projection accepts the features."""
    check_features(x, name, lin.in_channels)
    check_parameter_match(x, lin.weight, name)


def apply_linear(lin: Linear, x: Tensor) -> Tensor:
    r"""Project dense or sparse CSR features, :math:`X W`.

    Sparse products make no dense copy of :math:`X` in either pass; in half precision
    and under autocast they run in :obj:`torch.float32`. The gradient of sparse features
    is sparse: only stored values have one.
    """
    device = x.device.type
    dtype = x.dtype
    if dtype == torch.float32 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        if is_uninitialized_parameter(lin.weight):
            # Its first call would multiply sparse features in half precision.
            lin.initialize_parameters(lin, (x,))
    if x.layout == torch.strided or is_uninitialized_parameter(lin.weight):
        dense: Tensor = lin(x)
        return dense
    with torch.autocast(device, enabled=False):
        full = full_dtype(x.dtype)
        weight = lin.weight.to(full).t().contiguous()
        out = neighbour_sum(weight, x.values().to(full), entries_by_row(x)).to(dtype)
        return out if lin.bias is None else out + lin.bias.to(dtype)


@disable_compile
def entries_by_row(x: Tensor) -> Neighbours:
    r"""List the columns of the entries of sparse CSR features by row.

    The list is cached until the features are deleted or have other columns.
    """
    column, offsets = x.col_indices(), x.crow_indices()
    with _LOCK:
        entries: Neighbours | None = _ORDERED.get(x)
        if entries is None or not (
            torch.equal(entries.source, column.to(entries.source.dtype))
            and torch.equal(entries.offsets, offsets.to(entries.offsets.dtype))
        ):
            # Copies are safe from features that are refilled in place.
            entries = Neighbours(column.clone(), x.size(1), offsets.clone())
            _ORDERED[x] = entries
    return entries
