from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.scorer import Scorer


@torch.no_grad()
def top_k(scorer: Scorer, k: int, *, memory_budget: int = MEMORY_BUDGET) -> Tensor:
    r"""The :obj:`k` best sources of each target, exactly and by blocks of rows.

    Nothing of size :math:`n \times N` is stored. No gradient flows: compute the
    scores of the pairs that were found again.

    Args:
        scorer (Scorer): The scores.
        k (int): How many sources to keep, at most :obj:`scorer.available`.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        torch.Tensor: Sources :math:`[n, k]`, best first.

    Example:
        >>> from torch_geometric_gsl.ops.scorer import matrix_scorer
        >>> x = torch.tensor([[0.0], [1.0], [5.0]])
        >>> top_k(matrix_scorer(-(x - x.t()).abs()), k=2)
        tensor([[0, 1],
                [1, 0],
                [2, 1]])
    """
    num_rows, num_columns = scorer.size
    found = torch.empty(num_rows, k, dtype=torch.long, device=scorer.device)
    bytes_per_row = 3 * num_columns * scorer.dtype.itemsize
    for rows in row_blocks(num_rows, bytes_per_row, memory_budget):
        found[rows] = scorer.rows(rows).topk(k, dim=-1).indices
    return found
