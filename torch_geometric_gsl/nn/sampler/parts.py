"""Parts of a call: targets that are sampled together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl._warnings import one_of_each
from torch_geometric_gsl.nn.sampler.evaluation import evaluated_sum, noise_free_graph
from torch_geometric_gsl.nn.sampler.methods import BY_NAME, Draw
from torch_geometric_gsl.nn.sampler.plan import WIDTH, SamplingPlan, Settings
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.dense import candidate_graph, nearest_candidates
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.tail import group_size
from torch_geometric_gsl.typing import SampledGraph

Generator = torch.Generator | None


class Block(NamedTuple):
    """Targets sampled by one method: those of one graph, or of long lists."""

    settings: Settings
    draw: Draw
    num_targets: int  # Of the graph.
    most: int  # The largest number of candidates of a target.
    # Index of the graph's first source, and of its first target (or of the block's).
    first_source: int = 0
    targets: int | Tensor = 0
    kept: slice = slice(None)  # The targets of the block that are returned.

    @property
    def plan(self) -> SamplingPlan:
        """Return the plan of the draw."""
        return self.draw.plan

    @property
    def is_graph(self) -> bool:
        """Return whether the targets belong to one graph."""
        return not isinstance(self.targets, Tensor)

    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph, sorted by target."""
        if self.settings.is_noisy:
            graph = BY_NAME[self.plan.method].graph(self.draw, generator)
        else:
            graph = noise_free_graph(self.draw.scores, self.settings, self.num_targets)
        (source, target), weight = graph
        if self.kept != slice(None):
            keep = (target >= self.kept.start) & (target < self.kept.stop)
            source, target, weight = source[keep], target[keep], weight[keep]
        if isinstance(self.targets, Tensor):
            target = self.targets[target]
        else:
            source, target = source + self.first_source, target + self.targets
        return SampledGraph(torch.stack([source, target]), weight)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""
        if isinstance(self.targets, Tensor):
            return weighted_sum(h, *self.graph(generator), self.num_targets)
        if self.settings.is_noisy:
            out = BY_NAME[self.draw.plan.method].sum(self.draw, h, generator)
        else:
            out = evaluated_sum(h, self.draw.scores, self.settings, self.num_targets)
        return out if self.kept == slice(None) else out[self.kept]

    def take(self, start: int, stop: int) -> Block:
        """Restrict the block to a range of targets without changing their draws."""
        draw = self.draw
        if self.settings.is_noisy and self.plan.method == 'dense':
            # The definition draws the noise of all pairs in order.
            return self._replace(kept=slice(start, stop))
        # Whole groups with a common tail, and at least one target: an empty range also
        # draws noise, so that later draws stay the same.
        first = min(start, self.num_targets - 1)
        first -= first % group_size(draw.options)
        rows = slice(first, max(stop, first + 1))
        envelope = draw.envelope
        if envelope is not None and envelope.head is not None:
            envelope = envelope._replace(head=envelope.head.take(rows))
        return self._replace(
            draw=draw._replace(scores=draw.scores.block(rows), envelope=envelope),
            targets=rows.start,
            kept=slice(start - first, stop - first),
        )


class Listed(NamedTuple):
    """Listed candidates, sorted by target, with their scores."""

    settings: Settings
    plan: SamplingPlan
    options: DrawOptions
    edge_index: Tensor
    score: Tensor  # Negative infinity excludes.
    rank: Tensor  # The noise-free ranking of candidates.
    sizes: list[int]  # The numbers of edges of blocks of whole targets.
    num_targets: int
    most: int
    null: Tensor | None
    is_graph: bool = False

    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph, sorted by target."""
        graphs = []
        columns = self.edge_index, self.score, self.rank
        blocks = (column.split(self.sizes, -1) for column in columns)
        for edge_index, score, rank in zip(*blocks, strict=True):
            # Number targets from the first of the block: tensors stay small.
            first, last = edge_index[1, [0, -1]].tolist()
            shift = edge_index.new_tensor([[0], [first]])
            args = score, edge_index - shift, last - first + 1
            if self.settings.is_noisy:
                graph = candidate_graph(
                    *args, self.options, generator=generator, null=self.null
                )
            else:
                k, tau = self.settings.num_nearest, self.options.tau
                graph = nearest_candidates(*args, k, tau, self.null, rank)
            graphs.append(SampledGraph(graph.edge_index + shift, graph.edge_weight))
        return _join(graphs)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""
        return weighted_sum(h, *self.graph(generator), self.num_targets)


class Parts(NamedTuple):
    """The parts of a call; each target belongs to at most one.

    Lists come first, then long lists that race, then graphs in order.
    """

    pairs: PairScores
    settings: Settings
    parts: list[Block | Listed]

    def plan(self) -> SamplingPlan:
        """Return the plan of the target with most candidates, with the total cost."""
        if self.parts:
            cost = sum(self._cost(part.plan) for part in self.parts)
            return max(self.parts, key=lambda part: part.most).plan._replace(cost=cost)
        method = 'dense' if self.settings.method == 'auto' else self.settings.method
        return SamplingPlan(method, 'there is nothing to draw', None, None, 0)

    def _cost(self, plan: SamplingPlan) -> float:
        """Return the cost of a part, by the width of the compared rows."""
        if plan.method == 'dense':  # Dominated by the noise.
            return plan.cost
        entries = getattr(self.pairs.src, 'value', self.pairs.src).numel()
        return plan.cost * (1 + entries / max(1, self.pairs.src.size(0)) / WIDTH)

    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph of all parts, sorted by target."""
        if not self.parts:
            return empty_graph(self.pairs.src)
        with one_of_each() if len(self.parts) > 1 else nullcontext():
            graph = _join([part.graph(generator) for part in self.parts])
        if len(self.parts) == 1 or all(part.is_graph for part in self.parts):
            return graph
        return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""
        num_targets = self.pairs.dst.size(0)
        if len(self.parts) == 1 and self.parts[0].num_targets == num_targets:
            return self.parts[0].sum(h, generator)
        # In the order of the graph, for the same result with the same seed.
        with one_of_each():
            sums = [part.sum(h, generator) for part in self.parts if not part.is_graph]
            graphs = [part for part in self.parts if part.is_graph]
            if graphs or not sums:
                sums.append(_sum_of_graphs(graphs, h, num_targets, generator))
        return sum(sums[1:], start=sums[0])


def _sum_of_graphs(
    parts: list[Any], h: Tensor, num_targets: int, generator: Generator
) -> Tensor:
    """Sum over several graphs, with zeros for the targets between them."""
    source, target = [], []
    for part in parts:
        num_sources = part.draw.scores.src.size(0)
        source.append((part.first_source, part.first_source + num_sources))
        target.append((part.targets, part.targets + part.num_targets))
    messages = _split(h, source)[1::2]
    sums = _split(h.new_zeros(num_targets, h.size(1)), target)
    sums[1::2] = [
        part.sum(own, generator) for part, own in zip(parts, messages, strict=True)
    ]
    return torch.cat(sums)


def _split(rows: Tensor, spans: list[tuple[int, int]]) -> list[Tensor]:
    """Split rows into alternating ranges: outside a span, a span, and so on."""
    ends = [0, *chain.from_iterable(spans), rows.size(0)]
    # Split, not sliced: the gradient of a slice would have the size of all rows.
    return list(rows.split([stop - start for start, stop in pairwise(ends)]))


def _join(graphs: Sequence[SampledGraph]) -> SampledGraph:
    """Join graphs in order."""
    if len(graphs) == 1:
        return graphs[0]
    edge_index, weight = (torch.cat(x, dim=-1) for x in zip(*graphs, strict=True))
    return SampledGraph(edge_index, weight)
