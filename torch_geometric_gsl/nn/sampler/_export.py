"""Sums in evaluation mode, as :func:`torch.export.export` records them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_messages
from torch_geometric_gsl.nn.sampler._parts import exclude_loops
from torch_geometric_gsl.ops.noise_free import noise_free_weights
from torch_geometric_gsl.ops.pair_scores import PairScores


def exported_sum(
    pairs: PairScores,
    h: Tensor,
    tau: float,
    *,
    is_noisy: bool,
    loop: bool,
    edge_index: Any = None,
    batch: Any = None,
    k: int | None = None,
) -> Tensor:
    r"""Sum messages over sources by their definition, of any numbers of rows.

    A program has no blocks, whose number depends on that of the rows: the scores of all
    pairs stand in memory at once, as do their weights.

    Args:
        pairs (PairScores): The scores.
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        tau (float): The temperature.
        is_noisy (bool): Whether neighbours would be drawn.
        loop (bool): Whether a node is a candidate of its own.
        edge_index (torch.Tensor, optional): Candidates. (default: :obj:`None`)
        batch (torch.Tensor or tuple, optional): Graph ids. (default: :obj:`None`)
        k (int, optional): The number of nearest sources that are summed; all if
            :obj:`None`. (default: :obj:`None`)

    Raises:
        ValueError: If neighbours would be drawn, or candidates or graph ids are given.
    """
    if is_noisy:
        raise ValueError(
            "'torch.export' records evaluation alone, which draws nothing: call "
            "'model.eval()' first"
        )
    for name, value in (('edge_index', edge_index), ('batch', batch)):
        if value is not None:
            raise ValueError(
                f"'{name}' cannot be given to 'torch.export': the number of pairs "
                f'would depend on its values (got a {type(value).__name__})'
            )
    check_messages(h, pairs.src.size(0), pairs.src.device)
    pairs = pairs if loop else exclude_loops(pairs)
    with torch.autocast(h.device.type, enabled=False):
        weight = noise_free_weights(pairs.rows(), tau, pairs.null).to(h.dtype)
        if k is not None:
            weight = nearest_weights(pairs, weight, k)
        return weight @ h


def nearest_weights(pairs: PairScores, weight: Tensor, k: int) -> Tensor:
    """Keep the weights of the nearest sources, which carry what all did."""
    nearest = pairs.ranking.rows().topk(k, dim=1).indices
    kept = torch.zeros_like(weight).scatter(1, nearest, weight.gather(1, nearest))
    # A null neighbour may leave them no weight at all.
    total = kept.sum(dim=1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)
    return kept * (weight.sum(dim=1, keepdim=True) / total)
