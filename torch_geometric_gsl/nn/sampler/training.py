"""Training: the choice of a sampling method, and groups of targets that draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.candidates import (
    LISTED_PAIRS,
    Assignment,
    exclude_loops,
    max_pairs,
)
from torch_geometric_gsl.nn.sampler.methods import (
    AUTO_METHODS,
    BY_NAME,
    DENSE,
    POOL,
    RACE,
    STREAM,
    Method,
)
from torch_geometric_gsl.nn.sampler.plan import (
    RACE_FACTOR,
    SCAN_FIRST,
    WIDTH,
    Draw,
    SamplingPlan,
    make_draw,
    rounded,
)
from torch_geometric_gsl.nn.sampler.row_cache import RowCache
from torch_geometric_gsl.nn.sampler.targets import (
    DrawnTargets,
    Generator,
    GraphTargets,
    ListedTargets,
    Targets,
)
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.dense import candidate_graph
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.envelope import Envelope
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.pool import count_pool
from torch_geometric_gsl.ops.race import has_kernel
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.tail import group_size
from torch_geometric_gsl.typing import SampledGraph


class TrainingAssignment(Assignment):
    """Assign targets to groups, each of which one method draws."""

    def of_graph(
        self, pairs: PairScores, first_source: int = 0, first_target: int = 0
    ) -> DrawnGraph:
        # The graphs of a batch are others in each draw.
        cache = self.cache if pairs is self.pairs else RowCache()
        pairs = exclude_loops(pairs, self.settings)
        draw = make_draw(self.settings, pairs.dst.size(0), pairs.src.size(0))
        plan, envelope = plan_draw(draw, pairs, cache)
        return DrawnGraph(
            pairs,
            draw.num_targets,
            first_source,
            first_target,
            draw.options,
            plan,
            envelope,
        )

    def of_lists(
        self, pairs: PairScores, candidates: Candidates, prior: Tensor | None = None
    ) -> list[Targets]:
        """Draw for all candidates of targets with few; race for the other targets."""
        listed_by = 'batch' if candidates.source is None else 'edge_index'
        listed_by = listed_by if prior is None else 'edge_weight'
        longest_list = self._longest_list(candidates.max_size, listed_by)
        # A single node without a self-loop has no candidate.
        num_excluded = int(pairs.excluded is not None)
        has_race = candidates.size > max(longest_list, num_excluded)
        short = candidates._replace(size=candidates.size * ~has_race)
        groups: list[Targets] = []
        if (listed := self.list_pairs(pairs, short, prior)) is not None:
            edges, sizes, _, score = listed
            options, plan = self._plan_lists(short, edges.size(1), listed_by)
            columns = (score,)
            groups.append(
                PerturbedList(
                    pairs, edges, sizes, columns, options, plan, short.max_size
                )
            )
        if bool(has_race.any()):
            groups.append(self._racing(pairs, candidates, has_race, listed_by))
        return groups

    def _plan_lists(
        self, candidates: Candidates, num_pairs: int, listed_by: str
    ) -> tuple[DrawOptions, SamplingPlan]:
        """Plan draws for all pairs of some lists."""
        draw = make_draw(self.settings, 1, candidates.max_size, listed_by)
        plan = choose(draw) if draw.is_auto else None
        if plan is None or plan.method != DENSE.name:
            plan = DENSE.make_plan(draw, 'all candidates are listed')
        cost = draw.options.num_races * num_pairs / RACE_FACTOR
        return draw.options, plan._replace(num_arrivals=None, num_tail=0, cost=cost)

    def _racing(
        self,
        pairs: PairScores,
        candidates: Candidates,
        has_race: Tensor,
        listed_by: str,
    ) -> RacingTargets:
        """Return the targets that race among their lists."""
        target = has_race.nonzero().squeeze(1)
        start, size, source = candidates
        racing = pairs.take(target, Candidates(start[target], size[target], source))
        num_targets = target.numel()
        draw = make_draw(self.settings, num_targets, racing.num_candidates, listed_by)
        return RacingTargets(
            racing, draw.options, choose(draw), target, pairs.dst.size(0)
        )

    def are_listed(self, sizes: list[tuple[int, int]]) -> list[bool]:
        settings = self.settings
        num_pairs = sum(num_src * num_dst for num_src, num_dst in sizes)
        largest = max((num_src for num_src, num_dst in sizes if num_dst), default=0)
        longest_list = self._longest_list(largest, 'batch')

        def is_listed(num_src: int, num_dst: int) -> bool:
            if num_src <= int(not settings.loop) or num_dst == 0:
                return True
            if settings.method == DENSE.name:
                return num_pairs <= max_pairs(settings)
            if num_src > longest_list:
                return True
            is_small = num_src * num_dst < LISTED_PAIRS
            is_small &= make_draw(settings, num_dst, num_src).fits_dense
            return is_small and settings.method == 'auto'

        return [is_listed(*size) for size in sizes]

    def _longest_list(self, num_sources: int, listed_by: str) -> float:
        """Return the number of candidates beyond which a target with a list races.

        :obj:`num_sources` is the largest number of candidates of a target.
        """
        draw = make_draw(self.settings, 1, max(1, num_sources), listed_by)
        if choose(draw).method != RACE.name:
            return math.inf
        num_gathered = max(draw.num_proposals, draw.options.num_tail)
        return RACE_FACTOR * num_gathered if draw.is_auto else 0


@dataclass(eq=False)
class DrawnGraph(GraphTargets, DrawnTargets):
    """The targets of one graph, which one method draws."""

    options: DrawOptions
    plan: SamplingPlan
    envelope: Envelope | None

    def edges(self, generator: Generator) -> SampledGraph:
        return BY_NAME[self.plan.method].graph(self, generator)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        out = BY_NAME[self.plan.method].sum(self, h, generator)
        return out if self.selection is None else out[self.selection]

    def restrict(self, start: int, stop: int, multiple: int = 16) -> None:
        """Restrict the targets to a range without changing their draws."""
        if self.plan.method == DENSE.name:
            # The definition draws the noise of all pairs in order.
            self.selection = slice(start, stop)
            return
        # Whole groups with a common tail.
        options = self.options._replace(num_tail=self.plan.num_tail)
        super().restrict(start, stop, group_size(options))
        if self.envelope is not None and self.envelope.head is not None:
            stop = self.first_target + self.pairs.dst.size(0)
            head = self.envelope.head.take(slice(self.first_target, stop))
            self.envelope = self.envelope._replace(head=head)


@dataclass(eq=False)
class RacingTargets(DrawnTargets):
    """Targets with long lists of candidates, which race."""

    pairs: PairScores
    options: DrawOptions
    plan: SamplingPlan
    target: Tensor
    num_targets: int  # Of the call.

    def graph(self, generator: Generator) -> SampledGraph:
        graph = BY_NAME[self.plan.method].graph(self, generator)
        (source, target), weight = graph
        return SampledGraph(torch.stack([source, self.target[target]]), weight)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        return weighted_sum(h, *self.graph(generator), self.num_targets)


@dataclass(eq=False)
class PerturbedList(ListedTargets):
    """Targets with listed candidates, each of which has noise."""

    options: DrawOptions
    plan: SamplingPlan
    num_candidates: int  # Of the target with the most.

    def edges(
        self, edge_index: Tensor, num_targets: int, generator: Generator, *columns: Any
    ) -> SampledGraph:
        (score,) = columns
        return candidate_graph(
            score,
            edge_index,
            num_targets,
            self.options,
            generator=generator,
            null=self.pairs.null,
        )


def plan_of(targets: Targets, pairs: PairScores, method: str) -> SamplingPlan:
    """Return the plan of the target with most candidates, with the total cost."""
    groups: Sequence[Any] = targets.split()
    if not groups:
        method = DENSE.name if method == 'auto' else method
        return SamplingPlan(method, 'there is nothing to draw', None, None, 0)
    # By the width of the compared rows.
    entries = getattr(pairs.src, 'value', pairs.src).numel()
    width = 1 + entries / max(1, pairs.src.size(0)) / WIDTH
    cost = sum(
        # The definition's is that of its noise.
        group.plan.cost * (1 if group.plan.method == DENSE.name else width)
        for group in groups
    )
    largest: SamplingPlan = max(groups, key=attrgetter('num_candidates')).plan
    return largest._replace(cost=cost)


@disable_compile
def warn_of_no_choice(available: int) -> None:
    """Warn that each target has one candidate, or none."""
    candidates = 'one candidate' if available > 0 else 'no candidate'
    warn_caller(
        f'each target has {candidates}, so there is no choice to learn: does a mask or '
        f'a batch leave too few nodes?',
        UserWarning,
    )


def plan_draw(
    draw: Draw, pairs: PairScores, cache: RowCache
) -> tuple[SamplingPlan, Envelope | None]:
    """Plan a draw; also return the bounds of a race of sharp scores."""
    options = draw.options  # Derived once for equal draws.
    if counts_pool(draw):
        with torch.autocast(pairs.dst.device.type, enabled=False):
            draw = replace(draw, num_listed=count_pool(pairs, options.tau))
    if not needs_bounds(draw):
        return choose(draw), None
    with torch.autocast(pairs.dst.device.type, enabled=False):
        envelope, expected = cache.find_bounds(pairs, options)
    draw = replace(
        draw,
        num_expected=expected,
        num_bounds=envelope.num_bounds,
        has_head=envelope.head is not None,
        bounds_text=str(envelope),
        # Sparse rows draw what the same dense ones do.
        has_kernel=pairs.is_sparse or has_kernel(pairs),
    )
    plan = choose(draw)
    if plan.method != RACE.name:
        return plan, None
    if RACE.target_cost(draw) > STREAM.target_cost(draw):
        # Requested by name: starts with a scan of all candidates.
        cost = STREAM.total_cost(draw)
        return plan._replace(num_proposals=SCAN_FIRST, cost=cost), None
    with torch.autocast(pairs.dst.device.type, enabled=False):
        return plan, cache.complete_bounds(pairs, envelope)


@disable_compile
@lru_cache(maxsize=1024)
def needs_bounds(draw: Draw) -> bool:
    """Return whether the choice of method depends on better bounds."""
    if not draw.needs_tight_bounds or RACE.reasons_against(draw):
        return False
    if not draw.is_auto:
        return draw.settings.method == RACE.name
    # Bounds take long to find: only if a race may be cheaper.
    return _cheapest(draw) is RACE


@disable_compile
@lru_cache(maxsize=1024)
def counts_pool(draw: Draw) -> bool:
    """Return whether the plan depends on how many candidates are not negligible."""
    return draw.is_auto and not POOL.reasons_against(draw)


def depends_on_all_targets(draw: Draw) -> bool:
    """Return whether the draws of a target depend on the rows of the others."""
    return needs_bounds(draw) or counts_pool(draw)


@disable_compile
@lru_cache(maxsize=1024)
def choose(draw: Draw) -> SamplingPlan:
    """Plan the draw by the named method, or by the cheapest one that serves."""
    if not draw.is_auto:
        method = BY_NAME[draw.settings.method]
        if reasons := method.reasons_against(draw):
            reason = '; '.join(reasons)
            raise ValueError(f"'method' cannot be {method.name!r}: {reason}")
        return method.make_plan(draw, f'as requested{_measured(draw)}')
    best = _cheapest(draw)
    reasons = []
    for method in AUTO_METHODS:
        if method is not best:
            why = ', '.join(method.reasons_against(draw))
            reasons.append(f'not {method.name}: {why or _compare(method, best, draw)}')
    return best.make_plan(draw, '; '.join(reasons) + _measured(draw))


def _cheapest(draw: Draw) -> Method:
    """Return the method of least cost that nothing speaks against."""
    applicable = (m for m in AUTO_METHODS if not m.reasons_against(draw))
    return min(applicable, key=lambda method: method.shared_cost(draw))


def _compare(method: Method, best: Method, draw: Draw) -> str:
    """Compare the cost of a method with that of the best."""
    cost, best_cost = rounded(method.shared_cost(draw)), rounded(best.shared_cost(draw))
    is_shortest = method is RACE and draw.needs_tight_bounds
    is_shortest &= draw.num_expected is None
    text = f'costs {"at least " * is_shortest}{cost} proposals per target'
    return f'{text}, {best.name} {best_cost}'


def _measured(draw: Draw) -> str:
    """Describe a race with several bounds, and a pool, if they were measured."""
    texts = []
    if draw.num_listed is not None:
        texts.append(f'a pool has {rounded(draw.num_listed)} candidates')
    if draw.num_expected is not None:
        expected = rounded(draw.num_expected)
        texts.append(f'a race needs {expected} per draw under {draw.bounds_text}')
    return ': ' * bool(texts) + ', '.join(texts)
