from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.utils import cumsum

from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks, rows_per_block
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.fused import FusedScore
from torch_geometric_gsl.ops.pairs import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.precision import full_precision
from torch_geometric_gsl.ops.relaxed import expected_weights
from torch_geometric_gsl.ops.scorer import Scorer

# Weights of e^-40 times small messages are still far from what float32 rounds to zero.
_MAX_RANGE = 40.0
# Sources of a tile: as many as stay in a processor's cache.
_TILE = 4096
# Compiling a tile takes seconds, which sums over so many pairs win back.
_MIN_PAIRS = 2**23
# The error of an estimate is that of about so many targets.
_ERROR_TARGETS = 256


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
    offsets = cumsum(torch.bincount(edge_index[1], minlength=num_targets))
    neighbours = Neighbours(edge_index[0], h.size(0), offsets)
    full = full_precision(h)
    return neighbour_sum(full, edge_weight.to(full.dtype), neighbours).to(h.dtype)


@eager
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

    Without a gradient to compute, many scores given by a formula are summed tile by
    tile.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        scorer (Scorer): The scores.
        tau (float): The temperature.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    num_targets, num_sources = scorer.size
    if not torch.is_grad_enabled():
        return _exact_sum(h, scorer, tau, slice(0, num_targets), memory_budget)

    bytes_per_row = 4 * num_sources * scorer.dtype.itemsize
    rows = list(row_blocks(num_targets, bytes_per_row, memory_budget))
    run = _rows_sum
    if len(rows) > 1:
        # The weights of one of many blocks are computed again, not kept.
        run = partial(
            checkpoint, _rows_sum, use_reentrant=False, preserve_rng_state=False
        )
    blocks = [run(h, scorer, tau, part) for part in rows]
    return torch.cat(blocks) if blocks else h.new_empty(0, h.size(1))


@eager
@torch.no_grad()
def _exact_sum(
    h: Tensor, scorer: Scorer, tau: float, targets: slice, memory_budget: int
) -> Tensor:
    """Sums all sources of some of the targets, without gradient."""
    fused, (num_targets, num_sources) = scorer.fused, scorer.size
    listed = range(num_targets)[targets]
    # Weights relative to the upper bound of the scores neither overflow nor vanish.
    is_narrow = scorer.upper - scorer.lower <= _MAX_RANGE * tau
    is_large = len(listed) * num_sources >= _MIN_PAIRS
    if fused is not None and is_narrow and is_large:
        with torch.autocast(scorer.device.type, enabled=False):
            return _tiled_sum(h, scorer, fused, tau, listed, memory_budget)
    height = rows_per_block(4 * num_sources * scorer.dtype.itemsize, memory_budget)
    out = h.new_empty(len(listed), h.size(1))
    for part in _equal_blocks(len(listed), height):
        out[part] = _rows_sum(h, scorer, tau, _slice_of(listed[part]))
    return out


def _rows_sum(h: Tensor, scorer: Scorer, tau: float, rows: slice) -> Tensor:
    return expected_weights(scorer.rows(rows), tau).to(h.dtype) @ h


def _tiled_sum(
    h: Tensor,
    scorer: Scorer,
    fused: FusedScore,
    tau: float,
    listed: range,
    memory_budget: int,
) -> Tensor:
    """Sums weights and weighted messages at once, tile by tile."""
    dtype = torch.promote_types(h.dtype, scorer.dtype)
    full = torch.cat([h.to(dtype), h.new_ones(h.size(0), 1, dtype=dtype)], dim=1)
    out = full.new_zeros(len(listed), full.size(1))
    width = min(_TILE, scorer.size[1])
    height = rows_per_block(4 * width * scorer.dtype.itemsize, memory_budget)
    for part in _equal_blocks(len(listed), height):
        total, rows = out[part], _slice_of(listed[part])
        for columns in _equal_blocks(full.size(0), width):
            weight = fused.weights(rows, columns, tau, scorer.upper)
            if scorer.excluded is not None:
                own = scorer.excluded[rows].unsqueeze(1) - columns.start
                place = own.clamp(0, weight.size(1) - 1)
                kept = weight.gather(1, place).masked_fill_(own == place, 0)
                weight.scatter_(1, place, kept)
            total.addmm_(weight.to(dtype), full[columns])
    return (out[:, :-1] / out[:, -1:]).to(h.dtype)


def _equal_blocks(size: int, most: int) -> Iterator[slice]:
    """Blocks of nearly one size: each odd one would be compiled anew."""
    count = -(-size // most)
    return row_blocks(size, 1, -(-size // max(1, count)))


def _slice_of(listed: range) -> slice:
    return slice(listed.start, listed.stop, listed.step)


def sampled_expected_sum(
    h: Tensor,
    scorer: Scorer,
    tau: float,
    num_samples: int,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> tuple[Tensor, Tensor]:
    r"""Estimates :func:`expected_sum` from some of the sources.

    :math:`S` distinct sources are drawn at random, the same for all targets and in each
    call.

    .. math::
        o_i = \sum_{j \in S} w_{ij} h_j, \qquad
        w_{ij} = \mathrm{softmax}_{j \in S} (s_{ij} / \tau)

    About 256 of the targets are summed exactly as well, to tell the error: weights of
    the sample alone would not show that it lacks a target's few heavy sources.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        scorer (Scorer): The scores.
        tau (float): The temperature.
        num_samples (int): The number of samples :math:`S`.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        tuple[torch.Tensor, torch.Tensor]: The sums :math:`[n, m]`, and the root mean
        square of the errors of those targets.
    """
    generator = torch.Generator(scorer.device).manual_seed(0)
    order = torch.randperm(scorer.size[1], device=scorer.device, generator=generator)
    source = order[:num_samples]
    sample, some = scorer.select(source), h[source].to(scorer.dtype)
    out = expected_sum(some, sample, tau, memory_budget=memory_budget)
    error = _error_of_some(out, h.to(scorer.dtype), scorer, tau, memory_budget)
    return out.to(h.dtype), error


def _error_of_some(
    out: Tensor, h: Tensor, scorer: Scorer, tau: float, memory_budget: int
) -> Tensor:
    """The root mean square error of the sums of some targets, over all channels."""
    num_targets = scorer.size[0]
    some = slice(0, num_targets, max(1, num_targets // _ERROR_TARGETS))
    exact = _exact_sum(h, scorer, tau, some, memory_budget)
    return (exact - out.detach()[some]).square().mean().sqrt()
