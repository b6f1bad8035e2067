"""The rates of proposals in C++, on the threads of PyTorch.

:func:`torch_geometric_gsl.ops.envelope.proposal_rates` is the definition. Rates differ
in their last bits, so that one proposal in about ten thousand is of another cluster.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from torch_geometric_gsl.ops._native.compiled import NAMES, RESPONSES, load, run_parts
from torch_geometric_gsl.ops.clusters import Balls, closeness
from torch_geometric_gsl.ops.pair_scores import PairScores

# The fields of `Rates` in `rates.cpp`, in its order.
_TENSORS = (
    *('compared', 'norm', 'a', 'b', 'c', 'radius', 'least', 'most', 'log_size'),
    *('bound', 'total', 'share'),
)
_DOUBLES = 'scale', 'upper', 'error'
_NUMBERS = 'num_clusters', 'a_stride', 'b_stride', 'c_stride', 'response', 'is_dot'


class _Rates(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _TENSORS),
        *((name, ctypes.c_double) for name in _DOUBLES),
        *((name, ctypes.c_int64) for name in _NUMBERS),
    )


@torch.no_grad()
def rates_native(
    pairs: PairScores, balls: Balls, log_size: Tensor, rows: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """Return bounds, totals and shares of the rates of some targets, of clusters.

    Bounds and shares are :math:`[n, C]`, the logarithms of totals :math:`[n]`.
    """
    dst = pairs.dst[rows].detach()
    is_dot = pairs.comparison == 'dot'
    compared, norm = closeness(pairs.comparison, dst, balls)[1][:2]
    if compared.dtype != dst.dtype:  # What C++ would read as another type.
        raise TypeError(f"'compared' must be {dst.dtype} (got {compared.dtype})")
    bound = torch.empty_like(compared)
    total = compared.new_empty(compared.size(0))
    share = torch.empty_like(compared, dtype=torch.int32)
    params = [param[rows] for param in pairs.response.params]
    a, b, c = (None, None, None, *params)[-3:]
    inputs = compared, norm, a, b, c, balls.radius, *balls.norm, log_size
    rates = _Rates(
        *(None if x is None else x.data_ptr() for x in (*inputs, bound, total, share)),
        *(float(pairs.scale), float(pairs.upper), balls.error, log_size.numel()),
        *(0 if param is None else param.stride(0) for param in (a, b, c)),
        *([*RESPONSES].index(str(pairs.response.kernel_formula)), is_dot),
    )
    function = getattr(load('rates'), f'rates_{NAMES[dst.dtype]}')
    run_parts(function, rates, compared.size(0))
    return bound, total, share
