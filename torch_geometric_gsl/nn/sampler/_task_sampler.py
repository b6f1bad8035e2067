"""What a sampler draws for a task: a graph, or sums over it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl.nn.sampler._block_sampler import BlockSampler
from torch_geometric_gsl.nn.sampler._scorer import Request
from torch_geometric_gsl.nn.sampler._task import Listed, Task
from torch_geometric_gsl.ops.candidates import candidate_graph, nearest_candidates
from torch_geometric_gsl.ops.propagate import weighted_sum
from torch_geometric_gsl.typing import SampledGraph


class TaskSampler(NamedTuple):
    """The options, the mode and the randomness of one call."""

    request: Request
    generator: torch.Generator | None

    def graph(self, task: Task) -> SampledGraph:
        """The graph of all parts of a task, sorted by target."""
        parts = [self._edges(task)]
        blocks = self._blocks()
        for scorer, *first, method in task.blocks:
            edges, weight = blocks.graph(scorer, method)
            shift = edges.new_tensor(first).view(2, 1)
            parts.append(SampledGraph(edges + shift, weight))
        is_sorted = parts[0].edge_weight.numel() == 0 or not task.blocks
        return _join(parts, is_sorted)

    def sum(self, task: Task, h: Tensor) -> Tensor:
        """The sums over that graph; without noise over all candidates."""
        # In the order of the graph, so that one seed gives its weights.
        edges = self._edges(task, everything=not self.request.is_noisy)
        blocks = self._block_sum(task, h) if task.blocks else None
        if blocks is not None and edges.edge_weight.numel() == 0:
            return blocks
        total = weighted_sum(h, *edges, num_targets=task.num_targets)
        # Each target stands in one part: nothing is counted twice.
        return total if blocks is None else total + blocks

    def _edges(self, task: Task, everything: bool = False) -> SampledGraph:
        """The edges to targets with candidates of their own."""
        empty = torch.empty(0, device=task.device)
        parts = [SampledGraph(empty.long().view(1, 0).expand(2, 0), empty)]
        parts += [self._listed(listed, everything) for listed in task.listed]
        if task.ragged is not None:
            edge_index, weight = self._blocks().graph(task.ragged.scorer, 'race')
            edges = [edge_index[0], task.ragged.target[edge_index[1]]]
            parts.append(SampledGraph(torch.stack(edges), weight))
        return _join(parts, is_sorted=task.ragged is None)

    def _listed(self, listed: Listed, everything: bool) -> SampledGraph:
        """The graph among listed candidates, all of which are drawn."""
        law = self.request.law
        # Targets count from the first of the block: no tensor is one of all targets.
        first, last = listed.edge_index[1, [0, -1]].tolist()
        shift = listed.edge_index.new_tensor([[0], [first]])
        args = listed.score, listed.edge_index - shift, last - first + 1
        if self.request.is_noisy:
            graph = candidate_graph(*args, law, generator=self.generator)
        else:
            everything = everything or (self.request.method == 'dense' and law.replace)
            k = None if everything else law.k
            graph = nearest_candidates(*args, k, law.tau)
        return SampledGraph(graph.edge_index + shift, graph.edge_weight)

    def _block_sum(self, task: Task, h: Tensor) -> Tensor:
        """The sums over the blocks, and zeros of the targets between them."""
        blocks, parts = self._blocks(), []
        sources = [(block.first_source, block.scorer.size[1]) for block in task.blocks]
        targets = [(block.first_target, block.scorer.size[0]) for block in task.blocks]
        # Split, not sliced: the gradient of each slice would be one of all messages.
        messages = h.split(_lengths(sources, task.num_sources))[1::2]
        *gaps, rest = _lengths(targets, task.num_targets)[::2]
        for (scorer, _, _, method), own, gap in zip(
            task.blocks, messages, gaps, strict=True
        ):
            total = blocks.sum(scorer, method, own)
            parts += [total.new_zeros(gap, h.size(1)), total]
        parts.append(total.new_zeros(rest, h.size(1)))
        parts = [part for part in parts if part.size(0) > 0]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _blocks(self) -> BlockSampler:
        return BlockSampler(self.request, self.generator)


def _lengths(spans: list[tuple[int, int]], total: int) -> list[int]:
    """The lengths of a gap, a span (a start and a length), a gap and so on."""
    lengths, stop = [], 0
    for start, length in spans:
        lengths += [start - stop, length]
        stop = start + length
    return [*lengths, total - stop]


def _join(parts: list[SampledGraph], is_sorted: bool) -> SampledGraph:
    edge_index, weight = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    if is_sorted:
        return SampledGraph(edge_index, weight)
    return SampledGraph(*sort_edge_index(edge_index, weight, sort_by_row=False))
