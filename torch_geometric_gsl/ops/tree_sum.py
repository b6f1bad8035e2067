r"""Noise-free sums over all sources whose error is bounded, not only estimated."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cell_sum import sum_cell
from torch_geometric_gsl.ops.cells import cells_of
from torch_geometric_gsl.ops.clusters import Clusters
from torch_geometric_gsl.ops.noise_free import noise_free_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, disable_compile
from torch_geometric_gsl.ops.source_ranking import RUN, Messages

# After so many cells the bounds are given up, if they left more than this share of
# their pairs to sum.
_TRIALS = {2: 0.8, 8: 0.4}
# A first trial takes so many targets, where there are neither fewer nor more sources
# than these.
_TRIED_ROWS = 64
_FEW, _MANY = 4096, 2**16


@disable_compile
@torch.no_grad()
def tree_sum(
    h: Tensor,
    pairs: PairScores,
    tau: float,
    tolerance: float,
    clusters: Clusters,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Sum all sources with their noise-free weights, within a relative error.

    .. math::
        y_i = \sum_j w_{ij} h_j / \sum_j w_{ij}, \qquad w_{ij} = e^{s_{ij} / \tau},
        \qquad \lVert \hat{y}_i - y_i \rVert \le \epsilon \lVert y_i \rVert

    For each cell of near targets an interval :math:`m_j \pm e_j` holds the weights of
    source :math:`j`, or those of a whole cluster where these matter little. The sources
    of largest :math:`e_j` are summed pair by pair, until the others may be replaced by
    their :math:`m_j`, the same for all targets of the cell: with :math:`\hat{D}_i` the
    sum of the weights, the error is at most

    .. math::
        \frac{\sum_j e_j \left( \lVert h_j - \bar{h} \rVert + \lVert \hat{y}_i -
        \bar{h} \rVert \right)}{\hat{D}_i - \sum_j e_j}

    whatever the common part :math:`\bar{h}`. The bound is evaluated for each target
    with its own :math:`\hat{y}_i`; where it fails, more sources are summed pair by
    pair, in the end all. It accounts for the rounding of the intervals, not for that of
    what is summed pair by pair. Where rounding may matter because :math:`\hat{y}_i` is
    small beside :math:`\bar{h}`, it is :func:`noise_free_sum` that sums.

    No gradient flows. Bounds that leave more than 80 % of the pairs of the first two
    cells, or 40 % of those of the first eight, are given up.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        pairs (PairScores): The scores; all sources are candidates, and the response has
            an interval.
        tau (float): The temperature.
        tolerance (float): The relative error :math:`\epsilon`.
        clusters (Clusters): Clusters of the sources, found for any embeddings of them.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Example:
        >>> from torch_geometric_gsl.ops.clusters import k_means
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> x = torch.eye(2).repeat(50, 1)
        >>> pairs = PairScores(x, x, Identity())
        >>> tree_sum(x, pairs, 0.5, 1e-3, k_means(x, 2))[0]
        tensor([0.8808, 0.1192])
    """
    out = h.new_empty(pairs.dst.size(0), h.size(1))
    messages = Messages.of(h, pairs, clusters)
    cells, few = cells_of(pairs, clusters, memory_budget=memory_budget)
    rest, num_pairs, num_summed = [few], 0, 0
    for number, rows in enumerate(cells):
        part = pairs.take(rows)
        found = sum_cell(messages, part, tau, tolerance, memory_budget)
        if found is None:
            rest.append(rows)
        else:
            out[rows] = found[0].to(out.dtype)
        every = rows.numel() * h.size(0)
        num_pairs += every
        num_summed += every if found is None else found[1]
        if num_summed > _TRIALS.get(number + 1, math.inf) * num_pairs:
            rest += cells[number + 1 :]
            break
    is_left = _is_cancelled(out, messages, tolerance)
    is_left[torch.cat(rest)] = True
    left = is_left.nonzero().squeeze(1)
    if left.numel() > 0:
        out[left] = noise_free_sum(
            h, pairs.take(left), tau, memory_budget=memory_budget
        )
    return out


def _is_cancelled(out: Tensor, messages: Messages, tolerance: float) -> Tensor:
    """Mark sums that are too small beside the mean which was taken from them."""
    mean = torch.linalg.vector_norm(messages.mean.double())
    error = RUN * torch.finfo(messages.full.dtype).eps * mean
    norm = torch.linalg.vector_norm(out.double(), dim=1)
    is_cancelled: Tensor = (mean > 4 * norm) & (error > tolerance / 2 * norm)
    return is_cancelled


@disable_compile
@torch.no_grad()
def may_pay(
    h: Tensor,
    pairs: PairScores,
    tau: float,
    tolerance: float,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> bool:
    r"""Return whether bounds may leave out enough pairs to be worth their clusters.

    Two cells of near targets are summed under the bounds of clusters that are single
    sources, which no others can beat. Few sources are not worth any bounds; of many,
    the clusters cost so little that they are tried.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        pairs (PairScores): The scores.
        tau (float): The temperature.
        tolerance (float): The relative error.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    if min(num_targets, num_sources) < _FEW:
        return False
    if num_sources > _MANY:
        return True
    every = torch.arange(num_sources + 1, device=h.device)
    messages = Messages.of(h, pairs, Clusters(every[:-1], every))
    num_summed = 0
    for place in (0, num_targets // 2):
        distance = (pairs.dst - pairs.dst[place]).square().sum(dim=1)
        near = distance.topk(_TRIED_ROWS, largest=False).indices
        found = sum_cell(
            messages, pairs.take(near), tau, tolerance, memory_budget, may_skip=False
        )
        num_summed += _TRIED_ROWS * num_sources if found is None else found[1]
    return num_summed <= _TRIALS[2] * 2 * _TRIED_ROWS * num_sources
