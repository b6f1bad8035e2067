r"""Noise-free weights: the k nearest sources, sums over all sources, and entropies.

The softmax of the scores is not the expectation of the draws: the relaxation is not
linear in the noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.edges import Spread, candidate_null_share, rank_in_group
from torch_geometric_gsl.ops.pair_scores import PairScores, with_null
from torch_geometric_gsl.ops.runtime import (
    cache_budget,
    disable_compile,
    recomputed,
    row_blocks,
)
from torch_geometric_gsl.ops.search import best_sources
from torch_geometric_gsl.typing import SampledGraph

# Weights of e^-40 times small messages are far above the underflow of float32.
_MAX_RANGE = 40.0
# Sources of a tile.
_TILE = 1024
# Fewer pairs are summed by whole rows.
_MIN_PAIRS = 2**23
# The number of targets on which the error of an estimate is measured.
_ERROR_TARGETS = 256


def noise_free_weights(score: Tensor, tau: float, null: Tensor | None = None) -> Tensor:
    r"""Compute the noise-free weights :math:`\mathrm{softmax}_j(s_{ij} / \tau)`.

    A null neighbour takes part; its weight is not returned.
    """
    weight = torch.softmax(with_null(score, null) / tau, dim=-1)
    return weight[:, : score.size(1)]


def nearest_graph(pairs: PairScores, k: int, tau: float) -> SampledGraph:
    """Return the :obj:`k` best sources of each target, with their noise-free weights.

    The caller handles a null neighbour: weights of a target sum to 1.
    """
    source = best_sources(pairs, min(k, pairs.available))
    # Only the scores of these pairs are recomputed with gradients.
    return neighbour_graph(source, noise_free_weights(pairs.listed(source), tau))


def nearest_candidates(
    score: Tensor,
    edge_index: Tensor,
    num_targets: int,
    k: int | None,
    tau: float,
    null: Tensor | None = None,
    rank: Tensor | None = None,
) -> SampledGraph:
    r"""Return the best candidates, :obj:`k` or all, with noise-free weights.

    Candidates are those of :func:`~torch_geometric_gsl.ops.dense.candidate_graph`,
    ordered by descending :obj:`rank`, as scores may saturate. A null neighbour has its
    weight among all candidates, and the neighbours share the rest.
    """
    is_candidate = score != -torch.inf
    rank = (score if rank is None else rank).detach()[is_candidate]
    logit = score[is_candidate] / tau
    edge_index = edge_index[:, is_candidate]
    is_near: Tensor | slice = slice(None)
    if k is not None:
        is_near = rank_in_group(rank, edge_index[1]) < k
    edges = edge_index[:, is_near]
    weight = softmax(logit[is_near], edges[1], num_nodes=num_targets)
    if null is not None:
        null_share = candidate_null_share(logit, edge_index[1], null / tau, num_targets)
        weight = weight * (1 - null_share)[edges[1]].to(weight.dtype)
    return SampledGraph(edges, weight)


@disable_compile
def noise_free_sum(h: Tensor, pairs: PairScores, tau: float) -> Tensor:
    r"""Sum all sources with their noise-free weights, in blocks of rows.

    .. math::
        \sum_j \mathrm{softmax}_j \left( s_{ij} / \tau \right) h_j

    Without gradients many scores are summed tile by tile.
    """
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    has_gradient = torch.is_grad_enabled()
    is_large = num_targets * num_sources >= _MIN_PAIRS
    if is_large and not has_gradient and is_narrow(pairs, tau):
        return _tiled_sum(h, pairs, tau)
    bytes_per_row = 4 * num_sources * pairs.dst.element_size()
    blocks = row_blocks(num_targets, bytes_per_row, pairs.memory)
    if len(blocks) <= 1:
        return _rows_sum(h, pairs, tau, slice(None))
    rows_sum = _rows_sum
    if has_gradient:  # The weights of blocks are recomputed, not stored.
        rows_sum = recomputed(_rows_sum)
    else:  # Of nearly one size.
        blocks = row_blocks(num_targets, 1, -(-num_targets // len(blocks)))
    return torch.cat([rows_sum(h, pairs, tau, rows) for rows in blocks])


def is_narrow(pairs: PairScores, tau: float) -> bool:
    """Return whether weights relative to the largest neither overflow nor vanish."""
    spread = pairs.upper - pairs.lower
    if pairs.null is not None:
        spread = max(spread, pairs.null - pairs.upper)
    return bool(spread <= _MAX_RANGE * tau)


def _rows_sum(h: Tensor, pairs: PairScores, tau: float, rows: slice) -> Tensor:
    return noise_free_weights(pairs.rows(rows), tau, pairs.null).to(h.dtype) @ h


def _tiled_sum(h: Tensor, pairs: PairScores, tau: float) -> Tensor:
    """Sum weights and weighted messages at once, tile by tile."""
    dtype = torch.promote_types(h.dtype, pairs.dst.dtype)
    full = torch.cat([h.to(dtype), h.new_ones(h.size(0), 1, dtype=dtype)], dim=1)
    out = full.new_zeros(pairs.dst.size(0), full.size(1))
    bytes_per_row = 4 * min(_TILE, pairs.src.size(0)) * pairs.dst.element_size()
    budget = cache_budget(pairs.memory, full.device)
    for rows in row_blocks(out.size(0), bytes_per_row, budget):
        for columns in row_blocks(full.size(0), 1, _TILE):
            weight = pairs.weights(rows, columns, tau)
            if pairs.excluded is not None:
                excluded = pairs.excluded[rows].unsqueeze(1) - columns.start
                column = excluded.clamp(0, weight.size(1) - 1)
                is_inside = excluded == column
                value = weight.gather(1, column).masked_fill_(is_inside, 0)
                weight.scatter_(1, column, value)
            out[rows].addmm_(weight.to(dtype), full[columns])
    if pairs.null is not None:
        out[:, -1] += ((pairs.null - pairs.upper) / tau).exp()
    return (out[:, :-1] / out[:, -1:]).to(h.dtype)


def sample_sources(
    pairs: PairScores, tau: float, num_samples: int
) -> tuple[Tensor, PairScores]:
    r"""Sample :math:`S` of the sources, sorted, the same ones in each call.

    The score of a null neighbour is lowered to match the sampled share.
    """
    generator = torch.Generator(pairs.dst.device).manual_seed(0)
    order = torch.randperm(
        pairs.src.size(0), device=pairs.dst.device, generator=generator
    )
    source = order[:num_samples].sort().values
    sample = pairs.select(source)
    if pairs.null is not None:
        share = tau * math.log(num_samples / pairs.src.size(0))
        sample = sample._replace(null=pairs.null + share)
    return source, sample


def sampled_noise_free_sum(
    h: Tensor, pairs: PairScores, tau: float, num_samples: int
) -> tuple[Tensor, Tensor]:
    r"""Estimate :func:`noise_free_sum` from some of the sources.

    Samples :math:`S` distinct sources, the same for all targets and in each call.

    .. math::
        o_i = \sum_{j \in S} w_{ij} h_j, \qquad
        w_{ij} = \mathrm{softmax}_{j \in S} (s_{ij} / \tau)

    Also returns the root mean square error of about 256 targets, which are summed
    exactly as well: the weights of the sample do not show that it lacks a target's few
    heavy sources.
    """
    source, sample = sample_sources(pairs, tau, num_samples)
    out = noise_free_sum(h[source].to(pairs.dst.dtype), sample, tau)
    step = max(1, pairs.dst.size(0) // _ERROR_TARGETS)
    targets = torch.arange(0, pairs.dst.size(0), step, device=h.device)
    with torch.no_grad():
        exact = noise_free_sum(h.to(pairs.dst.dtype), pairs.take(targets), tau)
    error = (exact - out.detach()[targets]).square().mean().sqrt()
    return out.to(h.dtype), error


@torch.no_grad()
def score_spread(pairs: PairScores) -> tuple[Spread, Tensor | None]:
    r"""Compute the spread of :math:`\pi_i = \mathrm{softmax}_j(s_{ij})`.

    Also returns the probability of each target's null neighbour, if there is one.
    """
    empty = torch.empty(0, dtype=torch.double, device=pairs.src.device)
    entropies = [empty]
    null_shares = [empty]
    bytes_per_row = 4 * pairs.src.size(0) * pairs.src.element_size()
    for rows in row_blocks(pairs.dst.size(0), bytes_per_row, pairs.memory):
        score = pairs.rows(rows)
        surprise = torch.special.entr(score.softmax(dim=-1))
        entropies.append(surprise.sum(dim=-1).double())
        if pairs.null is not None:
            log_odds = pairs.null.double() - score.double().logsumexp(dim=-1)
            null_shares.append(log_odds.sigmoid())
    entropy = torch.cat(entropies)
    null_share = None if pairs.null is None else torch.cat(null_shares)
    return Spread(entropy, entropy.exp()), null_share
