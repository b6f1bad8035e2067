"""Which method serves a call, and why."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.race import num_proposals
from torch_geometric_gsl.ops.scorer import Law

# Up to this number of pairs the definition is cheap (a block of 16 MiB).
SMALL = 2**22
# A race pays where it proposes fewer than this share of the candidates.
SHARE = 4
RACE = 'race', 'the scores are bounded and the candidates many'
# An estimate from fewer sources is of no use.
LEAST_SAMPLES = 1024


class SampledEvaluationWarning(UserWarning):
    r"""Sums in evaluation mode were estimated, because there are too many pairs."""


class SamplingPlan(NamedTuple):
    r"""How a sampler serves a call.

    Args:
        method (str): :obj:`"dense"`, :obj:`"race"` or :obj:`"stream"`.
        reason (str): Why.
        num_proposals (int or None): The number of proposals :math:`P` of each race.
        num_arrivals (int or None): The number of arrivals :math:`M` that are kept of
            each draw; :obj:`None` for all.
        num_tail (int): The number of sources :math:`S` that stand for the later
            arrivals of each draw.
    """

    method: str
    reason: str
    num_proposals: int | None
    num_arrivals: int | None
    num_tail: int


def proposals(similarity: Similarity, law: Law, scale: float) -> float:
    """The number of proposals of a race; infinite where it cannot serve."""
    lower, upper = similarity.bounds
    if not lower <= upper:
        raise ValueError(
            f"'bounds' of 'similarity' must be a lower and an upper one "
            f'(got {similarity.bounds} of {similarity})'
        )
    return num_proposals(law, scale * (upper - lower))


def bounds_obstacle(similarity: Similarity) -> str | None:
    """Why no race can serve, however many candidates there are."""
    if all(map(math.isfinite, similarity.bounds)):
        return None
    return f"'similarity' ({similarity}) has no finite 'bounds'"


def race_obstacle(
    similarity: Similarity, law: Law, scale: float, num_sources: int
) -> str | None:
    """Why a race cannot serve, or does not pay."""
    needed = proposals(similarity, law, scale)
    if needed * SHARE < num_sources:
        return None
    return bounds_obstacle(similarity) or (
        f'{needed:.4g} proposals a draw (scale={scale:g}, bounds='
        f'{similarity.bounds}) need more than {needed * SHARE:.4g} candidates '
        f'(got {num_sources})'
    )


def choose(
    method: str, similarity: Similarity, law: Law, scale: float, size: tuple[int, int]
) -> tuple[str, str]:
    """The method that serves all pairs of :obj:`size`, and the reason."""
    if method in ('dense', 'stream'):
        return method, 'as asked for'
    obstacle = race_obstacle(similarity, law, scale, size[1])
    if obstacle is None:
        return RACE
    is_race_out = method == 'race' and bounds_obstacle(similarity) is not None
    if size[0] * size[1] <= SMALL and not is_race_out:
        return 'dense', f'{size[0]} x {size[1]} pairs are few, and {obstacle}'
    if method == 'race':
        raise ValueError(f"'method' cannot be 'race': {obstacle}")
    return 'stream', obstacle
