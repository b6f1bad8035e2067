"""Groups of the targets of a call, which find their neighbours together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl._warnings import one_of_each
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.envelope import Envelope
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.typing import SampledGraph

Generator = torch.Generator | None


class Targets(ABC):
    """Targets that find their neighbours together."""

    @abstractmethod
    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph, sorted by target."""

    @abstractmethod
    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""

    def split(self) -> Sequence[Targets]:
        """Return the groups that these targets consist of."""
        return [self]


class DrawnTargets(Targets):
    """Targets that one method draws, and how."""

    pairs: PairScores
    options: DrawOptions
    plan: SamplingPlan
    envelope: Envelope | None = None  # Bounds of sharp scores.

    @property
    def num_candidates(self) -> int:
        """Return the number of candidates of the target with the most."""
        return self.pairs.num_candidates


@dataclass(eq=False)
class GraphTargets(Targets):
    """The targets of one graph, or a range of them, with all of its sources."""

    pairs: PairScores
    num_targets: int  # Of the graph, not of a range.
    first_source: int
    first_target: int
    # The targets of `pairs` that are returned, if not all.
    selection: slice | None = field(default=None, kw_only=True)

    @abstractmethod
    def edges(self, generator: Generator) -> SampledGraph:
        """Return the graph of the targets, numbered from zero."""

    def graph(self, generator: Generator) -> SampledGraph:
        (source, target), weight = self.edges(generator)
        if self.selection is not None:
            start, stop = self.selection.start, self.selection.stop
            is_selected = (target >= start) & (target < stop)
            source, target = source[is_selected], target[is_selected]
            weight = weight[is_selected]
        source, target = source + self.first_source, target + self.first_target
        return SampledGraph(torch.stack([source, target]), weight)

    def restrict(self, start: int, stop: int, multiple: int = 16) -> None:
        """Restrict the targets to a range, computed from a multiple on.

        Products of aligned rows mostly round as those of all rows.
        """
        # At least one target: a sum has a gradient, and a draw takes random numbers.
        first_target = min(start, self.num_targets - 1)
        first_target -= first_target % multiple
        self.pairs = self.pairs.block(slice(first_target, max(stop, first_target + 1)))
        self.first_target = first_target
        self.selection = slice(start - first_target, stop - first_target)


@dataclass(eq=False)
class ListedTargets(Targets):
    """Targets with listed candidates, with columns such as their scores."""

    pairs: PairScores
    edge_index: Tensor  # Sorted by target.
    sizes: list[int]  # The numbers of edges of blocks of whole targets.
    columns: tuple[Tensor, ...]

    @abstractmethod
    def edges(
        self, edge_index: Tensor, num_targets: int, generator: Generator, *columns: Any
    ) -> SampledGraph:
        """Return the graph of a block of targets, numbered from zero."""

    def graph(self, generator: Generator) -> SampledGraph:
        graphs = []
        columns = self.edge_index, *self.columns
        blocks = (column.split(self.sizes, -1) for column in columns)
        for edge_index, *block in zip(*blocks, strict=True):
            # Number targets from the first of the block: tensors stay small.
            first_target, last_target = edge_index[1, [0, -1]].tolist()
            num_targets = last_target - first_target + 1
            shift = edge_index.new_tensor([[0], [first_target]])
            graph = self.edges(edge_index - shift, num_targets, generator, *block)
            graphs.append(SampledGraph(graph.edge_index + shift, graph.edge_weight))
        return _join(graphs)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        return weighted_sum(h, *self.graph(generator), self.pairs.dst.size(0))


@dataclass(eq=False)
class TargetGroups(Targets):
    """Several groups of targets, or none; each target belongs to at most one.

    Lists come first, then long lists that race, then graphs in order.
    """

    pairs: PairScores
    groups: Sequence[Targets]

    def split(self) -> Sequence[Targets]:
        return self.groups

    def graph(self, generator: Generator) -> SampledGraph:
        if not self.groups:
            return empty_graph(self.pairs.src)
        with one_of_each() if len(self.groups) > 1 else nullcontext():
            graph = _join([group.graph(generator) for group in self.groups])
        in_order = all(isinstance(group, GraphTargets) for group in self.groups)
        if in_order or len(self.groups) == 1:
            return graph
        return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        # In the order of the graph, for the same result with the same seed.
        graphs = [group for group in self.groups if isinstance(group, GraphTargets)]
        lists = [group for group in self.groups if not isinstance(group, GraphTargets)]
        with one_of_each():
            sums = [group.sum(h, generator) for group in lists]
            if graphs or not sums:
                sums.append(self._sum_of_graphs(graphs, h, generator))
        return sum(sums[1:], start=sums[0])

    def _sum_of_graphs(
        self, graphs: list[GraphTargets], h: Tensor, generator: Generator
    ) -> Tensor:
        """Sum over several graphs, with zeros for the targets between them."""
        sources = [(group.first_source, group.pairs.src.size(0)) for group in graphs]
        targets = [(group.first_target, group.num_targets) for group in graphs]
        messages = _split(h, sources)[1::2]
        sums = _split(h.new_zeros(self.pairs.dst.size(0), h.size(1)), targets)
        sums[1::2] = [
            group.sum(rows, generator)
            for group, rows in zip(graphs, messages, strict=True)
        ]
        return torch.cat(sums)


def _split(rows: Tensor, spans: list[tuple[int, int]]) -> list[Tensor]:
    """Split rows into alternating ranges: outside a span, a span, and so on.

    A span has a start and a length.
    """
    ends = chain.from_iterable((start, start + size) for start, size in spans)
    # Split, not sliced: the gradient of a slice would have the size of all rows.
    limits = pairwise([0, *ends, rows.size(0)])
    return list(rows.split([stop - start for start, stop in limits]))


def _join(graphs: Sequence[SampledGraph]) -> SampledGraph:
    """Join graphs in order."""
    if len(graphs) == 1:
        return graphs[0]
    edge_index, weight = (torch.cat(x, dim=-1) for x in zip(*graphs, strict=True))
    return SampledGraph(edge_index, weight)
