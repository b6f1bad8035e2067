r"""The best candidates of each target: found in single precision, decided in double.

Single precision loses near candidates where rows are far from the origin, and where
there are many rows of few columns. So it finds a few candidates more than are kept;
double precision orders them, and a bound of the rounding errors tells for which targets
another candidate could be as good. Only these are compared again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.ops.clusters import k_means, num_clusters
from torch_geometric_gsl.ops.knn import nearest_by_bounds, top_k
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.ops.sparse_rows import SparseRows, row_norms

# Candidates that are found beside those that are kept.
_SPARE = 8
# So few pairs are compared in double precision at once.
_FEW = 2**18
# Targets that tell whether single precision serves.
_PROBED = 256
# The nearest among so many pairs are found by bounds.
_BOUNDED = 2**27


@torch.no_grad()
def best_sources(
    pairs: PairScores, k: int, *, memory_budget: int = MEMORY_BUDGET
) -> Tensor:
    r"""Return the :obj:`k` best sources of each target, best first.

    Monotonic responses and bells are ranked by what they compare, inner products or
    distances, and do not saturate. Embeddings in double precision are ranked as
    precisely.

    Args:
        pairs (PairScores): The scores.
        k (int): How many sources to keep, at most :obj:`pairs.available`.
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)

    Returns:
        torch.Tensor: Sources :math:`[n, k]`.

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
    ranks = pairs.ranking
    if pairs.dst.dtype != torch.float64 or not ranks.response.is_lipschitz:
        return _search(ranks, k, memory_budget)
    ranks = ranks if pairs.is_sparse else normalise_ranks(ranks)
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    if num_targets * num_sources <= _FEW or k + _SPARE > pairs.available:
        return top_k(ranks, k, memory_budget=memory_budget)
    every = torch.arange(num_targets, device=pairs.dst.device)
    probed = every[:: max(1, num_targets // _PROBED)]
    _, is_certain = _certified(ranks.take(probed), k, memory_budget)
    if 2 * int(is_certain.sum()) < probed.numel():
        return _search(ranks, k, memory_budget)
    found, is_certain = _certified(ranks, k, memory_budget)
    rest = (~is_certain).nonzero().squeeze(1)
    if rest.numel() > 0:
        found[rest] = top_k(ranks.take(rest), k, memory_budget=memory_budget)
    return found


def _search(ranks: PairScores, k: int, memory_budget: int) -> Tensor:
    num_sources = ranks.src.size(0)
    if ranks.has_clusters and ranks.dst.size(0) * num_sources >= _BOUNDED:
        clusters = k_means(ranks.src, num_clusters(num_sources))
        return nearest_by_bounds(ranks, k, clusters, memory_budget=memory_budget)
    return top_k(ranks, k, memory_budget=memory_budget)


def normalise_ranks(ranks: PairScores) -> PairScores:
    r"""Move embeddings to the origin, and scale them to entries of at most about 1.

    An inner product becomes :math:`z_i \cdot z_j - z_i \cdot c = (z_i - c) \cdot
    (z_j - c) + c \cdot (z_j - c)`, whose last term is one more column.
    """
    dst, src = ranks.dst, ranks.src
    is_own, is_dot = dst is src, ranks.comparison == 'dot'
    can_shift = ranks.response.monotonic != 0
    if can_shift:
        centre = (src / src.size(0)).sum(dim=0)
        src = src - centre
        dst = src if is_own else dst - centre
    largest = torch.maximum(_largest(src), _largest(dst))
    src = src / largest
    dst = src if is_own else dst / largest
    if is_dot and can_shift:
        along = _along(ranks.src, src, centre / largest)
        src = torch.cat([src, along.unsqueeze(1)], dim=1)
        dst = torch.cat([dst, dst.new_ones(dst.size(0), 1)], dim=1)
        # All are as near to a row of zeros: not even rounding tells them apart.
        dst = dst * (ranks.dst != 0).any(dim=1, keepdim=True)
    # The centres of bells are inner products.
    params = [param / largest.square() for param in ranks.response.params]
    return ranks._replace(dst=dst, src=src, response=type(ranks.response)(*params))


def _along(rows: Tensor, shifted: Tensor, centre: Tensor) -> Tensor:
    """Return the inner products of shifted rows with the centre."""
    along = shifted @ centre
    # Of unit rows the lengths tell it, without the rounding errors of the rows.
    is_unit = (rows.square().sum(dim=1) - 1).abs() < 1e-12
    if not bool(is_unit.any()):
        return along
    whole = (along + shifted.square().sum(dim=1) / 2)[is_unit].mean()
    return torch.where(is_unit, whole - shifted.square().sum(dim=1) / 2, along)


def _largest(x: Tensor) -> Tensor:
    largest = x.abs().amax() if x.numel() > 0 else x.new_zeros(())
    return torch.where(largest > 0, largest, 1)


def in_single_precision(ranks: PairScores) -> PairScores:
    """Return scores whose embeddings are rounded to single precision."""
    src = ranks.src.float()
    dst = src if ranks.dst is ranks.src else ranks.dst.float()
    params = [param.float() for param in ranks.response.params]
    return ranks._replace(dst=dst, src=src, response=type(ranks.response)(*params))


def _certified(ranks: PairScores, k: int, memory_budget: int) -> tuple[Tensor, Tensor]:
    """Return the best sources of each target, and whether no other can be as good."""
    source = _search(in_single_precision(ranks), k + _SPARE, memory_budget)
    listed = Neighbours(source, ranks.src.size(0), memory_budget=memory_budget)
    score = ranks.pairs(slice(None), listed)
    others = _bound_of_others(ranks, score[:, -1:])
    # Ties go to the first sources.
    source, place = source.sort(dim=1)
    score, order = score.gather(1, place).sort(dim=1, descending=True, stable=True)
    return source.gather(1, order)[:, :k], score[:, k - 1] > others


def _bound_of_others(ranks: PairScores, score: Tensor) -> Tensor:
    """Bound the scores of all sources that single precision puts behind one."""
    eps = torch.finfo(torch.float32).eps
    # The errors of that one and of the other.
    relative = 2 * (_width(ranks.src) + 8) * eps
    length, longest = row_norms(ranks.dst).unsqueeze(1), row_norms(ranks.src).amax()
    if ranks.comparison == 'squared_distance':
        shift = 2 * eps * (length + longest) + 1e-18
        nearest = (-score).clamp(min=0).sqrt() * (1 - relative) - shift
        return -nearest.clamp(min=0).square().squeeze(1)
    error = relative * length * longest + 4 * eps * score.abs() + 1e-30
    for param in ranks.response.params:
        error = error + 4 * eps * param.abs().unsqueeze(1)
    return (score + error).squeeze(1)


def _width(rows: Tensor) -> int:
    """Return the number of products of an inner product, at the most."""
    if isinstance(rows, SparseRows):
        return int(rows.words.offsets.diff().amax())
    return rows.size(1)
