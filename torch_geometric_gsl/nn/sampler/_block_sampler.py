"""What a sampler draws from all pairs of one graph."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler._plan import (
    LEAST_SAMPLES,
    SampledEvaluationWarning,
    proposals,
)
from torch_geometric_gsl.nn.sampler._scorer import Request
from torch_geometric_gsl.ops.arrivals import Arrivals
from torch_geometric_gsl.ops.draws import draw_tail, drawn_graph, drawn_sum
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.propagate import expected_sum, sampled_expected_sum
from torch_geometric_gsl.ops.race import race_arrivals
from torch_geometric_gsl.ops.relaxed import (
    dense_graph,
    expected_weights,
    relaxed_weights,
)
from torch_geometric_gsl.ops.scorer import Scorer
from torch_geometric_gsl.ops.stream import first_arrivals, nearest_graph
from torch_geometric_gsl.typing import SampledGraph


class BlockSampler(NamedTuple):
    """The options, the mode and the randomness of one call."""

    request: Request
    generator: torch.Generator | None

    def graph(self, scorer: Scorer, method: str) -> SampledGraph:
        """The graph of the block, its nodes counted from zero."""
        law, budget = self.request.law, self.request.memory_budget
        # Distinct neighbours are k edges per target: no method lists all pairs.
        is_whole = self.request.is_noisy or self.request.method == 'dense'
        if method == 'dense' and law.replace and is_whole:
            return dense_graph(self._matrix(scorer), loop=scorer.excluded is None)
        if self.request.is_noisy:
            tail = draw_tail(scorer, law, generator=self.generator)
            with torch.autocast(scorer.device.type, enabled=False):
                arrivals = self._arrivals(scorer, method)
                return drawn_graph(scorer, arrivals, tail, law, budget)
        return nearest_graph(scorer, law.k, law.tau, memory_budget=budget)

    def sum(self, scorer: Scorer, method: str, h: Tensor) -> Tensor:
        """The weighted sum over the drawn graph, or over all pairs without noise."""
        law = self.request.law
        if not self.request.is_noisy:
            return self._expected_sum(scorer, h)
        if method == 'dense' and law.replace:
            return self._matrix(scorer).to(h.dtype) @ h
        tail = draw_tail(scorer, law, generator=self.generator)
        arrivals = self._arrivals(scorer, method)
        with torch.autocast(scorer.device.type, enabled=False):
            budget = self.request.memory_budget
            return drawn_sum(h, scorer, arrivals, tail, law, budget)

    def _expected_sum(self, scorer: Scorer, h: Tensor) -> Tensor:
        tau, (num_targets, num_sources) = self.request.law.tau, scorer.size
        budget = {'memory_budget': self.request.memory_budget}
        count = int(min(self.request.max_eval_pairs, 2**62)) // num_targets
        count = max(count, LEAST_SAMPLES)
        if count >= num_sources:
            return expected_sum(h, scorer, tau, **budget)
        out, error = sampled_expected_sum(h, scorer, tau, count, **budget)
        _warn(scorer.size, count, out, error)
        return out

    def _arrivals(self, scorer: Scorer, method: str) -> Arrivals:
        similarity, law, scale, *_ = self.request
        if method == 'race':
            count = int(proposals(similarity, law, scale))
            return race_arrivals(
                scorer,
                law,
                count,
                generator=self.generator,
                memory_budget=self.request.memory_budget,
            )
        return first_arrivals(
            scorer,
            law.draws,
            min(law.kept, scorer.available),
            generator=self.generator,
            memory_budget=self.request.memory_budget,
        )

    def _matrix(self, scorer: Scorer) -> Tensor:
        score = scorer.rows(slice(0, scorer.size[0]))
        law = self.request.law
        if not self.request.is_noisy:
            return expected_weights(score, law.tau)
        return relaxed_weights(
            score,
            law.k,
            law.tau,
            hard=law.hard,
            generator=self.generator,
            memory_budget=self.request.memory_budget,
        )


@eager
def _warn(size: tuple[int, int], count: int, out: Tensor, error: Tensor) -> None:
    """Tells of an estimate; the tracer cannot write the numbers."""
    level = float(out.detach().square().mean().sqrt())
    warn_caller(
        f'the sums over {size[0]} x {size[1]} pairs are estimated from {count} '
        f'sources with an error of {float(error):.2g} (root mean square of some '
        f"targets; that of the sums is {level:.2g}): a larger 'max_eval_pairs' makes "
        f'them exact',
        SampledEvaluationWarning,
    )
