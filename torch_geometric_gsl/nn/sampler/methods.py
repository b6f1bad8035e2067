"""The sampling methods of a draw, with their costs and obstacles.

:file:`CONTRIBUTING.md` describes how to add one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.plan import (
    BOUND,
    HEAD_SEARCH,
    LARGE,
    RACE_FACTOR,
    SCAN_FIRST,
    SMALL,
    Draw,
    SamplingPlan,
    TruncatedRaceWarning,
    rounded,
)
from torch_geometric_gsl.nn.sampler.targets import DrawnTargets, Generator
from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum, weighted_sum
from torch_geometric_gsl.ops.dense import (
    dense_graph,
    perturbed_arrivals,
    relaxed_weights,
)
from torch_geometric_gsl.ops.noise import draw_seed, race_states, uniform
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.pool import pool_draws, pool_sum
from torch_geometric_gsl.ops.race import FIRST_ROUND, race_arrivals
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.scan import SCAN_FACTOR, stream_arrivals
from torch_geometric_gsl.ops.tail import Tail, draw_tail
from torch_geometric_gsl.typing import SampledGraph

# Costs, in proposals of a race.
_SLOW = 5.0  # A proposal without a kernel (custom formula or half precision).
_BOUNDS_SEARCH = 4e4  # The search for bounds of a race, once a call.
_SEARCH = 0.18  # A comparison in a scan.
_RATE = 0.07  # The rate of a candidate in a scan.
_ARRIVAL = 2.2  # An arrival that is drawn from the rates of a scan.
_TAIL = 4.0  # A source of a tail that is proposed by bounds.
_EDGE = 3.0  # The edge of a source of a tail.
_LISTING = 0.1  # A candidate of a pool.
_PAIR = 2.0  # One that is not negligible, with its gradient.
_PAIR_DRAW = 0.8  # Its noise in a draw.


class Method(ABC):
    """Base class of sampling methods.

    :meth:`graph` and :meth:`sum` draw for targets with at least one candidate. They
    respect the excluded source of each target, a null neighbour, and the index of the
    first target, on which noise depends. A graph of a batch is a call of its own.
    """

    name: ClassVar[str]
    fixed_cost: ClassVar[float]  # Fixed cost of a call, in proposals.
    #: Whether a draw keeps its first arrivals only, and a tail of the others.
    is_truncated: ClassVar[bool] = True
    #: Whether it serves given edges.
    takes_edges: ClassVar[bool] = False

    def obstacles(self, draw: Draw) -> list[str]:
        """Return the reasons why this method cannot serve the options of a draw."""
        return []

    def drawbacks(self, draw: Draw) -> list[str]:
        """Return the reasons why `'auto'` does not use it, whatever it costs."""
        return []

    def reasons_against(self, draw: Draw) -> list[str]:
        """Return the obstacles, or the drawbacks if it is not asked for by name."""
        obstacles = self.obstacles(draw)
        if not self.takes_edges and draw.listed_by in ('edge_index', 'edge_weight'):
            obstacles.append(
                "'edge_index' is given, whose candidates are listed or race"
            )
        return obstacles or (self.drawbacks(draw) if draw.is_auto else [])

    @abstractmethod
    def target_cost(self, draw: Draw) -> float:
        """Return the cost of a target, in proposals."""

    def total_cost(self, draw: Draw) -> float:
        """Return the cost of all targets."""
        return self.fixed_cost + draw.num_targets * self.target_cost(draw)

    def shared_cost(self, draw: Draw) -> float:
        """Return the cost of a target with its share of that of the call."""
        is_shared = draw.listed_by is None  # Else other targets take part.
        return (
            self.total_cost(draw) / draw.num_targets
            if is_shared
            else self.target_cost(draw)
        )

    def make_plan(self, draw: Draw, reason: str) -> SamplingPlan:
        """Return the plan of a draw by this method."""
        options = draw.options
        is_all = draw.keeps_all or (options.replace and not self.is_truncated)
        return SamplingPlan(
            self.name,
            reason,
            num_proposals=None,
            num_arrivals=None if is_all else options.num_arrivals,
            num_tail=0 if is_all else options.num_tail,
            caveat=draw.caveat if self.is_truncated else None,
            cost=self.total_cost(draw),
        )

    @abstractmethod
    def graph(self, targets: DrawnTargets, generator: Generator) -> SampledGraph:
        """Return the graph."""

    def sum(self, targets: DrawnTargets, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""
        graph = self.graph(targets, generator)
        return weighted_sum(h, *graph, targets.pairs.dst.size(0))


class ArrivalMethod(Method):
    """Base class of methods that find the first arrivals of each draw."""

    @abstractmethod
    def find(
        self, targets: DrawnTargets, generator: Generator
    ) -> tuple[Arrivals, Tail | None]:
        """Find the first arrivals and the tail of each target."""

    def graph(self, targets: DrawnTargets, generator: Generator) -> SampledGraph:
        arrivals, tail = self.draw(targets, generator)
        return drawn_graph(targets.pairs, arrivals, tail, targets.options)

    def sum(self, targets: DrawnTargets, h: Tensor, generator: Generator) -> Tensor:
        arrivals, tail = self.draw(targets, generator)
        return drawn_sum(h, targets.pairs, arrivals, tail, targets.options)

    def draw(
        self, targets: DrawnTargets, generator: Generator
    ) -> tuple[Arrivals, Tail | None]:
        """Draw the arrivals and the tail, and the noise of a null neighbour."""
        if targets.plan.caveat is not None:
            warn_caller(targets.plan.caveat, TruncatedRaceWarning)
        arrivals, tail = self.find(targets, generator)
        if targets.pairs.null is not None:
            noise = _null_noise(targets.pairs, arrivals.horizon, generator)
            arrivals = arrivals._replace(null=noise)
        return arrivals, tail


class Race(ArrivalMethod):
    """Propose candidates until the first arrivals are known."""

    name = 'race'
    fixed_cost = 4e4
    takes_edges = True

    def obstacles(self, draw: Draw) -> list[str]:
        bounds = draw.settings.bounds
        reasons = []
        if not math.isfinite(bounds[1]):
            reasons.append(f"'similarity' has no finite upper 'bounds' (got {bounds})")
        if draw.listed_by == 'edge_weight':
            reasons.append("'edge_weight' is given, whose candidates are listed")
        return reasons

    def drawbacks(self, draw: Draw) -> list[str]:
        return [draw.caveat or _too_long(draw)] if draw.fits_dense else []

    def total_cost(self, draw: Draw) -> float:
        is_searched = draw.needs_tight_bounds and draw.num_expected is None
        return super().total_cost(draw) + (_BOUNDS_SEARCH if is_searched else 0)

    def target_cost(self, draw: Draw) -> float:
        options = draw.options
        expected = draw.num_expected
        edges = _EDGE * options.num_tail
        if expected is None:
            expected = float(options.num_arrivals)
            if draw.needs_tight_bounds:
                # Of the shortest race, with the search for its bounds.
                race = options.num_races * (expected + edges)
                return race + HEAD_SEARCH * draw.num_sources
            # Between those of equal scores and the most that these bounds allow.
            expected = math.sqrt(expected * draw.num_proposals)
            return options.num_races * (expected + edges)
        tail = 0.0 if draw.num_bounds == 1 else _TAIL * options.num_tail
        slow = 1.0 if draw.has_kernel else _SLOW
        race = options.num_races * (slow * expected + tail + edges)
        race += slow * BOUND * draw.num_bounds
        if draw.has_head:  # Rows that are learned need a new one in each step.
            race += HEAD_SEARCH * draw.num_sources
        # Slow races end with a scan of all candidates.
        return race + _scan_cost(draw) * expected * SCAN_FACTOR / draw.num_sources

    def make_plan(self, draw: Draw, reason: str) -> SamplingPlan:
        num_proposals = draw.num_expected
        if num_proposals is None:
            num_proposals = min(draw.num_proposals, draw.num_sources)
        plan = super().make_plan(draw, reason)
        return plan._replace(num_proposals=num_proposals)

    def find(
        self, targets: DrawnTargets, generator: Generator
    ) -> tuple[Arrivals, Tail | None]:
        pairs = targets.pairs
        options = targets.options
        expected = targets.plan.num_proposals or SCAN_FIRST
        if targets.envelope is None:
            expected *= FIRST_ROUND
        num_proposals = math.ceil(min(expected, pairs.num_candidates))
        if num_proposals > 0:  # Else all candidates are scanned.
            num_proposals = max(8, num_proposals)
        # Sharp races lose more by it, and those without replacement need all.
        is_flat = targets.envelope is None
        is_enough = is_flat and options.replace and options.num_tail > 0
        return race_arrivals(
            pairs,
            options,
            num_proposals,
            targets.envelope,
            min_arrivals=1 if is_enough else None,
            generator=generator,
        )


class Dense(ArrivalMethod):
    """Draw noise for each candidate: the definition."""

    name = 'dense'
    fixed_cost = 2e4
    is_truncated = False
    takes_edges = True

    def drawbacks(self, draw: Draw) -> list[str]:
        if draw.fits_dense:
            return []
        if draw.has_short_race:
            size = rounded(draw.num_proposals)
            return [f'a race proposes only {size} of {draw.num_sources} candidates']
        limit = SMALL if draw.caveat is None else LARGE
        return [f'{draw.num_targets} x {draw.num_sources} pairs are more than {limit}']

    def target_cost(self, draw: Draw) -> float:
        return draw.options.num_races * draw.num_sources / RACE_FACTOR

    def graph(self, targets: DrawnTargets, generator: Generator) -> SampledGraph:
        if not targets.options.replace:
            return super().graph(targets, generator)
        return dense_graph(self.weights(targets, generator), targets.pairs.excluded)

    def sum(self, targets: DrawnTargets, h: Tensor, generator: Generator) -> Tensor:
        if not targets.options.replace:
            return super().sum(targets, h, generator)
        return self.weights(targets, generator).to(h.dtype) @ h

    def weights(self, targets: DrawnTargets, generator: Generator) -> Tensor:
        """Return the weights of all pairs."""
        pairs, options = targets.pairs, targets.options
        return relaxed_weights(
            pairs.rows(),
            options.k,
            options.tau,
            hard=options.hard,
            generator=generator,
            memory=pairs.memory,
            null=pairs.null,
        )

    def find(
        self, targets: DrawnTargets, generator: Generator
    ) -> tuple[Arrivals, Tail | None]:
        # Without replacement there is no tail.
        pairs = targets.pairs
        options = targets.options
        num_arrivals = min(options.num_arrivals, pairs.available)
        arrivals = perturbed_arrivals(
            pairs, options.num_races, num_arrivals, generator=generator
        )
        return arrivals, None


class Stream(ArrivalMethod):
    """Find the first arrivals among all candidates, by blocks."""

    name = 'stream'
    fixed_cost = 4e4

    def drawbacks(self, draw: Draw) -> list[str]:
        return _scan_drawbacks(draw, is_dense=draw.fits_dense)

    def target_cost(self, draw: Draw) -> float:
        options = draw.options
        return _scan_cost(draw) + options.num_races * _EDGE * options.num_tail

    def find(
        self, targets: DrawnTargets, generator: Generator
    ) -> tuple[Arrivals, Tail | None]:
        pairs = targets.pairs
        options = targets.options
        tail = draw_tail(pairs, options, generator=generator)
        num_arrivals = min(options.num_arrivals, pairs.available)
        arrivals = stream_arrivals(
            pairs, options.num_races, num_arrivals, generator=generator
        )
        return arrivals, tail


class Pool(Method):
    """Draw noise for each candidate that is not negligible."""

    name = 'pool'
    fixed_cost = 3e4
    is_truncated = False

    def obstacles(self, draw: Draw) -> list[str]:
        if not draw.settings.replace:
            return ["'replace' is False: draws of distinct neighbours"]
        return []

    def drawbacks(self, draw: Draw) -> list[str]:
        num_pairs = draw.num_targets * (draw.num_listed or 0)
        if num_pairs > LARGE:
            return [f'{rounded(num_pairs)} pairs to keep are more than {LARGE}']
        return _scan_drawbacks(draw, is_dense=draw.is_small)

    def target_cost(self, draw: Draw) -> float:
        num_listed = draw.num_sources if draw.num_listed is None else draw.num_listed
        return (
            _LISTING * draw.num_sources
            + (_PAIR + _PAIR_DRAW * draw.options.k) * num_listed
        )

    def graph(self, targets: DrawnTargets, generator: Generator) -> SampledGraph:
        seed = draw_seed(targets.pairs.dst.device, generator)
        neighbours, weight = pool_draws(targets.pairs, targets.options, seed)
        edges = torch.stack([neighbours.source, neighbours.target]).long()
        return SampledGraph(edges, weight)

    def sum(self, targets: DrawnTargets, h: Tensor, generator: Generator) -> Tensor:
        seed = draw_seed(targets.pairs.dst.device, generator)
        weigh = partial(pool_draws, options=targets.options, seed=seed)
        return pool_sum(h, targets.pairs, weigh)


DENSE = Dense()
RACE = Race()
STREAM = Stream()
POOL = Pool()
#: The methods of `'auto'`, of one distribution; the first of equal cost is chosen.
AUTO_METHODS: tuple[Method, ...] = (DENSE, RACE, STREAM, POOL)
#: Methods of other distributions, which are only used by name: add one here.
NAMED_METHODS: tuple[Method, ...] = ()
BY_NAME = {method.name: method for method in (*AUTO_METHODS, *NAMED_METHODS)}


def _scan_cost(draw: Draw) -> float:
    """Return the cost of finding a target's first arrivals among all candidates."""
    drawn = draw.options.num_races * draw.options.num_arrivals
    return (_SEARCH + _RATE) * draw.num_sources + _ARRIVAL * drawn


def _too_long(draw: Draw) -> str:
    """Describe a race that proposes too many of the candidates of a target."""
    where = f'(scale={draw.settings.scale:g}, bounds={draw.settings.bounds})'
    if not math.isfinite(draw.num_proposals):
        return f'scores are too sharp for one bound {where}'
    size = rounded(draw.num_proposals * RACE_FACTOR)
    return (
        f'it pays for more than {size} candidates (got {draw.num_sources}) '
        f'with {rounded(draw.num_proposals)} proposals per draw {where}'
    )


def _scan_drawbacks(draw: Draw, *, is_dense: bool) -> list[str]:
    """Return the reasons not to score all sources of each target."""
    if is_dense:
        return [f'the definition serves {draw.num_targets} x {draw.num_sources} pairs']
    if not draw.needs_tight_bounds:
        proposals = rounded(draw.num_proposals)
        return [f'a race needs only {proposals} proposals per draw']
    return []


def _null_noise(scores: PairScores, horizon: Tensor, generator: Generator) -> Tensor:
    """Draw the Gumbel noise of the null neighbour of each race."""
    seed = draw_seed(scores.dst.device, generator)
    state = race_states(seed, scores.first_target * horizon.size(1), horizon.numel())
    time = uniform(state, torch.float64).log_().neg_()
    return time.log_().neg_().view(horizon.shape).to(horizon.dtype)
