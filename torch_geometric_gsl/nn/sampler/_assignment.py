"""The parts of a call, and the graph and the sums of all of them."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl.nn.sampler._parts import AllPairs, Part, join_graphs
from torch_geometric_gsl.nn.sampler.plan import SamplingPlan
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.typing import SampledGraph


class Assignment(NamedTuple):
    """The parts of a call; each of its targets stands in one of them at the most."""

    pairs: PairScores
    parts: list[Part]

    def plan(self, method: str) -> SamplingPlan:
        """Return the plan of the target with the most candidates."""
        if self.parts:
            return max(self.parts, key=lambda part: part.most).plan
        asked = 'dense' if method == 'auto' else method
        return SamplingPlan(asked, 'there is nothing to draw', None, None, 0)

    def graph(self, generator: torch.Generator | None) -> SampledGraph:
        """Return the graph of all parts, sorted by target."""
        if not self.parts:
            none = self.pairs.src.new_empty(2, 0)
            return SampledGraph(none.long(), none[0])
        graph = join_graphs([part.graph(generator) for part in self.parts])
        if len({type(part) for part in self.parts}) == 1:
            return graph
        return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))

    def sum(self, h: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sum messages over that graph; without noise over all candidates."""
        num_targets = self.pairs.dst.size(0)
        if len(self.parts) == 1 and self.parts[0].num_targets == num_targets:
            return self.parts[0].sum(h, generator)
        # In the order of the graph, so that one seed gives its weights.
        blocks = [part for part in self.parts if isinstance(part, AllPairs)]
        sums = [p.sum(h, generator) for p in self.parts if not isinstance(p, AllPairs)]
        if blocks:
            sums.append(_sum_of_blocks(blocks, h, num_targets, generator))
        return (
            sum(sums[1:], start=sums[0])
            if sums
            else h.new_zeros(num_targets, h.size(1))
        )


def _sum_of_blocks(
    blocks: list[AllPairs],
    h: Tensor,
    num_targets: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Sum over each of several graphs, with zeros for the targets between them."""
    messages = _split(h, [block.sources for block in blocks])[1::2]
    sums = _split(h.new_zeros(num_targets, h.size(1)), [b.targets for b in blocks])
    sums[1::2] = [
        block.sum(own, generator) for block, own in zip(blocks, messages, strict=True)
    ]
    return torch.cat(sums)


def _split(rows: Tensor, spans: list[tuple[int, int]]) -> list[Tensor]:
    """Split rows into those before a span, a span, those up to the next and so on."""
    ends = [0, *chain.from_iterable(spans), rows.size(0)]
    # Split, not sliced: the gradient of each slice would be one of all rows.
    return list(rows.split([stop - start for start, stop in pairwise(ends)]))
