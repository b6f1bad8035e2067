r"""Lists of the nearest sources, as heads of an envelope."""

from __future__ import annotations

import torch

from torch_geometric_gsl.ops.envelope import Head
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.sparse_rows import row_norms


@torch.no_grad()
def find_nearest(
    pairs: PairScores, size: int, *, memory_budget: int = MEMORY_BUDGET
) -> Head:
    r"""List the best sources of each target, by blocks of rows.

    Args:
        pairs (PairScores): The scores, whose response is monotonic.
        size (int): The number of sources :math:`H`, less than :math:`N`.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        Head: The sources, and bounds of what the targets compare with all others.
    """
    dst, src = pairs.dst.detach(), pairs.src.detach()
    is_largest = pairs.response.monotonic > 0
    source = torch.empty(dst.size(0), size, dtype=torch.long, device=dst.device)
    rest = dst.new_empty(dst.size(0))
    for rows in row_blocks(
        dst.size(0), 3 * src.size(0) * dst.element_size(), memory_budget
    ):
        value = compare_all(pairs.comparison, dst[rows], src)
        found, index = value.topk(size + 1, dim=1, largest=is_largest)
        source[rows] = index[:, :size].sort(dim=1).values
        rest[rows] = found[:, size]
    low, high = (torch.full_like(rest, sign * torch.inf) for sign in (-1, 1))
    # The rounding of what is compared again.
    error = (src.size(1) + 8) * torch.finfo(src.dtype).eps
    if pairs.comparison == 'dot':
        slack = 2 * error * row_norms(dst) * row_norms(src).amax()
        low, high = (low, rest + slack) if is_largest else (rest - slack, high)
    else:
        root = rest.sqrt()
        low = (root - error * root).clamp(min=0).square()
    return Head(source, low, high)
