"""Describe the sampling distribution of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.targets import (
    GraphTargets,
    ListedTargets,
    Targets,
)
from torch_geometric_gsl.ops.edges import candidate_null_share, weight_spread
from torch_geometric_gsl.ops.noise_free import score_spread
from torch_geometric_gsl.ops.pair_scores import PairScores

#: Sampling is nearly uniform if the effective candidates exceed this share.
UNIFORM_SHARE = 0.9


class UniformSamplingWarning(UserWarning):
    r"""Issued if a sampler draws neighbours almost uniformly at random.

    It is issued once per process, by
    :func:`~torch_geometric_gsl.diagnostics.describe_model` or by a sampler in training
    mode without given candidates, if the effective number of candidates (perplexity of
    :math:`\pi_i`) exceeds 90 % of the candidates, as a mean over the targets with at
    least two. A sampler looks at its first draw and at the 200th; with a learned scale,
    which may start low, the first one may have 98 %.
    """

    _issued: ClassVar[bool] = False

    @classmethod
    def reset(cls) -> None:
        r"""Allow the warning to be issued again in this process."""
        UniformSamplingWarning._issued = False


class NeighbourDistribution(NamedTuple):
    r"""The distribution from which the neighbours of each target are drawn.

    Args:
        candidates (torch.Tensor): The number of candidates :math:`[n]`.
        entropy (torch.Tensor): The entropy of :math:`\pi_i` in nats :math:`[n]`.
        effective (torch.Tensor): The effective number of candidates (perplexity)
            :math:`e^{H(\pi_i)}`.
        null (torch.Tensor, optional): The probability of the null neighbour, if any;
            the other fields describe :math:`\pi_i` without it.
            (default: :obj:`None`)
    """

    candidates: Tensor
    entropy: Tensor
    effective: Tensor
    null: Tensor | None = None

    @property
    def share(self) -> float:
        """Return effective candidates over candidates, of targets with two or more."""
        choice = self.candidates > 1
        return float((self.effective / self.candidates)[choice].mean())

    def map(self, function: Callable[[Tensor], Tensor]) -> NeighbourDistribution:
        """Apply a function to each tensor."""
        fields = (None if field is None else function(field) for field in self)
        return NeighbourDistribution(*fields)  # type: ignore[arg-type]


def describe(pairs: PairScores, evaluated: Targets) -> NeighbourDistribution:
    """Describe the candidates of the targets of an evaluation."""
    n, device = pairs.dst.size(0), pairs.dst.device
    total = torch.zeros(2, n, dtype=torch.double, device=device)
    candidates = torch.zeros(n, dtype=torch.long, device=device)
    null_score = pairs.null
    null = None if null_score is None else torch.ones_like(total[0])
    for targets in evaluated.split():
        if isinstance(targets, GraphTargets):
            start = targets.first_target
            rows = slice(start, start + targets.pairs.dst.size(0))
            spread, null_share = score_spread(targets.pairs)
            total[:, rows] += torch.stack(spread)
            candidates[rows] += targets.pairs.available
            if null is not None and null_share is not None:
                null[rows] = null_share
        elif isinstance(targets, ListedTargets):
            score = targets.columns[0]
            is_candidate = score > -torch.inf
            target = targets.edge_index[1][is_candidate]
            score = score[is_candidate]
            share = softmax(score.double(), target, num_nodes=n)
            total += torch.stack(weight_spread(target, share, n))
            candidates += torch.bincount(target, minlength=n)
            if null is not None and null_score is not None:
                null *= candidate_null_share(score, target, null_score, n)
    return NeighbourDistribution(candidates, total[0], total[1], null)


def warn_if_uniform(shares: dict[str, float], limit: float = UNIFORM_SHARE) -> None:
    """Warn once if the sampling distribution of a named sampler is nearly uniform."""
    flat = {name: share for name, share in shares.items() if share > limit}
    if not flat or UniformSamplingWarning._issued:
        return
    UniformSamplingWarning._issued = True
    text = ', '.join(f'{100 * share:.1f} % ({name})' for name, share in flat.items())
    warn_caller(
        f'neighbours are drawn almost uniformly at random: the effective candidates '
        f"are {text} of the candidates. A larger 'scale' or a narrower kernel "
        f'sharpens the distribution.',
        UniformSamplingWarning,
    )
