r"""Exact searches of nearest neighbours.

Products in single precision lose near candidates if rows are far from the origin, are
nearly equal, or are many and have few columns. They find a few extra candidates, exact
scores rank them, and a bound of the rounding errors decides which targets might have
missed a better one. For these it tells which sources to rank exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cells import CellSearch, cells_of
from torch_geometric_gsl.ops.clusters import Clusters, k_means, num_clusters
from torch_geometric_gsl.ops.pair_scores import (
    PairScores,
    Sources,
    centre_of,
    distances_as_dots,
    exclude,
    is_distance,
)
from torch_geometric_gsl.ops.runtime import row_blocks
from torch_geometric_gsl.ops.sparse_rows import SparseRows, row_norms

# Extra candidates, found in addition to those that are kept.
_SPARE = 8
# The share of an entry that shifted rows may lose.
_PRECISION = 1e-8
# Squares of entries up to this size stay finite in single precision.
_LARGE = 1e15
# Up to this number, pairs are compared in double precision at once.
_FEW = 2**18
# The largest share of the sources that are worth gathering, to be ranked exactly.
_MAX_GATHERED = 0.25
# From this number of pairs the nearest are found by bounds.
_BOUNDED = 2**27
# Cells on which bounds are tested, and the largest share of pairs that may remain to be
# scored.
_FIRST_CELLS = 8
_MAX_SHARE = 0.3


@torch.no_grad()
def best_sources(pairs: PairScores, k: int, sources: Sources | None = None) -> Tensor:
    r"""Return the :obj:`k` best sources of each target :math:`[n, k]`, best first.

    Of equally good sources the first ones are returned, whatever the other targets are.
    Monotonic responses and bells are ranked by inner products or distances, which do
    not saturate, in double precision if the embeddings have it.

    Args:
        pairs (PairScores): The scores.
        k (int): The number of sources, at most :obj:`pairs.available`.
        sources (Sources, optional): The sources in single precision, prepared once for
            many calls with distances. (default: :obj:`None`)

    Example:
        >>> from torch_geometric_gsl.ops.scores import HeatKernel
        >>> x = torch.tensor([[0.0], [70.0], [100.0]]).double()
        >>> response = HeatKernel(torch.ones(3).double())
        >>> pairs = PairScores(x, x, response, 'squared_distance')
        >>> best_sources(pairs, 2)  # All scores but those of equal rows are zero.
        tensor([[0, 1],
                [1, 2],
                [2, 1]])
    """
    ranks = exact = pairs.ranking
    if sources is not None and not clusters_pay(ranks):
        return _without_bounds(ranks, k, sources)
    is_double = pairs.dst.dtype == torch.float64 and ranks.response.is_lipschitz
    if is_double and not pairs.is_sparse:
        ranks = normalise_ranks(ranks)
    is_bounded = clusters_pay(ranks)
    if is_bounded:
        single = in_single_precision(ranks).src if is_double else ranks.src
        clusters = k_means(single, num_clusters(ranks.src.size(0)))
        source = nearest_by_bounds(ranks, min(k + _SPARE, ranks.available), clusters)
        source = _first_of_ties(ranks, source, k)
    else:
        source = _without_bounds(ranks, k)
    if not is_distance(exact) or not (is_double or is_bounded):
        return source
    # Neither shifted rows nor products preserve the order of near ties.
    exact = exact._replace(dst=exact.dst.double(), src=exact.src.double())
    return ranked(exact, source)[0]


def clusters_pay(ranks: PairScores) -> bool:
    """Return whether there are enough pairs for clusters of the sources to pay."""
    num_targets, num_sources = ranks.dst.size(0), ranks.src.size(0)
    # Finding clusters takes about as long as comparing this number of targets.
    is_large = num_targets >= 2 * num_clusters(num_sources)
    is_large &= num_targets * num_sources >= _BOUNDED
    return is_large and ranks.has_clusters


def _without_bounds(
    ranks: PairScores, k: int, sources: Sources | None = None
) -> Tensor:
    """Compare all pairs, in single precision where that finds the best."""
    num_targets, num_sources = ranks.dst.size(0), ranks.src.size(0)
    is_double = ranks.dst.dtype == torch.float64 and ranks.response.is_lipschitz
    is_small = num_targets * num_sources <= _FEW or k + _SPARE > ranks.available
    if is_small or not (is_double or is_distance(ranks)):
        return _rank_all(ranks, k)
    if is_distance(ranks):
        # Differences are several times slower than products.
        sources = Sources.of(ranks.src).single() if sources is None else sources
        single = distances_as_dots(ranks, sources)
        longest = None
    else:
        single = in_single_precision(ranks)
        longest = row_norms(ranks.src).amax()
    source = torch.empty(num_targets, k, dtype=torch.long, device=ranks.dst.device)
    bytes_per_row = 3 * num_sources * single.dst.element_size()
    for rows in row_blocks(num_targets, bytes_per_row, ranks.memory):
        source[rows] = _certified(ranks.take(rows), single.take(rows), k, longest)
    return source


@torch.no_grad()
def nearest_by_bounds(pairs: PairScores, k: int, clusters: Clusters) -> Tensor:
    """Find the best of all sources, up to ties, without scoring all pairs.

    The response needs an interval; clusters may be those of other embeddings. A
    :class:`CellSearch` handles each cell of near targets. Gives up if bounds leave more
    than 30 % of the pairs of the first cells.
    """
    search = CellSearch.of(pairs, k, clusters)
    num_sources = pairs.src.size(0)
    source = clusters.source.new_empty(pairs.dst.size(0), k)
    cells, small_cells = cells_of(pairs, clusters)
    without_bounds = [small_cells]
    num_scored = 0
    for i, rows in enumerate(cells):
        if i == _FIRST_CELLS and num_scored > _MAX_SHARE * i * num_sources:
            without_bounds += cells[i:]
            break
        cell = search.pairs.take(rows)
        position = search.within_reach(cell)
        if position is None:
            without_bounds.append(rows)
            num_scored += num_sources
        else:
            source[rows] = clusters.source[search.best(cell, position)[1]]
            num_scored += position.numel()
    rows = torch.cat(without_bounds)
    if rows.numel() > 0:
        source[rows] = _without_bounds(pairs.take(rows), k)
    return source


def normalise_ranks(ranks: PairScores) -> PairScores:
    r"""Centre embeddings, and scale most of them to entries of about 1.

    An inner product becomes :math:`z_i \cdot z_j - z_i \cdot c = (z_i - c) \cdot (z_j -
    c) + c \cdot (z_j - c)`, whose last term is an extra column.
    """
    dst, src = ranks.dst, ranks.src
    is_same = dst is src
    is_dot = ranks.comparison == 'dot'
    can_shift = ranks.response.monotonic != 0
    if can_shift:
        centre = _safe_centre(src, dst)
        src = src - centre
        dst = src if is_same else dst - centre
    size = torch.maximum(_typical_size(src, is_dot), _typical_size(dst, is_dot))
    size = torch.where(size > 0, size, 1)
    src = src / size
    dst = src if is_same else dst / size
    if is_dot and can_shift:
        along = _along(ranks.src, src, centre / size).unsqueeze(1)
        # A constant per target does not matter, and would cost precision.
        src = torch.cat([src, along - centre_of(along)], dim=1)
        dst = torch.cat([dst, dst.new_ones(dst.size(0), 1)], dim=1)
        # All are equally near to a row of zeros, rounding included.
        dst = dst * (ranks.dst != 0).any(dim=1, keepdim=True)
    # The centres of bells are inner products.
    response = ranks.response.map(lambda param: param / size.square())
    return ranks._replace(dst=dst, src=src, response=response)


def _safe_centre(src: Tensor, dst: Tensor) -> Tensor:
    """Return the centre of the sources, zero in columns where it would round rows."""
    centre = centre_of(src)
    for rows in (src,) if dst is src else (src, dst):
        error = (rows - centre + centre - rows).abs()
        is_lost = (error > _PRECISION * rows.abs()).any(dim=0)
        centre = centre.masked_fill(is_lost, 0)
    return centre


def _along(rows: Tensor, shifted: Tensor, centre: Tensor) -> Tensor:
    """Compute the inner products of shifted rows with the centre."""
    along = shifted @ centre
    # For unit rows the norms determine it, without the rows' rounding errors.
    is_unit = (rows.square().sum(dim=1) - 1).abs() < 1e-12
    if not bool(is_unit.any()):
        return along
    half_square = shifted.square().sum(dim=1) / 2
    constant = (along + half_square)[is_unit].mean()
    return torch.where(is_unit, constant - half_square, along)


def _typical_size(rows: Tensor, is_dot: bool) -> Tensor:
    """Return the largest finite entry, for distances in 90 % of the rows."""
    if rows.numel() == 0:
        return rows.new_zeros(())
    size = rows.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=1).sort().values
    largest, typical = size[-1], size[9 * (rows.size(0) - 1) // 10]
    is_typical = (typical > 0) & (not is_dot)
    # Double precision can square values 1e140 times as large.
    return torch.where(is_typical, typical.maximum(largest / 1e140), largest)


def in_single_precision(ranks: PairScores) -> PairScores:
    """Convert embeddings to single precision, clamping outliers."""

    def rounded(rows: Tensor) -> Tensor:
        return (rows if ranks.is_sparse else rows.clamp(-_LARGE, _LARGE)).float()

    src = rounded(ranks.src)
    dst = src if ranks.dst is ranks.src else rounded(ranks.dst)
    return ranks._replace(dst=dst, src=src, response=ranks.response.map(Tensor.float))


def _certified(
    ranks: PairScores, single: PairScores, k: int, longest: Tensor | None
) -> Tensor:
    """Return the best sources of a block of targets by scores in single precision."""
    rank = single.rows(slice(None))
    listed = rank.topk(k + _SPARE, dim=1)
    source, score = ranked(ranks, listed.indices)
    last = (source == listed.indices[:, -1:]).long().argmax(dim=1, keepdim=True)
    last_score = score.gather(1, last).squeeze(1)
    # The most by which a source that is not listed can exceed the k-th best.
    error = _rounding(ranks, single, last_score, longest)
    excess = last_score + error - score[:, k - 1]
    uncertain = (~(excess < 0)).nonzero().squeeze(1)
    if uncertain.numel() > 0:
        rank = rank if uncertain.numel() == rank.size(0) else rank[uncertain]
        floor = (listed.values[:, -1] - excess)[uncertain].to(rank.dtype)
        source[uncertain, :k] = _best_above(ranks.take(uncertain), rank, k, floor)
    return source[:, :k]


def _best_above(ranks: PairScores, rank: Tensor, k: int, floor: Tensor) -> Tensor:
    """Return the best sources among those whose given score is not below a floor."""
    # Not `>=`: NaN tells nothing about the order.
    count = (~(rank < floor.unsqueeze(1))).sum(dim=1, dtype=torch.int32)
    is_few = count <= _MAX_GATHERED * rank.size(1)
    source = torch.empty(rank.size(0), k, dtype=torch.long, device=rank.device)
    few, many = is_few.nonzero().squeeze(1), (~is_few).nonzero().squeeze(1)
    if few.numel() > 0:
        rank = rank if many.numel() == 0 else rank[few]
        listed = rank.topk(max(k, int(count[few].amax())), dim=1).indices
        source[few] = ranked(ranks.take(few), listed)[0][:, :k]
    if many.numel() > 0:
        source[many] = _rank_all(ranks.take(many), k)
    return source


def _rank_all(ranks: PairScores, k: int) -> Tensor:
    """Return the best sources of each target by the scores of all pairs."""
    score, source = ranks.best(min(k + _SPARE, ranks.available))
    if source.size(1) > k:
        tied = _tied(ranks, score, k, k)
        if tied.numel() > 0:
            listed = source[tied]
            source[tied, :k] = _first_of_ties(ranks.take(tied), listed, k)
    return source[:, :k]


def _first_of_ties(ranks: PairScores, source: Tensor, k: int) -> Tensor:
    """Return the first :obj:`k` of the listed best sources, ties by index.

    Where the last one may tie with the :obj:`k`-th, so may others: all are ranked.
    """
    source, score = ranked(ranks, source)
    is_complete = source.size(1) == ranks.available
    source = source[:, :k]
    if is_complete:
        return source
    tied = _tied(ranks, score, k, -1)
    every = torch.arange(ranks.src.size(0), device=source.device)
    bytes_per_row = 4 * every.numel() * score.element_size()
    for rows in row_blocks(tied.numel(), bytes_per_row, ranks.memory):
        target = tied[rows]
        listed = every.expand(target.numel(), -1)
        source[target] = ranked(ranks.take(target), listed)[0][:, :k]
    return source


def _tied(ranks: PairScores, score: Tensor, k: int, column: int) -> Tensor:
    """Return the targets whose score in a column equals the k-th, up to rounding."""
    last_score = score[:, k - 1]
    size = last_score.abs()
    if ranks.comparison == 'dot':
        size = size + row_norms(ranks.dst) * row_norms(ranks.src).amax()
    # The scores of listed pairs and those of all round differently.
    slack = 4 * (ranks.src.size(1) + 8) * torch.finfo(score.dtype).eps * size
    return (~(score[:, column] < last_score - slack)).nonzero().squeeze(1)


def ranked(pairs: PairScores, source: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the listed sources of each target by their scores, ties by index."""
    source = source.sort(dim=1).values
    score = pairs.listed(source)
    if pairs.excluded is not None:
        score = exclude(score, pairs.excluded, source)
    score, order = score.sort(dim=1, descending=True, stable=True)
    return source.gather(1, order), score


def _rounding(
    ranks: PairScores, single: PairScores, score: Tensor, longest: Tensor | None
) -> Tensor:
    """Bound the rounding error of the difference of two scores in single precision.

    One is the given score of a target, the other a better one. The norm of the longest
    source is needed unless distances are compared.
    """
    eps = torch.finfo(torch.float32).eps
    width = ranks.src.size(1)
    if isinstance(ranks.src, SparseRows):  # Only inner products.
        width = int(ranks.src.words.offsets.diff().amax())
    relative = 2 * (width + 8) * eps
    if longest is None:
        # No nearer source is farther from the centre, by the triangle inequality.
        length = row_norms(single.dst[:, :-1]) / 2
        largest = (2 * length + (-score).clamp(min=0).sqrt()).square()
    else:
        length = row_norms(ranks.dst)
        is_dot = ranks.comparison == 'dot'
        largest = length * longest if is_dot else (length + longest).square()
    error = relative * largest + 4 * eps * score.abs() + 1e-30
    for param in ranks.response.params:
        error = error + 4 * eps * param.abs()
    return error
