from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import cumsum

from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.relaxed import expected_weights
from torch_geometric_gsl.ops.scorer import Scorer


def weighted_sum(
    h: Tensor, edge_index: Tensor, edge_weight: Tensor, num_targets: int
) -> Tensor:
    r"""Sums the sources of each target, :math:`\sum_j A_{ij} h_j`.

    The gathered messages of shape :math:`[|E|, m]` are never formed.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        edge_index (torch.Tensor): Edges, sorted by target.
        edge_weight (torch.Tensor): Weights :math:`[|E|]`.
        num_targets (int): The number of targets.

    Example:
        >>> weighted_sum(torch.tensor([[1.0], [2.0]]),
        ...              torch.tensor([[0, 1, 1], [0, 0, 1]]),
        ...              torch.tensor([0.5, 0.5, 1.0]), num_targets=2)
        tensor([[1.5000],
                [2.0000]])
    """
    degree = torch.bincount(edge_index[1], minlength=num_targets)
    return F.embedding_bag(
        edge_index[0],
        h,
        offsets=cumsum(degree),
        per_sample_weights=edge_weight.to(h.dtype),
        mode='sum',
        include_last_offset=True,
    )


def expected_sum(
    h: Tensor,
    scorer: Scorer,
    tau: float,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Sums all sources with their noise-free weights, by blocks of rows.

    .. math::
        \sum_j \mathrm{softmax}_j \left( s_{ij} / \tau \right) h_j

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        scorer (Scorer): The scores.
        tau (float): The temperature.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    num_targets, num_sources = scorer.size
    bytes_per_row = 4 * num_sources * scorer.dtype.itemsize
    blocks = [
        expected_weights(scorer.rows(rows), tau).to(h.dtype) @ h
        for rows in row_blocks(num_targets, bytes_per_row, memory_budget)
    ]
    return torch.cat(blocks) if blocks else h.new_empty(0, h.size(1))
