"""Bounds of sharp scores: what a sampler keeps of them from one call to the next."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.nn.sampler.plan import CallOptions, SamplingPlan
from torch_geometric_gsl.ops.clusters import Clusters, k_means, num_clusters
from torch_geometric_gsl.ops.envelope import Envelope, make_envelope, num_expected
from torch_geometric_gsl.ops.nearest_lists import NearestLists, find_nearest
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.scan import SHARE

# What the parts of a call cost, in proposals, of which each takes about 0.1 us of one
# core: a bound of a cluster, a comparison of a search of the nearest, the rate of a
# candidate, an arrival that is drawn from all rates, and a source of a tail that is
# proposed by bounds.
BOUND, SEARCH, RATE, ARRIVAL, TAIL = 0.15, 0.08, 0.03, 1.0, 3.0
# Bounds of so many pairs of sizes are kept: two for a layer with transition nodes.
_MOST_KEPT = 4
_CALLS_PER_READ = 64
# The number of candidates of a head.
_HEAD = 64


class Nodes(NamedTuple):
    """Describe nodes: bounds serve again for those of the same description."""

    num_targets: int
    num_sources: int
    device: torch.device
    is_sparse: bool
    has_clusters: bool

    @classmethod
    def of(cls, pairs: PairScores) -> Nodes:
        device, is_sparse = pairs.dst.device, pairs.is_sparse
        sizes = pairs.dst.size(0), pairs.src.size(0)
        return cls(*sizes, device, is_sparse, pairs.has_clusters)


class Kept(NamedTuple):
    """Keep what was found for the embeddings of an earlier call."""

    clusters: Clusters | None = None
    lists: NearestLists | None = None
    # The mean number of proposals of a race with them, then; and what their growth has
    # cost since.
    num_expected: float = 0.0
    excess: float = 0.0
    # What it was found for.
    nodes: Nodes | None = None

    def envelope(self, pairs: PairScores) -> Envelope:
        """Return the bounds of today's embeddings."""
        head = None if self.lists is None else self.lists.head(pairs)
        return make_envelope(pairs, self.clusters, head)

    @property
    def num_kinds(self) -> int:
        """Return the number of kinds of proposals."""
        if self.lists is not None:
            return 1 + self.lists.source.size(1)
        return 1 if self.clusters is None else self.clusters.size.numel()

    def serves(self, pairs: PairScores) -> bool:
        """Return whether it bounds the scores of as many nodes of the same kind."""
        is_found = self.lists is None or self.lists.serves(pairs)
        return is_found and self.nodes == Nodes.of(pairs)


class EnvelopeMemory:
    """Bounds of graphs, renewed when old ones have cost more than new ones do.

    Bounds are exact however old they are; only the number of proposals grows.
    """

    def __init__(self) -> None:
        self._all: list[Kept] = []
        self._scale, self._num_reads = 0.0, 0

    @property
    def kept(self) -> Kept:
        """Return what is kept of the last call that asked for bounds."""
        return self._all[-1] if self._all else Kept()

    def copy(self) -> EnvelopeMemory:
        """Return a memory of the same bounds, which goes its own way."""
        memory = EnvelopeMemory()
        memory._all = list(self._all)
        memory._scale, memory._num_reads = self._scale, self._num_reads
        return memory

    def read(self, scale: float | Tensor) -> float:
        """Return a factor as a number for the plan, on a GPU that of a recent call."""
        # Reading waits for the device. No race depends on what was read.
        if not isinstance(scale, Tensor):
            return scale
        if not scale.is_cuda or self._num_reads % _CALLS_PER_READ == 0:
            self._scale = float(scale.detach())
        self._num_reads += 1
        return self._scale

    @disable_compile  # Whether to renew is decided by values.
    def plan(
        self,
        pairs: PairScores,
        given: CallOptions,
        plan: SamplingPlan,
        options: DrawOptions,
    ) -> tuple[Envelope | None, SamplingPlan]:
        """Let a race serve a call where it was asked for or costs less than the plan.

        Args:
            pairs (PairScores): The scores of all pairs of a graph.
            given (CallOptions): The options of the call.
            plan (SamplingPlan): What serves without better bounds.
            options (DrawOptions): How neighbours are drawn.
        """
        envelope, expected = self.envelope(pairs, options)
        num_tail = 0 if envelope.clusters is None else options.num_tail
        race = options.num_races * (expected + TAIL * num_tail)
        race += BOUND * envelope.num_kinds
        num_sources = pairs.src.size(0)
        stream = cost_of_stream(options, num_sources)
        # Slow races end with a look at all candidates.
        race += stream * expected * SHARE / num_sources
        reason = (
            f'{expected:.3g} proposals a draw under {envelope} cost '
            f'{race / stream:.2g} of what a stream does'
        )
        if race <= stream:
            return envelope, plan._replace(
                method='race', reason=reason, num_proposals=expected
            )
        method = 'race' if given.method == 'race' else 'stream'
        num_proposals = 0.0 if method == 'race' else None
        plan = plan._replace(method=method, reason=reason, num_proposals=num_proposals)
        return None, plan

    @torch.no_grad()
    def envelope(
        self, pairs: PairScores, options: DrawOptions
    ) -> tuple[Envelope, float]:
        """Return bounds, and the mean number of proposals of a race under them.

        Args:
            pairs (PairScores): The scores of all pairs of a graph.
            options (DrawOptions): How neighbours are drawn.
        """
        others = [kept for kept in self._all if not kept.serves(pairs)]
        found = [kept for kept in self._all if kept.serves(pairs)]
        kept = found[0] if found else _renew(pairs, options)
        envelope = kept.envelope(pairs)
        expected = num_expected(pairs, envelope, options)
        growth = (expected - kept.num_expected) * options.num_races * pairs.dst.size(0)
        excess = kept.excess + growth
        if excess > _cost_of_renewal(pairs, kept):
            kept = _renew(pairs, options)
            envelope, expected, excess = kept.envelope(pairs), kept.num_expected, 0.0
        kept = kept._replace(excess=max(0.0, excess))
        self._all = [*others, kept][-_MOST_KEPT:]
        return envelope, expected


def cost_of_stream(options: DrawOptions, num_sources: int) -> float:
    """Return what a look at all candidates of a target costs, in proposals."""
    drawn = options.num_races * options.num_arrivals
    return (SEARCH + RATE) * num_sources + ARRIVAL * drawn


def _cost_of_renewal(pairs: PairScores, kept: Kept) -> float:
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    if kept.lists is not None:
        return SEARCH * num_targets * num_sources
    return BOUND * num_sources * num_clusters(num_sources)


def _renew(pairs: PairScores, options: DrawOptions) -> Kept:
    """Find the bounds that cost least: of all scores, of clusters, or lists."""

    def cost(kept: Kept) -> float:
        return options.num_races * kept.num_expected + BOUND * kept.num_kinds

    def measured(kept: Kept) -> Kept:
        expected = num_expected(pairs, kept.envelope(pairs), options)
        return kept._replace(num_expected=expected)

    num_sources = pairs.src.size(0)
    nodes = Nodes.of(pairs)
    best = measured(Kept(nodes=nodes))
    if pairs.has_clusters:
        clusters = k_means(pairs.src, num_clusters(num_sources))
        best = min(best, measured(Kept(clusters, nodes=nodes)), key=cost)
    is_monotone = pairs.response.monotonic != 0 and num_sources > 2 * _HEAD
    accepted = options.num_races * options.num_arrivals
    if is_monotone and cost(best) - accepted > SEARCH * num_sources:
        best = min(
            best,
            measured(Kept(None, find_nearest(pairs, _HEAD), nodes=nodes)),
            key=cost,
        )
    return best
