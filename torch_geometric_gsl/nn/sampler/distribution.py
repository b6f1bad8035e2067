"""Describe the distribution that neighbours are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.nn.sampler.candidates import Block, Parts
from torch_geometric_gsl.ops.graph_stats import (
    candidate_null_share,
    candidate_spread,
    null_share,
    score_spread,
)


class NeighbourDistribution(NamedTuple):
    r"""The distribution that the neighbours of each target are drawn from.

    Args:
        candidates (torch.Tensor): The number of candidates :math:`[n]`.
        entropy (torch.Tensor): The entropy of :math:`\pi_i` in nats :math:`[n]`.
        effective (torch.Tensor): The effective number of candidates
            :math:`e^{H(\pi_i)}`.
        null (torch.Tensor, optional): The share of the null neighbour, if there is
            one; the others are those of :math:`\pi_i` without it.
            (default: :obj:`None`)
    """

    candidates: Tensor
    entropy: Tensor
    effective: Tensor
    null: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> NeighbourDistribution:
        """Return what a function makes of each of the tensors."""
        null = None if self.null is None else function(self.null)
        candidates, entropy = function(self.candidates), function(self.entropy)
        return NeighbourDistribution(
            candidates, entropy, function(self.effective), null
        )


def describe(found: Parts) -> NeighbourDistribution:
    """Describe the candidates of a call without noise, in which nothing races."""
    n, device = found.pairs.dst.size(0), found.pairs.dst.device
    total = torch.zeros(2, n, dtype=torch.double, device=device)
    candidates = torch.zeros(n, dtype=torch.long, device=device)
    score = found.pairs.null
    null = None if score is None else torch.ones_like(total[0])
    for part in found.parts:
        if isinstance(part, Block):
            own, budget = part.draw.scores, part.draw.memory
            first = int(part.targets)
            rows = slice(first, first + own.dst.size(0))
            total[:, rows] += torch.stack(score_spread(own, memory_budget=budget))
            candidates[rows] += own.available
            if null is not None:
                null[rows] = null_share(own, memory_budget=budget)
        else:
            is_candidate = part.score > -torch.inf
            target = part.edge_index[1][is_candidate]
            value = part.score[is_candidate]
            total += torch.stack(candidate_spread(value, target, n))
            candidates += torch.bincount(target, minlength=n)
            if null is not None and score is not None:
                null *= candidate_null_share(value, target, score, n)
    return NeighbourDistribution(candidates, total[0], total[1], null)
