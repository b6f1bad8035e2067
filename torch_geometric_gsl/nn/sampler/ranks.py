"""The rows of several processes, for the sums of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import as_pair
from torch_geometric_gsl.typing import Features


def gather_rows(
    x: Features,
    h: Tensor,
    rows: Any,
    gather: Callable[[Tensor], Tensor],
    weighs_targets: Callable[[int, int], bool],
) -> tuple[Features, Tensor]:
    """Return compared rows and messages of all processes, given those of one.

    The sources of a pair are the same for all. Its targets are zero outside of
    :obj:`rows`, unless draws depend on them.
    """
    if rows is None:
        raise ValueError("'gather' needs 'rows' (got None)")
    if not isinstance(x, tuple | list):
        sources = gather(x)
        h = sources if h is x else gather(h)
        x = sources
    else:
        src, dst = as_pair(x)
        # Rows of width zero are counted, and no number is sent.
        num_targets = gather(dst.new_empty(dst.size(0), 0)).size(0)
        first, stop = rows
        if weighs_targets(num_targets, src.size(0)):
            # The bounds of draws have no gradient.
            targets = gather(dst.detach())
            dst = torch.cat([targets[:first], dst, targets[stop:]])
        else:
            dst = F.pad(dst, (0, 0, first, num_targets - stop))
        x = src, dst
    # All processes join the sum of gradients, even those that use no row.
    for gathered in as_pair(x):
        if gathered.requires_grad:
            h = h + gathered[:0].sum()
    return x, h
