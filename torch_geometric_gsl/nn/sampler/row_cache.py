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
    sample_targets,
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
_MAX_ENTRIES = 6


Rows = tuple[Tensor, ...]
# The key of an entry, the rows from which it was computed, and the result.
_Entry = tuple[tuple[object, ...], Rows, Any]


class RowCache:
    """Cache bounds of scores, and compared edges, for equal rows.

    The cached values depend on the rows only and do not change any draw: new and used
    samplers draw the same. Copies and files omit the cache.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __reduce__(self) -> tuple[type[RowCache], tuple[()]]:
        return RowCache, ()

    @disable_compile  # The choice depends on values.
    @torch.no_grad()
    @outside_transforms
    def find_bounds(
        self, pairs: PairScores, options: DrawOptions
    ) -> tuple[Envelope, float]:
        """Find the cheapest bounds, and the number of proposals of a race with them.

        A head is that of a few targets, as all take long, which
        :meth:`complete_bounds` finds.

        Args:
            pairs (PairScores): The scores of all pairs of a graph.
            options (DrawOptions): The options of the draw.
        """
        sample = sample_targets(pairs, options)

        def measure(*bounds: Any) -> tuple[float, float, Envelope]:
            envelope = make_envelope(pairs, *bounds)
            expected = num_expected(sample, envelope)
            cost = options.num_races * expected + BOUND * envelope.num_bounds
            return cost, expected, envelope

        trials = [measure()]
        num_sources = pairs.src.size(0)
        sizes = []
        if pairs.has_clusters:
            size = num_clusters(num_sources)
            sizes = [size // 2, size] if size // 2 >= _FEW_CLUSTERS else [size]
        for size in sizes:
            compute = partial(k_means, pairs.src, size)
            key = 'clusters', size
            trials.append(measure(self._recall(key, (pairs.src,), compute)))
            if options.num_races * trials[-1][1] < BOUND * (sizes[-1] - size):
                break  # More bounds would cost more than they save.
        has_head = pairs.response.head_sign != 0 and num_sources > 2 * _HEAD
        accepted = options.num_races * options.num_arrivals
        cost, *_ = min(trials, key=itemgetter(0))
        if has_head and cost - accepted > HEAD_SEARCH * num_sources:
            trials.append(measure(None, find_nearest(sample.pairs, _HEAD)))
        _, expected, envelope = min(trials, key=itemgetter(0))
        return envelope, expected

    @disable_compile
    @torch.no_grad()
    @outside_transforms
    def complete_bounds(self, pairs: PairScores, envelope: Envelope) -> Envelope:
        """Return bounds of all targets, given those of :meth:`find_bounds`."""
        if envelope.head is None:
            return envelope
        key = 'head', pairs.comparison, pairs.response.head_sign
        head = self._recall(key, _rows(pairs), partial(find_nearest, pairs, _HEAD))
        return envelope._replace(head=head)

    def compare_edges(self, pairs: PairScores, edge_index: Tensor) -> Tensor:
        """Compare the pairs of a list of edges; cache the result for constant rows."""
        compute = partial(pairs.compare_edges, edge_index)
        is_trained = not pairs.is_sparse and (
            pairs.src.requires_grad or pairs.dst.requires_grad
        )
        # Without gradients, constant rows cannot be recognised.
        if is_trained or not (pairs.is_sparse or torch.is_grad_enabled()):
            return compute()
        rows = *_rows(pairs), edge_index
        value: Tensor = self._recall(('edges', pairs.comparison), rows, compute)
        return value

    def _recall(
        self, key: tuple[object, ...], rows: Rows, compute: Callable[[], Any]
    ) -> Any:
        """Return what was computed from equal rows, or compute it."""
        entry = None
        for cached in self._entries:
            is_alike = cached[0] == key and len(cached[1]) == len(rows)
            if is_alike and all(map(_is_equal, cached[1], rows)):
                entry = cached
                break
        if entry is None and torch.is_inference_mode_enabled():
            return compute()  # Values computed here carry no gradient later.
        if entry is None:
            # Copies: rows changed in place must differ from the cached ones.
            entry = key, tuple(x.detach().clone() for x in rows), compute()
        older = [cached for cached in self._entries if cached is not entry]
        self._entries = [*older, entry][-_MAX_ENTRIES:]
        return entry[-1]


def _rows(pairs: PairScores) -> Rows:
    return (pairs.src,) if pairs.dst is pairs.src else (pairs.src, pairs.dst)


def _is_equal(cached: Tensor, rows: Tensor) -> bool:
    if cached.device != rows.device or cached.dtype != rows.dtype:
        return False
    if isinstance(cached, SparseRows) or isinstance(rows, SparseRows):
        is_sparse = isinstance(cached, SparseRows) and isinstance(rows, SparseRows)
        return is_sparse and cast(SparseRows, cached).equals(cast(SparseRows, rows))
    return torch.equal(cached, rows)
