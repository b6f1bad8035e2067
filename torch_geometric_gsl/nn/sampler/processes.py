"""The rows of several processes, for the sums of one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import Ends
from torch_geometric_gsl.typing import Features


def gather_rows(
    x: Features | Ends,
    h: Tensor,
    rows: Any,
    gather: Callable[[Tensor], Tensor],
    depends_on_all_targets: Callable[[int, int], bool],
) -> tuple[Features | Ends, Tensor]:
    """Return compared rows and messages of all processes, given those of one.

    The sources of a pair are the same for all. Its targets are zero outside of
    :obj:`rows`, unless draws depend on them.
    """
    if rows is None:
        raise ValueError("'gather' needs 'rows' (got None)")
    ends = Ends.of(x)
    if not ends.is_pair:
        sources = gather(ends.src)
        h = sources if h is ends.src else gather(h)
        ends = Ends(sources, sources, is_pair=False)
    else:
        src, dst, _ = ends
        # Rows of width zero are counted, and no number is sent.
        num_targets = gather(dst.new_empty(dst.size(0), 0)).size(0)
        first, stop = rows
        if depends_on_all_targets(num_targets, src.size(0)):
            # The bounds of draws have no gradient.
            targets = gather(dst.detach())
            dst = torch.cat([targets[:first], dst, targets[stop:]])
        else:
            dst = F.pad(dst, (0, 0, first, num_targets - stop))
        ends = Ends(src, dst, is_pair=True)
    # All processes join the sum of gradients, even those that use no row.
    for gathered in ends[:2]:
        if gathered.requires_grad:
            h = h + gathered[:0].sum()
    return (ends if isinstance(x, Ends) else ends.features), h
