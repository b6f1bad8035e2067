r"""Summarise a weighted graph in numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import softmax

from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import row_blocks


class Spread(NamedTuple):
    """The spread of the weights of each target, in double precision: the entropies
    :math:`H` in nats, and the effective numbers of neighbours :math:`e^H`.
    """

    entropy: Tensor
    effective: Tensor


def distribution(values: Tensor) -> list[float]:
    """Compute the extremes, the quartiles and the mean of values of any shape."""
    if values.numel() == 0:
        return [float('nan')] * 6
    # Not torch.quantile, which is limited to 2^24 values.
    array = values.detach().cpu().double().numpy()
    quartiles = np.quantile(array, [0, 0.25, 0.5, 0.75, 1])
    return [*quartiles.tolist(), float(array.mean())]


def weight_spread(target: Tensor, weight: Tensor, num_targets: int) -> Spread:
    r"""Compute the spread of listed non-negative weights.

    .. math::
        H_i = - \sum_j p_{ij} \log p_{ij}, \qquad
        p_{ij} = \frac{w_{ij}}{\sum_l w_{il}}

    where :math:`e^{H_i}` is :math:`k` for :math:`k` equal weights and tends to 1 if
    one weight dominates. Targets without positive weights have the entropy 0 and 0
    neighbours.

    Example:
        >>> target, weight = torch.tensor([0, 0, 1]), torch.tensor([0.5, 0.5, 2.0])
        >>> weight_spread(target, weight, num_targets=3).effective.tolist()
        [2.0, 1.0, 0.0]
    """
    weight = weight.double()
    total = weight.new_zeros(num_targets).index_add(0, target, weight)
    share = weight / total.masked_fill(total == 0, 1)[target]
    surprise = torch.special.entr(share)
    entropy = torch.zeros_like(total).index_add(0, target, surprise)
    return Spread(entropy, entropy.exp().masked_fill(total == 0, 0))


@torch.no_grad()
def score_spread(pairs: PairScores) -> Spread:
    r"""Compute the spread of :math:`\pi_i = \mathrm{softmax}_j(s_{ij})`."""
    bytes_per_row = 4 * pairs.src.size(0) * pairs.src.element_size()
    blocks = [
        torch.special.entr(pairs.rows(rows).softmax(dim=-1)).sum(dim=-1).double()
        for rows in row_blocks(pairs.dst.size(0), bytes_per_row, pairs.memory)
    ]
    empty = torch.empty(0, dtype=torch.double, device=pairs.src.device)
    entropy = torch.cat([empty, *blocks])
    return Spread(entropy, entropy.exp())


def candidate_spread(score: Tensor, target: Tensor, num_targets: int) -> Spread:
    r"""Compute the spread of :math:`\pi_i` among listed candidates, given scores."""
    share = softmax(score.double(), target, num_nodes=num_targets)
    return weight_spread(target, share, num_targets)


@torch.no_grad()
def null_share(pairs: PairScores) -> Tensor:
    """Compute the probability of each target's null neighbour."""
    null = torch.as_tensor(pairs.null, device=pairs.src.device).double()
    bytes_per_row = 4 * pairs.src.size(0) * pairs.src.element_size()
    blocks = [
        (null - pairs.rows(rows).double().logsumexp(dim=-1)).sigmoid()
        for rows in row_blocks(pairs.dst.size(0), bytes_per_row, pairs.memory)
    ]
    return torch.cat([null.new_empty(0), *blocks])


def candidate_null_share(
    score: Tensor, target: Tensor, null: Tensor, num_targets: int
) -> Tensor:
    """Compute the probability of the null neighbour among listed candidates."""
    targets = torch.arange(num_targets, device=target.device)
    score = torch.cat([score.double(), null.double().expand(num_targets)])
    share = softmax(score, torch.cat([target, targets]), num_nodes=num_targets)
    return share[-num_targets:] if num_targets else share


def same_label_share(
    edge_index: Tensor, weight: Tensor, y_src: Tensor, y_dst: Tensor
) -> float:
    r"""Compute the share of the weight between nodes with equal labels.

    .. math::
        \frac{\sum_{(j, i) \in E} w_{ij} \, [y_j = y_i]}{\sum_{(j, i) \in E} w_{ij}}

    It is :obj:`nan` without positive weights.

    Example:
        >>> y = torch.tensor([0, 0, 1])
        >>> edge_index = torch.tensor([[1, 2], [0, 0]])
        >>> same_label_share(edge_index, torch.tensor([3.0, 1.0]), y, y)
        0.75
    """
    same = y_src[edge_index[0]] == y_dst[edge_index[1]]
    weight = weight.double()
    return float(weight[same].sum() / weight.sum())


def chance_share(y_src: Tensor, y_dst: Tensor | None = None) -> float:
    """Compute the share of pairs of sources and targets with equal labels.

    Without :obj:`y_dst` the targets are the sources, without self-pairs. The share is
    :obj:`nan` without pairs.
    """
    num_loops = y_src.numel() if y_dst is None else 0
    y_dst = y_src if y_dst is None else y_dst
    label = torch.cat([y_src, y_dst]).unique(return_inverse=True)[1]
    src_label, dst_label = label.split([y_src.numel(), y_dst.numel()])
    src_count = torch.bincount(src_label, minlength=label.numel()).double()
    dst_count = torch.bincount(dst_label, minlength=label.numel()).double()
    num_pairs = y_src.numel() * y_dst.numel() - num_loops
    num_same = float(src_count @ dst_count) - num_loops
    return num_same / num_pairs if num_pairs else float('nan')
