"""The contrast of two views of the same nodes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, full_precision, row_blocks
from torch_geometric_gsl.ops.scores import unit_rows


def nt_xent(
    first: Tensor,
    second: Tensor,
    temperature: float,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Return the normalised, temperature-scaled cross-entropy of two views.

    .. math::
        \mathcal{L} = - \frac{1}{2 n} \sum_{i=1}^{n} \left( \log
        \frac{e^{s_{ii} / t}}{\sum_j e^{s_{ij} / t}} + \log
        \frac{e^{s_{ii} / t}}{\sum_j e^{s_{ji} / t}} \right), \qquad
        s_{ij} = \cos (\mathbf{z}_i, \mathbf{z}'_j)

    Rows of the similarities are computed by blocks, again in the backward pass, so
    that nothing of size :math:`n \times n` is stored. Half precision is computed in
    :obj:`torch.float32`. Without any rows the loss is zero.
    """
    if first.size(0) == 0:
        return first.sum() + second.sum()
    with torch.autocast(first.device.type, enabled=False):
        own, other = (unit_rows(full_precision(z)) for z in (first, second))
        own = own / temperature
        # The similarities, their exponentials and their gradient.
        bytes_per_row = 3 * other.size(0) * other.itemsize
        blocks = [
            checkpoint(
                _block_sums,
                own[rows],
                other,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for rows in row_blocks(own.size(0), bytes_per_row, memory_budget)
        ]
        by_row = torch.cat([row for row, _ in blocks])
        by_column = torch.stack([column for _, column in blocks]).logsumexp(dim=0)
        positive = (own * other).sum(dim=1)
        loss = (by_row / 2 + by_column / 2 - positive).mean()
    return loss.to(first.dtype)


def _block_sums(own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the sums of a block, by rows and by columns."""
    scores = own @ other.t()
    return scores.logsumexp(dim=1), scores.logsumexp(dim=0)


def grouped_nt_xent(
    first: Tensor, second: Tensor, temperature: float, size: int | None
) -> Tensor:
    """Contrast the nodes of a group with each other only, in the order of their rows;
    each node counts once.
    """
    num_nodes = max(1, first.size(0))
    parts = (view.split(size or num_nodes) for view in (first, second))
    terms = [
        nt_xent(one, two, temperature) * (one.size(0) / num_nodes)
        for one, two in zip(*parts, strict=True)
    ]
    return torch.stack(terms).sum()
