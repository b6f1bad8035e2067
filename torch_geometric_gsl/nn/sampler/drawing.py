"""Assign the targets of a call in training to parts that are drawn together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
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
from torch_geometric_gsl.nn.sampler.choice import choose, plan_draw
from torch_geometric_gsl.nn.sampler.methods import BY_NAME, DrawnPart
from torch_geometric_gsl.nn.sampler.parts import GraphPart, Listed, Part, Parts
from torch_geometric_gsl.nn.sampler.plan import (
    RACE_FACTOR,
    WIDTH,
    SamplingPlan,
    make_draw,
)
from torch_geometric_gsl.nn.sampler.row_cache import RowCache
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.dense import candidate_graph
from torch_geometric_gsl.ops.edges import Candidates
from torch_geometric_gsl.ops.envelope import Envelope
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.tail import group_size
from torch_geometric_gsl.typing import SampledGraph

Generator = torch.Generator | None


class TrainingAssignment(Assignment):
    """Assign targets to parts, each of which one method draws."""

    def of_graph(
        self, pairs: PairScores, first_source: int = 0, first_target: int = 0
    ) -> DrawnGraph:
        # The graphs of a batch are others in each draw.
        cache = self.cache if pairs is self.pairs else RowCache()
        pairs = pairs if self.settings.loop else exclude_loops(pairs)
        draw = make_draw(self.settings, pairs.dst.size(0), pairs.src.size(0))
        nodes = pairs, pairs.dst.size(0), first_source, first_target
        return DrawnGraph(*nodes, draw.options, *plan_draw(draw, pairs, cache))

    def of_lists(
        self,
        pairs: PairScores,
        candidates: Candidates,
        prior: Tensor | None = None,
        is_long: Tensor | None = None,
    ) -> list[Part]:
        """List the candidates of targets with few; race for the other targets."""
        settings = self.settings
        listed_by = 'batch' if candidates.source is None else 'edge_index'
        listed_by = listed_by if prior is None else 'edge_weight'
        draw = make_draw(settings, 1, max(1, candidates.most), listed_by)
        if is_long is None and choose(draw).method == 'race':
            # Pays only with many candidates.
            gathered = max(draw.num_proposals, draw.options.num_tail)
            is_long = candidates.size > (RACE_FACTOR * gathered if draw.is_auto else 0)
        short = candidates
        parts: list[Part] = []
        if is_long is not None:
            short = candidates._replace(size=candidates.size * ~is_long)
        listed = self.list_pairs(pairs, short, prior)
        if listed is not None:
            edges, sizes, _, score = listed
            draw = make_draw(settings, 1, short.most, listed_by)
            plan = draw.describe('dense', 'all candidates are listed')
            if draw.is_auto:
                is_dense = choose(draw).method == 'dense'
                plan = choose(draw) if is_dense else plan
            cost = draw.options.num_races * edges.size(1) / RACE_FACTOR
            plan = plan._replace(num_arrivals=None, num_tail=0, cost=cost)
            part = PerturbedList(
                pairs, edges, sizes, (score,), draw.options, plan, short.most
            )
            parts.append(part)
        if is_long is not None and bool(is_long.any()):
            target = is_long.nonzero().squeeze(1)
            start, size, source = candidates
            long = Candidates(start[target], size[target], source)
            long_pairs = pairs.take(target, long)
            draw = make_draw(settings, target.numel(), long.most, listed_by)
            parts.append(
                DrawnTargets(
                    long_pairs,
                    draw.options,
                    choose(draw),
                    draw.num_sources,
                    target,
                    pairs.dst.size(0),
                )
            )
        return parts

    def forms(self, sizes: list[tuple[int, int]]) -> list[str]:
        settings = self.settings
        total = sum(num_src * num_dst for num_src, num_dst in sizes)

        @cache
        def form(num_src: int, num_dst: int) -> str:
            if num_src <= int(not settings.loop) or num_dst == 0:
                return 'list'
            if settings.method == 'dense':
                return 'list' if total <= max_pairs(settings) else 'block'
            if settings.method not in ('stream', 'pool'):
                draw = make_draw(settings, num_dst, num_src, 'batch')
                if choose(draw).method == 'race':
                    return 'long'
            is_small = num_src * num_dst < LISTED_PAIRS
            is_small &= make_draw(settings, num_dst, num_src).fits_dense
            is_listed = settings.method == 'auto' and is_small
            return 'list' if is_listed else 'block'

        return [form(*size) for size in sizes]


@dataclass(eq=False)
class DrawnGraph(GraphPart, DrawnPart):
    """The targets of one graph, which one method draws."""

    options: DrawOptions
    plan: SamplingPlan
    envelope: Envelope | None

    def edges(self, generator: Generator) -> SampledGraph:
        return BY_NAME[self.plan.method].graph(self, generator)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        out = BY_NAME[self.plan.method].sum(self, h, generator)
        return out if self.kept is None else out[self.kept]

    def restrict(self, start: int, stop: int, group: int = 16) -> None:
        """Restrict the part to a range of targets without changing their draws."""
        if self.plan.method == 'dense':
            # The definition draws the noise of all pairs in order.
            self.kept = slice(start, stop)
            return
        # Whole groups with a common tail.
        options = self.options._replace(num_tail=self.plan.num_tail)
        super().restrict(start, stop, group_size(options))
        envelope, first = self.envelope, self.first_target
        if envelope is not None and envelope.head is not None:
            rows = slice(first, first + self.pairs.dst.size(0))
            self.envelope = envelope._replace(head=envelope.head.take(rows))

    @property
    def num_candidates(self) -> int:
        """Return the number of candidates of a target."""
        return self.pairs.most


@dataclass(eq=False)
class DrawnTargets(DrawnPart):
    """Targets with long lists of candidates, which race."""

    pairs: PairScores
    options: DrawOptions
    plan: SamplingPlan
    num_candidates: int  # Of the target with the most.
    target: Tensor
    num_targets: int  # Of the call.

    def graph(self, generator: Generator) -> SampledGraph:
        graph = BY_NAME[self.plan.method].graph(self, generator)
        (source, target), weight = graph
        return SampledGraph(torch.stack([source, self.target[target]]), weight)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        return weighted_sum(h, *self.graph(generator), self.num_targets)


@dataclass(eq=False)
class PerturbedList(Listed):
    """Listed candidates, each of which has noise."""

    options: DrawOptions
    plan: SamplingPlan
    num_candidates: int  # Of the target with the most.

    def edges(
        self, edge_index: Tensor, num_targets: int, generator: Generator, *columns: Any
    ) -> SampledGraph:
        args = *columns, edge_index, num_targets, self.options
        return candidate_graph(*args, generator=generator, null=self.pairs.null)


def plan_of(part: Part, pairs: PairScores, method: str) -> SamplingPlan:
    """Return the plan of the target with most candidates, with the total cost."""
    parts: Sequence[Any] = part.parts if isinstance(part, Parts) else [part]
    if not parts:
        method = 'dense' if method == 'auto' else method
        return SamplingPlan(method, 'there is nothing to draw', None, None, 0)
    # By the width of the compared rows.
    entries = getattr(pairs.src, 'value', pairs.src).numel()
    width = 1 + entries / max(1, pairs.src.size(0)) / WIDTH
    cost = sum(
        # The definition's is that of its noise.
        part.plan.cost * (1 if part.plan.method == 'dense' else width)
        for part in parts
    )
    largest: SamplingPlan = max(parts, key=lambda part: part.num_candidates).plan
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
