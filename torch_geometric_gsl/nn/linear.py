from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import Linear

from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import full_dtype

# Features stay the same for all epochs: what orders them by column is kept with them.
_ORDERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_LOCK = Lock()


def apply_linear(lin: Linear, x: Tensor) -> Tensor:
    r"""Projects dense or sparse CSR features, :math:`X W`.

    A sparse product sums rows of :math:`W`, also in the backward pass, without a dense
    copy of :math:`X`; in half precision and under autocast it is computed in
    :obj:`torch.float32`. The gradient of sparse features is that of their stored
    values, sparse as well.

    Args:
        lin (torch_geometric.nn.Linear): The projection.
        x (torch.Tensor): Node features :math:`(|\mathcal{V}|, F_{in})`.
    """
    device = x.device.type
    dtype = x.dtype
    if dtype == torch.float32 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        if _is_lazy(lin):
            # At its first call it would multiply sparse features in half precision.
            lin.initialize_parameters(lin, (x,))
    if x.layout == torch.strided or _is_lazy(lin):
        dense: Tensor = lin(x)
        return dense
    with torch.autocast(device, enabled=False):
        full = full_dtype(x.dtype)
        weight = lin.weight.to(full).t().contiguous()
        out = neighbour_sum(weight, x.values().to(full), entries_by_row(x)).to(dtype)
        return out if lin.bias is None else out + lin.bias.to(dtype)


def _is_lazy(lin: Linear) -> bool:
    return isinstance(lin.weight, torch.nn.UninitializedParameter)


def entries_by_row(x: Tensor) -> Neighbours:
    r"""The columns of the entries of sparse CSR features, for each row.

    Args:
        x (torch.Tensor): Node features :math:`(|\mathcal{V}|, F_{in})`.
    """
    with _LOCK:
        found: Neighbours | None = _ORDERED.get(x)
        if found is None:
            found = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
            _ORDERED[x] = found
    return found
