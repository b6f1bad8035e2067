"""The three forms of candidates, and what is drawn from each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler._envelopes import EnvelopeMemory
from torch_geometric_gsl.nn.sampler.plan import (
    LEAST_SAMPLES,
    MOST_LISTED,
    CallOptions,
    SampledEvaluationWarning,
    SamplingPlan,
    TruncatedRaceWarning,
    choose_plan,
    is_sharp,
)
from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum, weighted_sum
from torch_geometric_gsl.ops.certified.certified_sum import certified_sum
from torch_geometric_gsl.ops.dense import (
    dense_graph,
    perturbed_arrivals,
    relaxed_weights,
)
from torch_geometric_gsl.ops.envelope import Envelope
from torch_geometric_gsl.ops.listed import candidate_graph, nearest_candidates
from torch_geometric_gsl.ops.noise import draw_seed, race_states, uniform
from torch_geometric_gsl.ops.noise_free import (
    nearest_graph,
    noise_free_sum,
    noise_free_weights,
    sampled_noise_free_sum,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.race import FIRST_ROUND, race_arrivals
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.stream import stream_arrivals
from torch_geometric_gsl.ops.tail import Tail, draw_tail, group_size
from torch_geometric_gsl.typing import SampledGraph


class AllPairs(NamedTuple):
    """All pairs of one graph, served by the method of its plan."""

    given: CallOptions
    plan: SamplingPlan
    options: DrawOptions
    scores: PairScores
    # Where the nodes of the graph begin and end among all nodes.
    sources: tuple[int, int]
    targets: tuple[int, int]
    num_targets: int
    most: int  # The number of candidates of the target with the most.
    envelope: Envelope | None = None  # Bounds of sharp scores.
    kept: slice = slice(None)  # Those of the targets that were asked for.

    def graph(self, generator: torch.Generator | None) -> SampledGraph:
        """Return the graph."""
        given, scores, options = self.given, self.scores, self.options
        if not given.is_noisy:
            graph = self._noise_free_graph()
        elif self.plan.method == 'dense' and options.replace:
            graph = dense_graph(self._weights(generator), scores.excluded)
        else:
            drawn = _draw(self, generator)
            graph = drawn_graph(scores, *drawn, options, given.memory_budget)
        if self.kept != slice(None):
            graph = _graph_of_targets(graph, self.kept)
        first = graph.edge_index.new_tensor([[self.sources[0]], [self.targets[0]]])
        return SampledGraph(graph.edge_index + first, graph.edge_weight)

    def _noise_free_graph(self) -> SampledGraph:
        """Return the graph of the nearest sources, or of all."""
        scores, tau, k = self.scores, self.options.tau, self.given.num_nearest
        if k is None:
            _check_size(self.num_targets, scores.src.size(0))
            weight = noise_free_weights(scores.rows(), tau, scores.null)
            return dense_graph(weight, scores.excluded)
        budget = self.given.memory_budget
        graph = nearest_graph(scores, k, tau, memory_budget=budget)
        if scores.null is None:
            return graph
        # The nearest carry the weight of all candidates, less that of the null one.
        ones = graph.edge_weight.new_ones(scores.src.size(0), 1)
        total = self._noise_free_sum(ones).squeeze(1)
        weight = graph.edge_weight * total[graph.edge_index[1]]
        return SampledGraph(graph.edge_index, weight)

    def sum(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sum messages over the graph."""
        given, options = self.given, self.options
        if not given.is_noisy:
            if given.num_nearest is None:
                return self._noise_free_sum(h)[self.kept]
            graph = self._noise_free_graph()
            return weighted_sum(h, *graph, self.scores.dst.size(0))[self.kept]
        if self.plan.method == 'dense' and options.replace:
            return self._weights(generator)[self.kept].to(h.dtype) @ h
        drawn = _draw(self, generator)
        out = drawn_sum(h, self.scores, *drawn, options, given.memory_budget)
        return out[self.kept]

    def _weights(self, generator: torch.Generator | None) -> Tensor:
        options = self.options
        return relaxed_weights(
            self.scores.rows(),
            options.k,
            options.tau,
            hard=options.hard,
            generator=generator,
            memory_budget=self.given.memory_budget,
            null=self.scores.null,
        )

    def _noise_free_sum(self, h: Tensor) -> Tensor:
        tau, budget = self.options.tau, self.given.memory_budget
        tolerance, scores = self.given.eval_tolerance, self.scores
        if tolerance is not None:  # What is certified is never estimated.
            return certified_sum(h, scores, tau, tolerance, memory_budget=budget)
        num_targets, num_sources = self.num_targets, self.scores.src.size(0)
        count = int(min(self.given.max_eval_pairs, 2**62)) // num_targets
        count = max(count, LEAST_SAMPLES)
        if count >= num_sources:
            return noise_free_sum(h, self.scores, tau, memory_budget=budget)
        out, error = sampled_noise_free_sum(
            h, self.scores, tau, count, memory_budget=budget
        )
        _warn_of_estimate(num_targets, num_sources, count, out, error)
        return out


class CandidateList(NamedTuple):
    """Candidates that are listed one by one, sorted by target, with their scores."""

    given: CallOptions
    plan: SamplingPlan
    options: DrawOptions
    edge_index: Tensor
    score: Tensor  # Negative infinity excludes.
    sizes: list[int]  # The numbers of edges of blocks of whole targets.
    num_targets: int
    most: int
    null: Tensor | None = None
    rank: Tensor | None = None  # What orders candidates without noise.

    def graph(self, generator: torch.Generator | None) -> SampledGraph:
        """Return the graph, sorted by target."""
        graphs = []
        order = self.score if self.rank is None else self.rank
        columns = self.score, order
        blocks = (
            self.edge_index.split(self.sizes, 1),
            *(column.split(self.sizes) for column in columns),
        )
        for edge_index, score, rank in zip(*blocks, strict=True):
            # Targets count from the first of the block: no tensor is one of them all.
            first, last = edge_index[1, [0, -1]].tolist()
            shift = edge_index.new_tensor([[0], [first]])
            args = score, edge_index - shift, last - first + 1
            if self.given.is_noisy:
                graph = candidate_graph(
                    *args, self.options, generator=generator, null=self.null
                )
            else:
                options = self.options.tau, self.null, rank
                graph = nearest_candidates(*args, self.given.num_nearest, *options)
            graphs.append(SampledGraph(graph.edge_index + shift, graph.edge_weight))
        return join_graphs(graphs)

    def sum(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sum messages over that graph."""
        return weighted_sum(h, *self.graph(generator), self.num_targets)


class OwnCandidates(NamedTuple):
    """Targets that race, each among many candidates of its own."""

    given: CallOptions
    plan: SamplingPlan
    options: DrawOptions
    scores: PairScores
    target: Tensor
    num_targets: int
    most: int

    def graph(self, generator: torch.Generator | None) -> SampledGraph:
        """Return the graph, sorted by target."""
        drawn, budget = _draw(self, generator), self.given.memory_budget
        graph = drawn_graph(self.scores, *drawn, self.options, budget)
        source, row = graph.edge_index
        return SampledGraph(torch.stack([source, self.target[row]]), graph.edge_weight)

    def sum(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sum messages over that graph."""
        return weighted_sum(h, *self.graph(generator), self.num_targets)


Part = AllPairs | CandidateList | OwnCandidates


def all_pairs(
    pairs: PairScores,
    given: CallOptions,
    memory: EnvelopeMemory | None = None,
    first_source: int = 0,
    first_target: int = 0,
    rows: tuple[int, int] | None = None,
) -> AllPairs:
    """Return the part of one graph, whose first nodes have these places.

    Of all targets only some :obj:`rows` may be wanted: the plan is that of all.
    """
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    pairs = pairs if given.loop else exclude_loops(pairs)
    plan, options = choose_plan(given, num_targets, num_sources)
    envelope = None
    if is_sharp(given, plan, num_sources):
        memory = EnvelopeMemory() if memory is None else memory
        envelope, plan = memory.plan(pairs, given, plan, options)
    part = AllPairs(
        given,
        plan,
        options,
        pairs,
        (first_source, first_source + num_sources),
        (first_target, first_target + num_targets),
        num_targets,
        num_sources,
        envelope,
    )
    return part if rows is None else _part_of_targets(part, *rows)


def _part_of_targets(part: AllPairs, start: int, stop: int) -> AllPairs:
    """Return what draws for some targets as the whole part draws for them."""
    if part.given.is_noisy and part.plan.method == 'dense':
        # The definition draws the noise of all pairs in their order.
        return part._replace(kept=slice(start, stop))
    # Whole groups that share a tail, and at least one target: noise is drawn for none
    # as well, so that what is drawn next is what it would be.
    first = min(start, part.num_targets - 1)
    first -= first % group_size(part.options)
    block = slice(first, max(stop, first + 1))
    envelope = part.envelope
    if envelope is not None and envelope.head is not None:
        envelope = envelope._replace(head=envelope.head.take(block))
    return part._replace(
        scores=part.scores.block(block),
        targets=(part.targets[0] + block.start, part.targets[0] + block.stop),
        envelope=envelope,
        kept=slice(start - first, stop - first),
    )


def _graph_of_targets(graph: SampledGraph, targets: slice) -> SampledGraph:
    target = graph.edge_index[1]
    keep = (target >= targets.start) & (target < targets.stop)
    return SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])


def exclude_loops(pairs: PairScores) -> PairScores:
    """Return the scores of nodes that are no candidates of their own."""
    every = torch.arange(pairs.dst.size(0), device=pairs.dst.device)
    return pairs._replace(excluded=every)


def _draw(
    part: AllPairs | OwnCandidates, generator: torch.Generator | None
) -> tuple[Arrivals, Tail | None]:
    """Draw the first arrivals and the tail of each target."""
    plan, options, scores = part.plan, part.options, part.scores
    if plan.caveat is not None:
        warn_caller(plan.caveat, TruncatedRaceWarning)
    how: dict[str, Any] = {
        'generator': generator,
        'memory_budget': part.given.memory_budget,
    }
    if plan.num_proposals is not None:
        envelope = part.envelope if isinstance(part, AllPairs) else None
        first = plan.num_proposals * (FIRST_ROUND if envelope is None else 1)
        length = math.ceil(min(first, scores.most))
        length = max(8, length) if length else 0  # None: a look at all candidates.
        # Sharp races lose more by it, and those without replacement need all.
        is_enough = envelope is None and options.replace and options.num_tail > 0
        how['least'] = 1 if is_enough else None
        arrivals, tail = race_arrivals(scores, options, length, envelope, **how)
    else:
        tail = draw_tail(scores, options, generator=generator)
        num_arrivals = min(options.num_arrivals, scores.available)
        draw = perturbed_arrivals if plan.method == 'dense' else stream_arrivals
        arrivals = draw(scores, options.num_races, num_arrivals, **how)
    if scores.null is not None:
        shape = arrivals.horizon.shape
        seed = draw_seed(scores.dst.device, generator)
        state = race_states(seed, scores.first * shape[1], shape.numel())
        time = uniform(state, torch.float64).log_().neg_()
        noise = time.log_().neg_().view(shape).to(arrivals.noise.dtype)
        arrivals = arrivals._replace(null=noise)
    return arrivals, tail


def join_graphs(graphs: Sequence[SampledGraph]) -> SampledGraph:
    """Join graphs in their order."""
    if len(graphs) == 1:
        return graphs[0]
    edge_index, weight = (torch.cat(x, dim=-1) for x in zip(*graphs, strict=True))
    return SampledGraph(edge_index, weight)


def _check_size(num_targets: int, num_sources: int) -> None:
    """Raise if a graph of all pairs is too large to be listed."""
    if num_targets * num_sources > MOST_LISTED:
        raise ValueError(
            f"'eval_k' must be a number to list the graph of {num_targets} x "
            f'{num_sources} pairs in evaluation mode: more than {MOST_LISTED} edges '
            f"(got 'all')"
        )


@disable_compile
def _warn_of_estimate(
    num_targets: int, num_sources: int, count: int, out: Tensor, error: Tensor
) -> None:
    """Warn that sums are estimated; eager because it formats tensor values."""
    level = float(out.detach().square().mean().sqrt())
    warn_caller(
        f'the sums over {num_targets} x {num_sources} pairs are estimated from {count} '
        f'sources with an error of {float(error):.2g} (root mean square of some '
        f"targets; that of the sums is {level:.2g}): a larger 'max_eval_pairs' makes "
        f'them exact',
        SampledEvaluationWarning,
    )
