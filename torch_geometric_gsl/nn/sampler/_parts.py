"""The three forms of candidates, and what is drawn from each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.plan import (
    LEAST_SAMPLES,
    CallOptions,
    SampledEvaluationWarning,
    SamplingPlan,
)
from torch_geometric_gsl.ops.aggregate import drawn_graph, drawn_sum, weighted_sum
from torch_geometric_gsl.ops.dense import dense_graph, relaxed_weights
from torch_geometric_gsl.ops.listed import candidate_graph, nearest_candidates
from torch_geometric_gsl.ops.noise_free import (
    nearest_graph,
    noise_free_sum,
    noise_free_weights,
    sampled_noise_free_sum,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.stream import stream_arrivals
from torch_geometric_gsl.ops.tail import draw_tail
from torch_geometric_gsl.typing import SampledGraph


class AllPairs(NamedTuple):
    """All pairs of one graph, served by the method of its plan.

    Args:
        scores (PairScores): The scores.
        plan (SamplingPlan): The plan.
        options (DrawOptions): How neighbours are drawn.
        first_source (int, optional): The place of the graph's first node among all
            sources. (default: :obj:`0`)
        first_target (int, optional): The place of the graph's first node among all
            targets. (default: :obj:`0`)
    """

    scores: PairScores
    plan: SamplingPlan
    options: DrawOptions
    first_source: int = 0
    first_target: int = 0

    @property
    def num_targets(self) -> int:
        """The number of targets of the graph."""
        return self.scores.dst.size(0)

    @property
    def most(self) -> int:
        """The number of candidates of the target with the most."""
        return self.scores.most

    def graph(
        self, given: CallOptions, generator: torch.Generator | None
    ) -> SampledGraph:
        """Return the graph, its nodes counted from zero."""
        scores, options, budget = self.scores, self.options, given.memory_budget
        # Distinct neighbours are k edges per target: no method lists all pairs.
        is_whole = given.is_noisy or given.method == 'dense'
        if self.plan.method == 'dense' and options.replace and is_whole:
            weight = self._weights(given, generator)
            return dense_graph(weight, loop=scores.excluded is None)
        if not given.is_noisy:
            k, tau = options.k, options.tau
            return nearest_graph(scores, k, tau, memory_budget=budget)
        tail = draw_tail(scores, options, generator=generator)
        arrivals = self._arrivals(given, generator)
        return drawn_graph(scores, arrivals, tail, options, budget)

    def sum(
        self, h: Tensor, given: CallOptions, generator: torch.Generator | None
    ) -> Tensor:
        """Sum messages over the drawn graph, or over all pairs without noise."""
        scores, options = self.scores, self.options
        if not given.is_noisy:
            return self._noise_free_sum(h, given)
        if self.plan.method == 'dense' and options.replace:
            return self._weights(given, generator).to(h.dtype) @ h
        tail = draw_tail(scores, options, generator=generator)
        arrivals = self._arrivals(given, generator)
        return drawn_sum(h, scores, arrivals, tail, options, given.memory_budget)

    def _weights(self, given: CallOptions, generator: torch.Generator | None) -> Tensor:
        score, options = self.scores.rows(), self.options
        if not given.is_noisy:
            return noise_free_weights(score, options.tau)
        return relaxed_weights(
            score,
            options.k,
            options.tau,
            hard=options.hard,
            generator=generator,
            memory_budget=given.memory_budget,
        )

    def _arrivals(
        self, given: CallOptions, generator: torch.Generator | None
    ) -> Arrivals:
        scores, options, budget = self.scores, self.options, given.memory_budget
        if self.plan.num_proposals is not None:
            return race_arrivals(
                scores,
                options,
                self.plan.num_proposals,
                generator=generator,
                memory_budget=budget,
            )
        return stream_arrivals(
            scores,
            options.num_races,
            min(options.num_arrivals, scores.available),
            generator=generator,
            memory_budget=budget,
        )

    def _noise_free_sum(self, h: Tensor, given: CallOptions) -> Tensor:
        tau, budget = self.options.tau, given.memory_budget
        num_targets, num_sources = self.scores.dst.size(0), self.scores.src.size(0)
        count = int(min(given.max_eval_pairs, 2**62)) // num_targets
        count = max(count, LEAST_SAMPLES)
        if count >= num_sources:
            return noise_free_sum(h, self.scores, tau, memory_budget=budget)
        out, error = sampled_noise_free_sum(
            h, self.scores, tau, count, memory_budget=budget
        )
        _warn_of_estimate(num_targets, num_sources, count, out, error)
        return out


class CandidateList(NamedTuple):
    r"""Candidates that are listed one by one, sorted by target, with their scores.

    Args:
        edge_index (torch.Tensor): The candidate edges :math:`[2, |E|]`.
        score (torch.Tensor): Their scores :math:`[|E|]`; :math:`-\infty` excludes.
        sizes (list[int]): The numbers of edges of blocks of whole targets.
        num_targets (int): The number of targets.
        plan (SamplingPlan): The plan of the target with the most.
        options (DrawOptions): How neighbours are drawn.
    """

    edge_index: Tensor
    score: Tensor
    sizes: list[int]
    num_targets: int
    plan: SamplingPlan
    options: DrawOptions

    @property
    def most(self) -> int:
        """The number of candidates of the target with the most."""
        return int(self.edge_index[1].bincount().max())

    def graph(
        self, given: CallOptions, generator: torch.Generator | None
    ) -> SampledGraph:
        """Return the graph, sorted by target."""
        is_whole = given.method == 'dense' and self.options.replace
        return self._graph(given, generator, None if is_whole else self.options.k)

    def sum(
        self, h: Tensor, given: CallOptions, generator: torch.Generator | None
    ) -> Tensor:
        """Sum messages over that graph, or over all candidates without noise."""
        graph = self._graph(given, generator, None)
        return weighted_sum(h, *graph, num_targets=self.num_targets)

    def _graph(
        self,
        given: CallOptions,
        generator: torch.Generator | None,
        k: int | None,
    ) -> SampledGraph:
        parts = []
        blocks = self.edge_index.split(self.sizes, 1), self.score.split(self.sizes)
        for edge_index, score in zip(*blocks, strict=True):
            # Targets count from the first of the block: no tensor is one of them all.
            first, last = edge_index[1, [0, -1]].tolist()
            shift = edge_index.new_tensor([[0], [first]])
            args = score, edge_index - shift, last - first + 1
            if given.is_noisy:
                graph = candidate_graph(*args, self.options, generator=generator)
            else:
                graph = nearest_candidates(*args, k, self.options.tau)
            parts.append(SampledGraph(graph.edge_index + shift, graph.edge_weight))
        return join_graphs(parts)


class OwnCandidates(NamedTuple):
    """Targets that race, each among many candidates of its own.

    Args:
        scores (PairScores): The scores of these targets.
        target (torch.Tensor): The targets.
        num_targets (int): The number of all targets.
        plan (SamplingPlan): The plan of the target with the most.
        options (DrawOptions): How neighbours are drawn.
    """

    scores: PairScores
    target: Tensor
    num_targets: int
    plan: SamplingPlan
    options: DrawOptions

    @property
    def most(self) -> int:
        """The number of candidates of the target with the most."""
        return self.scores.most

    def graph(
        self, given: CallOptions, generator: torch.Generator | None
    ) -> SampledGraph:
        """Return the graph, sorted by target."""
        scores, options, budget = self.scores, self.options, given.memory_budget
        tail = draw_tail(scores, options, generator=generator)
        arrivals = race_arrivals(
            scores,
            options,
            self.plan.num_proposals or 1,
            generator=generator,
            memory_budget=budget,
        )
        (source, row), weight = drawn_graph(scores, arrivals, tail, options, budget)
        return SampledGraph(torch.stack([source, self.target[row]]), weight)

    def sum(
        self, h: Tensor, given: CallOptions, generator: torch.Generator | None
    ) -> Tensor:
        """Sum messages over that graph."""
        graph = self.graph(given, generator)
        return weighted_sum(h, *graph, num_targets=self.num_targets)


Part = AllPairs | CandidateList | OwnCandidates


def join_graphs(graphs: Sequence[SampledGraph]) -> SampledGraph:
    """Join graphs in their order."""
    if len(graphs) == 1:
        return graphs[0]
    edge_index, weight = (torch.cat(x, dim=-1) for x in zip(*graphs, strict=True))
    return SampledGraph(edge_index, weight)


def draw_graph(
    parts: Sequence[Part],
    given: CallOptions,
    generator: torch.Generator | None,
    device: torch.device,
) -> SampledGraph:
    """Return the graph of all parts, sorted by target."""
    graphs = []
    for part in parts:
        edge_index, weight = part.graph(given, generator)
        if isinstance(part, AllPairs):
            first = edge_index.new_tensor([[part.first_source], [part.first_target]])
            edge_index = edge_index + first
        graphs.append(SampledGraph(edge_index, weight))
    if not graphs:
        none = torch.empty(0, device=device)
        return SampledGraph(none.long().view(1, 0).expand(2, 0), none)
    graph = join_graphs(graphs)
    if len({type(part) for part in parts}) == 1:
        return graph
    return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))


def draw_sum(
    parts: Sequence[Part],
    h: Tensor,
    num_targets: int,
    given: CallOptions,
    generator: torch.Generator | None,
) -> Tensor:
    """Sum messages over the graph of all parts; without noise over all candidates."""
    if len(parts) == 1 and parts[0].num_targets == num_targets:
        return parts[0].sum(h, given, generator)
    # In the order of the graph, so that one seed gives its weights.
    sums = [x.sum(h, given, generator) for x in parts if not isinstance(x, AllPairs)]
    pairs = [part for part in parts if isinstance(part, AllPairs)]
    if pairs:
        sums.append(_sum_of_graphs(pairs, h, num_targets, given, generator))
    # Each target stands in one part: nothing is counted twice.
    return sum(sums[1:], start=sums[0]) if sums else h.new_zeros(num_targets, h.size(1))


def _sum_of_graphs(
    pairs: list[AllPairs],
    h: Tensor,
    num_targets: int,
    given: CallOptions,
    generator: torch.Generator | None,
) -> Tensor:
    """Sum over each of several graphs, with zeros for the targets between them."""
    sources = [(part.first_source, part.scores.src.size(0)) for part in pairs]
    targets = [(part.first_target, part.scores.dst.size(0)) for part in pairs]
    # Split, not sliced: the gradient of each slice would be one of all messages.
    messages = h.split(_lengths(sources, h.size(0)))[1::2]
    *gaps, rest = _lengths(targets, num_targets)[::2]
    sums: list[Tensor] = []
    for part, own, gap in zip(pairs, messages, gaps, strict=True):
        total = part.sum(own, given, generator)
        sums += [total.new_zeros(gap, h.size(1)), total]
    return torch.cat([*sums, total.new_zeros(rest, h.size(1))])


def _lengths(spans: list[tuple[int, int]], total: int) -> list[int]:
    """Return the lengths of a gap, a span (a start and a length), a gap and so on."""
    lengths, stop = [], 0
    for start, length in spans:
        lengths += [start - stop, length]
        stop = start + length
    return [*lengths, total - stop]


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
