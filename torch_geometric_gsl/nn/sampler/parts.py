"""Parts of a call: targets that find their neighbours together."""

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
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.typing import SampledGraph

Generator = torch.Generator | None


class Part(ABC):
    """Targets that find their neighbours together."""

    @abstractmethod
    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph, sorted by target."""

    @abstractmethod
    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""


@dataclass(eq=False)
class GraphPart(Part):
    """The targets of one graph, or a range of them, with all of its sources."""

    pairs: PairScores
    num_targets: int  # Of the graph, not of a range.
    first_source: int
    first_target: int
    # The targets of `pairs` that are returned, if not all.
    kept: slice | None = field(default=None, kw_only=True)

    @abstractmethod
    def edges(self, generator: Generator) -> SampledGraph:
        """Return the graph of the targets, numbered from zero."""

    def graph(self, generator: Generator) -> SampledGraph:
        (source, target), weight = self.edges(generator)
        if self.kept is not None:
            keep = (target >= self.kept.start) & (target < self.kept.stop)
            source, target, weight = source[keep], target[keep], weight[keep]
        source, target = source + self.first_source, target + self.first_target
        return SampledGraph(torch.stack([source, target]), weight)

    def restrict(self, start: int, stop: int, group: int = 16) -> None:
        """Restrict the part to a range of targets, computed in whole groups.

        Products of aligned rows mostly round as those of all rows.
        """
        # At least one target: a sum has a gradient, and a draw takes random numbers.
        first = min(start, self.num_targets - 1)
        first -= first % group
        self.pairs = self.pairs.block(slice(first, max(stop, first + 1)))
        self.first_target = first
        self.kept = slice(start - first, stop - first)


@dataclass(eq=False)
class Listed(Part):
    """Listed candidates, sorted by target, with columns such as their scores."""

    pairs: PairScores
    edge_index: Tensor
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
            first, last = edge_index[1, [0, -1]].tolist()
            shift = edge_index.new_tensor([[0], [first]])
            args = edge_index - shift, last - first + 1, generator
            graph = self.edges(*args, *block)
            graphs.append(SampledGraph(graph.edge_index + shift, graph.edge_weight))
        return _join(graphs)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        return weighted_sum(h, *self.graph(generator), self.pairs.dst.size(0))


@dataclass(eq=False)
class Parts(Part):
    """Several parts of a call, or none; each target belongs to at most one.

    Lists come first, then long lists that race, then graphs in order.
    """

    pairs: PairScores
    parts: Sequence[Part]

    def graph(self, generator: Generator) -> SampledGraph:
        if not self.parts:
            return empty_graph(self.pairs.src)
        with one_of_each() if len(self.parts) > 1 else nullcontext():
            graph = _join([part.graph(generator) for part in self.parts])
        if len(self.parts) == 1 or all(isinstance(p, GraphPart) for p in self.parts):
            return graph
        return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        # In the order of the graph, for the same result with the same seed.
        graphs = [part for part in self.parts if isinstance(part, GraphPart)]
        lists = [part for part in self.parts if not isinstance(part, GraphPart)]
        with one_of_each():
            sums = [part.sum(h, generator) for part in lists]
            if graphs or not sums:
                sums.append(self._sum_of_graphs(graphs, h, generator))
        return sum(sums[1:], start=sums[0])

    def _sum_of_graphs(
        self, parts: list[GraphPart], h: Tensor, generator: Generator
    ) -> Tensor:
        """Sum over several graphs, with zeros for the targets between them."""
        source, target = [], []
        for part in parts:
            source.append((part.first_source, part.pairs.src.size(0)))
            target.append((part.first_target, part.num_targets))
        messages = _split(h, source)[1::2]
        sums = _split(h.new_zeros(self.pairs.dst.size(0), h.size(1)), target)
        sums[1::2] = [
            part.sum(rows, generator)
            for part, rows in zip(parts, messages, strict=True)
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
