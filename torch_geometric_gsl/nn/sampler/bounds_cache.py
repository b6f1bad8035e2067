"""Cache for bounds of sharp scores and for compared edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, cast

import torch
from torch import Tensor

from torch_geometric_gsl.nn.sampler.plan import BOUND, HEAD_SEARCH
from torch_geometric_gsl.ops.clusters import k_means, num_clusters
from torch_geometric_gsl.ops.envelope import (
    Envelope,
    find_nearest,
    make_envelope,
    num_expected,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile, outside_transforms
from torch_geometric_gsl.ops.sparse_rows import SparseRows

# The number of candidates in a list.
_HEAD = 64
# From this number of clusters on, try fewer before all.
_FEW_CLUSTERS = 128
# Two layers, or two sets of nodes, with clusters of two numbers and heads.
_MOST_KEPT = 6


Rows = tuple[Tensor, ...]
# What an entry holds, the rows from which it was computed, and the result.
_Entry = tuple[tuple[object, ...], Rows, Any]


class BoundsCache:
    """Cache bounds of scores, and compared edges, for equal rows.

    The cached values depend on the rows only and do not change any draw: new and used
    samplers draw the same. Copies and files omit the cache.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __reduce__(self) -> tuple[type[BoundsCache], tuple[()]]:
        return BoundsCache, ()

    @disable_compile  # The choice depends on values.
    @torch.no_grad()
    @outside_transforms
    def best(self, pairs: PairScores, options: DrawOptions) -> tuple[Envelope, float]:
        """Find the cheapest bounds, and the number of proposals of a race with them.

        Args:
            pairs (PairScores): The scores of all pairs of a graph.
            options (DrawOptions): The options of the draw.
        """

        def measure(*bounds: Any) -> tuple[float, float, Envelope]:
            envelope = make_envelope(pairs, *bounds)
            expected = num_expected(pairs, envelope, options)
            cost = options.num_races * expected + BOUND * envelope.num_kinds
            return cost, expected, envelope

        found = [measure()]
        for number, more in _cluster_numbers(pairs):
            find = partial(k_means, pairs.src, number)
            found.append(measure(self._find(('clusters', number), (pairs.src,), find)))
            if options.num_races * found[-1][1] < BOUND * more:
                break  # More bounds would cost more than they save.
        num_sources = pairs.src.size(0)
        has_head = pairs.response.head_sign != 0 and num_sources > 2 * _HEAD
        accepted = options.num_races * options.num_arrivals
        least = min(cost for cost, *_ in found)
        if has_head and least - accepted > HEAD_SEARCH * num_sources:
            kind = 'head', pairs.comparison, pairs.response.head_sign
            find_head = partial(find_nearest, pairs, _HEAD)
            found.append(measure(None, self._find(kind, _rows(pairs), find_head)))
        _, expected, envelope = min(found, key=itemgetter(0))
        return envelope, expected

    def compare_edges(self, pairs: PairScores, edge_index: Tensor) -> Tensor:
        """Compare the pairs of a list of edges; cache the result for constant rows."""
        find = partial(pairs.compare_edges, edge_index)
        is_trained = not pairs.is_sparse and (
            pairs.src.requires_grad or pairs.dst.requires_grad
        )
        # Without gradients, constant rows cannot be recognised.
        if is_trained or not (pairs.is_sparse or torch.is_grad_enabled()):
            return find()
        rows = *_rows(pairs), edge_index
        found: Tensor = self._find(('edges', pairs.comparison), rows, find)
        return found

    def _find(
        self, kind: tuple[object, ...], rows: Rows, find: Callable[[], Any]
    ) -> Any:
        entry = None
        for other in self._entries:
            is_alike = other[0] == kind and len(other[1]) == len(rows)
            if is_alike and all(map(_is_equal, other[1], rows)):
                entry = other
                break
        if entry is None and torch.is_inference_mode_enabled():
            return find()  # Values computed here carry no gradient later.
        if entry is None:
            # Copies: rows changed in place must differ from the cached ones.
            entry = kind, tuple(x.detach().clone() for x in rows), find()
        others = [e for e in self._entries if e is not entry]
        self._entries = [*others, entry][-_MOST_KEPT:]
        return entry[-1]


def _cluster_numbers(pairs: PairScores) -> list[tuple[int, int]]:
    """Return the numbers of clusters to try, each with its difference to the next."""
    if not pairs.has_clusters:
        return []
    number = num_clusters(pairs.src.size(0))
    few = number // 2
    return [(few, number - few), (number, 0)] if few >= _FEW_CLUSTERS else [(number, 0)]


def _rows(pairs: PairScores) -> Rows:
    return (pairs.src,) if pairs.dst is pairs.src else (pairs.src, pairs.dst)


def _is_equal(kept: Tensor, rows: Tensor) -> bool:
    if kept.device != rows.device or kept.dtype != rows.dtype:
        return False
    if isinstance(kept, SparseRows) or isinstance(rows, SparseRows):
        is_sparse = isinstance(kept, SparseRows) and isinstance(rows, SparseRows)
        return is_sparse and cast(SparseRows, kept).equals(cast(SparseRows, rows))
    return torch.equal(kept, rows)
