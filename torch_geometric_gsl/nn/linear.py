from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import Linear
from torch_geometric.nn.dense.linear import is_uninitialized_parameter

from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import disable_compile, full_dtype

# Features stay the same for all epochs: what orders them by column is kept with them.
_ORDERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_LOCK = Lock()


def plain_linear(in_channels: int, out_channels: int) -> Linear:
    """Make a projection without a bias."""
    size = in_channels, out_channels
    return Linear(*size, bias=False, weight_initializer='glorot')


def apply_linear(lin: Linear, x: Tensor) -> Tensor:
    r"""Project dense or sparse CSR features, :math:`X W`.

    A sparse product sums rows of :math:`W`, also in the backward pass, without a dense
    copy of :math:`X`; in half precision and under autocast it is computed in
    :obj:`torch.float32`. The gradient of sparse features is that of their stored
    values, sparse as well.
    """
    device = x.device.type
    dtype = x.dtype
    if dtype == torch.float32 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        if is_uninitialized_parameter(lin.weight):
            # At its first call it would multiply sparse features in half precision.
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
    r"""Return the columns of the entries of sparse CSR features, for each row.

    They are kept until the features are gone or list other columns.
    """
    column, offsets = x.col_indices(), x.crow_indices()
    with _LOCK:
        found: Neighbours | None = _ORDERED.get(x)
        if found is None or not _lists(found, column, offsets):
            # Copies, which features that are refilled in place leave as they are.
            found = Neighbours(column.clone(), x.size(1), offsets.clone())
            _ORDERED[x] = found
    return found


def _lists(found: Neighbours, column: Tensor, offsets: Tensor) -> bool:
    if found.source.shape != column.shape or found.offsets.shape != offsets.shape:
        return False
    return bool((found.source == column).all() & (found.offsets == offsets).all())
