"""What a sampler draws from all pairs of one graph."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.propagate import expected_sum
from torch_geometric_gsl.ops.relaxed import (
    dense_graph,
    expected_weights,
    relaxed_weights,
)
from torch_geometric_gsl.ops.scorer import Law, Scorer
from torch_geometric_gsl.ops.stream import nearest_graph, stream_graph
from torch_geometric_gsl.typing import SampledGraph


class BlockSampler(NamedTuple):
    """The method, the mode and the randomness of one call."""

    law: Law
    is_dense: bool
    is_noisy: bool
    memory_budget: int
    generator: torch.Generator | None

    def graph(self, scorer: Scorer) -> SampledGraph:
        """The graph of the block, its nodes counted from zero."""
        budget = self.memory_budget
        if self.is_dense:
            has_loops = scorer.available == scorer.size[1]
            return dense_graph(self._matrix(scorer), loop=has_loops)
        if self.is_noisy:
            return stream_graph(
                scorer, self.law, generator=self.generator, memory_budget=budget
            )
        return nearest_graph(scorer, self.law.k, self.law.tau, memory_budget=budget)

    def sum(self, scorer: Scorer, h: Tensor) -> Tensor:
        """The weighted sum over all pairs: of a dense draw, or without noise."""
        if self.is_noisy:
            return self._matrix(scorer).to(h.dtype) @ h
        return expected_sum(h, scorer, self.law.tau, memory_budget=self.memory_budget)

    def _matrix(self, scorer: Scorer) -> Tensor:
        score = scorer.rows(slice(0, scorer.size[0]))
        if not self.is_noisy:
            return expected_weights(score, self.law.tau)
        return relaxed_weights(
            score,
            self.law.k,
            self.law.tau,
            hard=self.law.hard,
            generator=self.generator,
            memory_budget=self.memory_budget,
        )
