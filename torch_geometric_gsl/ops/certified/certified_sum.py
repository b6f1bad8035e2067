r"""Noise-free sums over all sources with a certified error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cells import cells_of
from torch_geometric_gsl.ops.certified.cell_sum import sum_cell
from torch_geometric_gsl.ops.certified.source_ranking import RUN, Messages
from torch_geometric_gsl.ops.clusters import Clusters, k_means, num_clusters
from torch_geometric_gsl.ops.noise_free import noise_free_sum
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, disable_compile

# Bounds are given up after the first cells if they leave more than this share of their
# pairs to sum.
_TRIALS = {2: 0.8, 8: 0.4}
_TRIED_ROWS = 64
# Between these numbers of rows, bounds are tried on two small cells first.
_FEW, _MANY = 4096, 2**16


def certified_sum(
    h: Tensor,
    pairs: PairScores,
    tau: float,
    tolerance: float,
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
    what is summed pair by pair.

    Where there are no bounds (a null neighbour, sparse rows, a response without an
    interval), where these would leave too many pairs, where rounding may matter, and
    where gradient is enabled, :func:`noise_free_sum` sums.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        pairs (PairScores): The scores; all sources are candidates.
        tau (float): The temperature.
        tolerance (float): The relative error :math:`\epsilon`.
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)

    Example:
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> x = torch.eye(2).repeat(50, 1)
        >>> pairs = PairScores(x, x, Identity())
        >>> certified_sum(x, pairs, 0.5, 1e-3)[0]
        tensor([0.8808, 0.1192])
    """
    args, has_bounds = (h, pairs, tau), pairs.has_clusters and pairs.null is None
    if (
        not has_bounds
        or torch.is_grad_enabled()
        or not _may_pay(*args, tolerance, memory_budget)
    ):
        return noise_free_sum(*args, memory_budget=memory_budget)
    clusters = k_means(pairs.src, num_clusters(pairs.src.size(0)))
    return tree_sum(*args, tolerance, clusters, memory_budget=memory_budget)


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
    """Sum by cells of targets, with clusters of the sources for any embeddings."""
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
def _may_pay(
    h: Tensor, pairs: PairScores, tau: float, tolerance: float, memory_budget: int
) -> bool:
    """Return whether bounds may leave out enough pairs to be worth their clusters.

    Two cells of near targets are summed under the bounds of clusters that are single
    sources, which no others can beat. Few sources are not worth any bounds; of many,
    the clusters cost so little that they are tried.
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
