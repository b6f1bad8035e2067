r"""Exact searches of nearest neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cells import cells_of, find_members, score_range
from torch_geometric_gsl.ops.clusters import Clusters
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all, exclude
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks

# Sources that are scored first, besides twice as many as are kept.
_FIRST = 32
# Cells that tell whether the bounds are worth their price, and the largest share of
# pairs that may be left to score.
_FIRST_CELLS = 8
_MAX_SHARE = 0.3


@torch.no_grad()
def top_k(scores: PairScores, k: int, *, memory_budget: int = MEMORY_BUDGET) -> Tensor:
    r"""Return the :obj:`k` best sources of each target, exactly and by blocks of rows.

    Nothing of size :math:`n \times N` is stored. No gradient flows: compute the
    scores of the pairs that were found again.

    Args:
        scores (PairScores): The scores.
        k (int): How many sources to keep, at most :obj:`scores.available`.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        torch.Tensor: Sources :math:`[n, k]`, best first.

    Example:
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> top_k(PairScores(x, x, Identity()), k=2)
        tensor([[0, 1],
                [1, 0],
                [2, 1]])
    """
    num_rows, num_columns = scores.dst.size(0), scores.src.size(0)
    found = torch.empty(num_rows, k, dtype=torch.long, device=scores.dst.device)
    bytes_per_row = 3 * num_columns * scores.dst.element_size()
    for rows in row_blocks(num_rows, bytes_per_row, memory_budget):
        found[rows] = scores.rows(rows).topk(k, dim=-1).indices
    return found


@torch.no_grad()
def nearest_by_bounds(
    pairs: PairScores,
    k: int,
    clusters: Clusters,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Return what :func:`top_k` returns, up to ties, without scoring all pairs.

    For each cell of near targets an interval holds the scores of each source. The
    sources of highest bounds are scored first; the :math:`k`-th best so far of each
    target, and of all targets the least, tells which other sources are scored at all.
    Bounds that leave more than 30 % of the pairs of the first cells are given up.

    Args:
        pairs (PairScores): The scores; all sources are candidates, and the response has
            an interval.
        k (int): How many sources to keep, at most :obj:`pairs.available`.
        clusters (Clusters): Clusters of the sources, found for any embeddings of them.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        torch.Tensor: Sources :math:`[n, k]`, best first.

    Example:
        >>> from torch_geometric_gsl.ops.clusters import k_means
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> pairs = PairScores(x, x, Identity())
        >>> nearest_by_bounds(pairs, 2, k_means(x, 2))
        tensor([[0, 1],
                [1, 0],
                [2, 1]])
    """
    device = pairs.dst.device
    found = torch.empty(pairs.dst.size(0), k, dtype=torch.long, device=device)
    members = find_members(pairs.src, clusters)
    cells, few = cells_of(pairs, clusters, memory_budget=memory_budget)
    rest, num_scored, num_pairs = [few], 0, 0
    for number, rows in enumerate(cells):
        if number == _FIRST_CELLS and num_scored > _MAX_SHARE * num_pairs:
            rest += cells[number:]
            break
        num_pairs += pairs.src.size(0)
        part = pairs.take(rows)
        bounds = score_range(part, members)
        if bounds is None:
            rest.append(rows)
            num_scored += pairs.src.size(0)
            continue
        high = bounds[1]
        first = high.topk(min(high.numel(), 2 * k + _FIRST)).indices
        score, _ = _best_of(part, members.source[first], k, memory_budget)
        # All that could be among the best of any target, the first as well.
        source = members.source[~(high < score[:, -1].amin())]
        num_scored += source.numel()
        found[rows] = _best_of(part, source, k, memory_budget)[1]
    left = torch.cat(rest)
    found[left] = top_k(pairs.take(left), k, memory_budget=memory_budget)
    return found


def _best_of(
    pairs: PairScores, source: Tensor, k: int, memory_budget: int
) -> tuple[Tensor, Tensor]:
    """Return the best scores among some sources, and whose they are."""
    src = pairs.src[source]
    bytes_per_row = 4 * source.numel() * src.element_size()
    score = src.new_empty(pairs.dst.size(0), k)
    place = torch.empty(score.shape, dtype=torch.long, device=src.device)
    for rows in row_blocks(score.size(0), bytes_per_row, memory_budget):
        every = compare_all(pairs.comparison, pairs.dst[rows], src)
        every = pairs.respond(rows, every)
        if pairs.excluded is not None:
            every = exclude(every, pairs.excluded[rows], source)
        score[rows], place[rows] = every.topk(k, dim=1)
    return score, source[place]
