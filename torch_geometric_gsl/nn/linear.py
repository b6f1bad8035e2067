from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import Linear


def apply_linear(lin: Linear, x: Tensor) -> Tensor:
    r"""Projects dense or sparse CSR features, :math:`X W`.

    Torch multiplies CSR matrices in full precision only, so that half precision and
    autocast are left for this product.

    Args:
        lin (torch_geometric.nn.Linear): The projection.
        x (torch.Tensor): Node features :math:`(|\mathcal{V}|, F_{in})`.
    """
    device = x.device.type
    if x.layout == torch.strided or not (
        torch.is_autocast_enabled(device) or x.dtype in (torch.float16, torch.bfloat16)
    ):
        dense: Tensor = lin(x)
        return dense
    dtype = torch.get_autocast_dtype(device) if x.dtype == torch.float32 else x.dtype
    with torch.autocast(device, enabled=False):
        full = torch.sparse_csr_tensor(
            x.crow_indices(), x.col_indices(), x.values().float(), x.shape
        )
        return F.linear(full, lin.weight.float()).to(dtype)
