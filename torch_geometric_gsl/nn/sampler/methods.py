"""Sampling methods, and the choice among them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.bounds_cache import BoundsCache
from torch_geometric_gsl.nn.sampler.plan import (
    ARRIVAL,
    BOUND,
    EDGE,
    LARGE,
    RACE_FACTOR,
    RATE,
    SEARCH,
    SLOW,
    SMALL,
    TAIL,
    Call,
    SamplingPlan,
    TruncatedRaceWarning,
    rounded,
)
from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum
from torch_geometric_gsl.ops.dense import (
    dense_graph,
    perturbed_arrivals,
    relaxed_weights,
)
from torch_geometric_gsl.ops.envelope import Envelope
from torch_geometric_gsl.ops.noise import draw_seed, race_states, uniform
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.race import FIRST_ROUND, race_arrivals
from torch_geometric_gsl.ops.race_block import has_kernel
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.scan import SCAN_FACTOR, stream_arrivals
from torch_geometric_gsl.ops.tail import Tail, draw_tail
from torch_geometric_gsl.typing import SampledGraph

Generator = torch.Generator | None
Drawn = tuple[Arrivals, Tail | None]


class Draw(NamedTuple):
    """The inputs of a method that draws neighbours of some targets."""

    scores: PairScores
    options: DrawOptions
    plan: SamplingPlan
    envelope: Envelope | None = None  # Bounds of sharp scores.


class Method(ABC):
    """Base class of methods, which all sample the same distribution."""

    name: ClassVar[str]
    call_cost: ClassVar[float]  # Fixed cost of a call, in proposals.

    @abstractmethod
    def obstacles(self, call: Call) -> list[str]:
        """Return the reasons not to use this method."""

    @abstractmethod
    def cost(self, call: Call) -> float:
        """Return the cost of a target, in proposals."""

    def total(self, call: Call) -> float:
        """Return the cost of all targets."""
        return self.call_cost + call.num_targets * self.cost(call)

    @abstractmethod
    def arrivals(self, draw: Draw, generator: Generator) -> Drawn:
        """Draw the first arrivals and the tail of each target."""

    def graph(self, draw: Draw, generator: Generator) -> SampledGraph:
        """Return the graph."""
        drawn = self._draw(draw, generator)
        return drawn_graph(draw.scores, *drawn, draw.options)

    def sum(self, draw: Draw, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""
        drawn = self._draw(draw, generator)
        return drawn_sum(h, draw.scores, *drawn, draw.options)

    def _draw(self, draw: Draw, generator: Generator) -> Drawn:
        if draw.plan.caveat is not None:
            warn_caller(draw.plan.caveat, TruncatedRaceWarning)
        arrivals, tail = self.arrivals(draw, generator)
        if draw.scores.null is not None:
            noise = _null_noise(draw.scores, arrivals.horizon, generator)
            arrivals = arrivals._replace(null=noise)
        return arrivals, tail


class Race(Method):
    """Propose candidates until the first arrivals are known."""

    name, call_cost = 'race', 4e4

    def obstacles(self, call: Call) -> list[str]:
        bounds = call.settings.bounds
        found = []
        if not math.isfinite(bounds[1]):
            found.append(f"'similarity' has no finite upper 'bounds' (got {bounds})")
        if call.listed_by == 'edge_weight':
            found.append("'edge_weight' is given, whose candidates are listed")
        if call.is_auto and call.fits_dense and not found:
            least = rounded(call.num_proposals * RACE_FACTOR)
            found.append(
                call.caveat
                or f'it pays for more than {least} candidates (got {call.num_sources}) '
                f'with {rounded(call.num_proposals)} proposals per draw '
                f'(scale={call.settings.scale:g}, bounds={bounds})'
            )
        return found

    def cost(self, call: Call) -> float:
        options, expected = call.options, call.num_expected
        if expected is None:
            # Between those of equal scores and the most that these bounds allow.
            few = math.sqrt(options.num_arrivals * call.num_proposals)
            return options.num_races * (few + EDGE * options.num_tail)
        num_tail = 0 if call.num_kinds == 1 else options.num_tail
        slow = 1.0 if call.has_kernel else SLOW
        tail = TAIL * num_tail + EDGE * options.num_tail
        race = options.num_races * (slow * expected + tail)
        race += slow * BOUND * call.num_kinds
        # Slow races end with a scan of all candidates.
        return race + _scan_cost(call) * expected * SCAN_FACTOR / call.num_sources

    def arrivals(self, draw: Draw, generator: Generator) -> Drawn:
        plan, options, envelope = draw.plan, draw.options, draw.envelope
        first = (plan.num_proposals or 0) * (FIRST_ROUND if envelope is None else 1)
        length = math.ceil(min(first, draw.scores.most))
        length = max(8, length) if length else 0  # 0 scans all candidates.
        # Sharp races lose more by it, and those without replacement need all.
        is_enough = envelope is None and options.replace and options.num_tail > 0
        least = 1 if is_enough else None
        args = draw.scores, options, length, envelope
        return race_arrivals(*args, least=least, generator=generator)


class Dense(Method):
    """Draw noise for each candidate: the definition."""

    name, call_cost = 'dense', 2e4

    def obstacles(self, call: Call) -> list[str]:
        if not call.is_auto or call.fits_dense:
            return []
        if call.has_short_race:
            few = rounded(call.num_proposals)
            return [f'a race proposes only {few} of {call.num_sources} candidates']
        limit = SMALL if call.caveat is None else LARGE
        return [f'{call.num_targets} x {call.num_sources} pairs are more than {limit}']

    def cost(self, call: Call) -> float:
        return call.options.num_races * call.num_sources / RACE_FACTOR

    def graph(self, draw: Draw, generator: Generator) -> SampledGraph:
        if not draw.options.replace:
            return super().graph(draw, generator)
        return dense_graph(self.weights(draw, generator), draw.scores.excluded)

    def sum(self, draw: Draw, h: Tensor, generator: Generator) -> Tensor:
        if not draw.options.replace:
            return super().sum(draw, h, generator)
        return self.weights(draw, generator).to(h.dtype) @ h

    def weights(self, draw: Draw, generator: Generator) -> Tensor:
        """Return the weights of all pairs."""
        options = draw.options
        return relaxed_weights(
            draw.scores.rows(),
            options.k,
            options.tau,
            hard=options.hard,
            generator=generator,
            memory_budget=draw.scores.memory,
            null=draw.scores.null,
        )

    def arrivals(self, draw: Draw, generator: Generator) -> Drawn:
        return _all_arrivals(perturbed_arrivals, draw, generator)


class Stream(Method):
    """Find the first arrivals among all candidates, by blocks."""

    name, call_cost = 'stream', 2e5

    def obstacles(self, call: Call) -> list[str]:
        if call.listed_by in ('edge_index', 'edge_weight'):
            return ["'edge_index' is given, whose candidates are listed or race"]
        if call.is_auto and call.fits_dense:
            return [f'{call.num_targets} x {call.num_sources} pairs are few']
        if call.is_auto and not call.needs_tight_bounds:
            few = rounded(call.num_proposals)
            return [f'a race needs only {few} proposals per draw']
        return []

    def cost(self, call: Call) -> float:
        options = call.options
        return _scan_cost(call) + options.num_races * EDGE * options.num_tail

    def arrivals(self, draw: Draw, generator: Generator) -> Drawn:
        return _all_arrivals(stream_arrivals, draw, generator)


STREAM = Stream()
#: All methods; the first of equal cost is chosen.
METHODS: tuple[Method, ...] = (Dense(), Race(), STREAM)
BY_NAME = {method.name: method for method in METHODS}


def plan_draw(
    call: Call, scores: PairScores, cache: BoundsCache
) -> tuple[SamplingPlan, Envelope | None]:
    """Plan a draw; also return the bounds of a race of sharp scores."""
    if not needs_bounds(call):
        return choose(call), None
    with torch.autocast(scores.dst.device.type, enabled=False):
        envelope, expected = cache.best(scores, call.options)
    call = call._replace(
        num_expected=expected,
        num_kinds=envelope.num_kinds,
        bounds=str(envelope),
        # Sparse rows draw what the same dense ones do.
        has_kernel=scores.is_sparse or has_kernel(scores),
    )
    plan = choose(call)
    if plan.method == 'race' and BY_NAME['race'].cost(call) > STREAM.cost(call):
        # Requested by name: starts with a scan of all candidates.
        return plan._replace(num_proposals=0.0, cost=STREAM.total(call)), None
    return plan, envelope if plan.method == 'race' else None


@disable_compile
@lru_cache(maxsize=1024)
def needs_bounds(call: Call) -> bool:
    """Return whether the choice of method depends on better bounds."""
    is_asked = call.settings.method in ('auto', 'race')
    return is_asked and call.needs_tight_bounds and not BY_NAME['race'].obstacles(call)


@disable_compile
@lru_cache(maxsize=1024)
def choose(call: Call) -> SamplingPlan:
    """Plan the draw by the named method, or by the cheapest without obstacles."""
    found = {method: method.obstacles(call) for method in METHODS}
    if not call.is_auto:
        method = BY_NAME[call.settings.method]
        if found[method]:
            reason = '; '.join(found[method])
            raise ValueError(f"'method' cannot be {method.name!r}: {reason}")
        reason = 'as requested'
        if method.name == 'race':
            reason += _of_race(call)
        return call.describe(method.name, reason, method.total(call))
    serving = [method for method in METHODS if not found[method]]
    best = min(serving, key=lambda method: method.cost(call))
    reasons = []
    for method in METHODS:
        why = ', '.join(found[method])
        if method is not best:
            reasons.append(f'{method.name}: {why or _compare(method, best, call)}')
    return call.describe(best.name, '; '.join(reasons), best.total(call))


def _scan_cost(call: Call) -> float:
    """Return the cost of finding a target's first arrivals among all candidates."""
    drawn = call.options.num_races * call.options.num_arrivals
    return (SEARCH + RATE) * call.num_sources + ARRIVAL * drawn


def _compare(method: Method, best: Method, call: Call) -> str:
    """Compare the cost of a method with that of the best."""
    own, least = (rounded(each.cost(call)) for each in (method, best))
    return f'costs {own} proposals per target, {best.name} {least}{_of_race(call)}'


def _of_race(call: Call) -> str:
    """Describe a race with several bounds, if they were found."""
    if call.num_expected is None:
        return ''
    return f': a race needs {rounded(call.num_expected)} per draw under {call.bounds}'


def _all_arrivals(find: Any, draw: Draw, generator: Generator) -> Drawn:
    """Find arrivals among all candidates, after drawing the tail."""
    scores, options = draw.scores, draw.options
    tail = draw_tail(scores, options, generator=generator)
    num_arrivals = min(options.num_arrivals, scores.available)
    sizes = options.num_races, num_arrivals
    return find(scores, *sizes, generator=generator), tail


def _null_noise(scores: PairScores, horizon: Tensor, generator: Generator) -> Tensor:
    """Draw the Gumbel noise of the null neighbour of each race."""
    seed = draw_seed(scores.dst.device, generator)
    state = race_states(seed, scores.first * horizon.size(1), horizon.numel())
    time = uniform(state, torch.float64).log_().neg_()
    return time.log_().neg_().view(horizon.shape).to(horizon.dtype)
