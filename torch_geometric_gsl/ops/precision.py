r"""What is computed in :obj:`torch.float32` where features have half precision."""

from __future__ import annotations

import torch
from torch import Tensor


def full_dtype(dtype: torch.dtype) -> torch.dtype:
    r"""The type to compute with.

    Example:
        >>> full_dtype(torch.bfloat16), full_dtype(torch.float64)
        (torch.float32, torch.float64)
    """
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def full_precision(x: Tensor) -> Tensor:
    r"""Leaves half precision; another tensor is returned as it is.

    Example:
        >>> full_precision(torch.ones(2, dtype=torch.float16))
        tensor([1., 1.])
    """
    return x.to(full_dtype(x.dtype))
