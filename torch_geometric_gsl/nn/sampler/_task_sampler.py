"""What a sampler draws for a task: a graph, or sums over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
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
    memory_budget: int
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
        parts = list(self._block_sums(task, h))
        edges = self._edges(task, everything=not self.request.is_noisy)
        if edges.edge_weight.numel() > 0 or not parts:
            parts.append(weighted_sum(h, *edges, num_targets=task.num_targets))
        # Each target stands in one part: nothing is counted twice.
        return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]

    def _edges(self, task: Task, everything: bool = False) -> SampledGraph:
        """The edges to targets with candidates of their own."""
        empty = torch.empty(0, device=task.device)
        parts = [SampledGraph(empty.long().view(1, 0).expand(2, 0), empty)]
        parts += [
            self._listed(listed, task.num_targets, everything) for listed in task.listed
        ]
        if task.ragged is not None:
            edge_index, weight = self._blocks().graph(task.ragged.scorer, 'race')
            edges = [edge_index[0], task.ragged.target[edge_index[1]]]
            parts.append(SampledGraph(torch.stack(edges), weight))
        return _join(parts, is_sorted=task.ragged is None)

    def _listed(
        self, listed: Listed, num_targets: int, everything: bool
    ) -> SampledGraph:
        """The graph among listed candidates, all of which are drawn."""
        law = self.request.law
        args = listed.score, listed.edge_index, num_targets
        if self.request.is_noisy:
            return candidate_graph(*args, law, generator=self.generator)
        everything = everything or (self.request.method == 'dense' and law.replace)
        return nearest_candidates(*args, None if everything else law.k, law.tau)

    def _block_sums(self, task: Task, h: Tensor) -> Iterator[Tensor]:
        """The sums over the blocks, each filled up to all targets."""
        blocks = self._blocks()
        for scorer, source, target, method in task.blocks:
            total = blocks.sum(scorer, method, h[source : source + scorer.size[1]])
            after = task.num_targets - target - scorer.size[0]
            yield F.pad(total, (0, 0, target, after)) if target or after else total

    def _blocks(self) -> BlockSampler:
        return BlockSampler(self.request, self.memory_budget, self.generator)


def _join(parts: list[SampledGraph], is_sorted: bool) -> SampledGraph:
    edge_index, weight = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    if is_sorted:
        return SampledGraph(edge_index, weight)
    return SampledGraph(*sort_edge_index(edge_index, weight, sort_by_row=False))
