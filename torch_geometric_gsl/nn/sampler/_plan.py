"""Which method serves a call, and why."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.arrivals import tail_size
from torch_geometric_gsl.ops.race import num_proposals
from torch_geometric_gsl.ops.scorer import Law

# Up to this number of pairs the definition is cheap (a block of 16 MiB).
SMALL = 2**22
# A race pays where it proposes fewer than this share of the candidates.
SHARE = 4


# An estimate from fewer sources has no useful standard error.
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
    return num_proposals(law, scale * (upper - lower))


def has_bounds(similarity: Similarity) -> bool:
    """Whether the scores are bounded on both sides."""
    return all(map(math.isfinite, similarity.bounds))


def race_obstacle(
    similarity: Similarity, law: Law, scale: float, num_sources: int
) -> str | None:
    """Why a race cannot serve, or does not pay."""
    if not has_bounds(similarity):
        return f"'similarity' ({similarity}) has no finite 'bounds'"
    needed = proposals(similarity, law, scale)
    if needed * SHARE >= num_sources:
        return (
            f'{needed:.4g} proposals a draw (scale={scale:g}, bounds='
            f'{similarity.bounds}) need more than {needed * SHARE:.4g} candidates '
            f'(got {num_sources})'
        )
    return None


def choose(
    method: str, similarity: Similarity, law: Law, scale: float, size: tuple[int, int]
) -> tuple[str, str]:
    """The method that serves all pairs of :obj:`size`, and the reason."""
    if method in ('dense', 'stream'):
        return method, 'as asked for'
    obstacle = race_obstacle(similarity, law, scale, size[1])
    if obstacle is None:
        return 'race', 'the scores are bounded and the candidates many'
    if size[0] * size[1] <= SMALL and (has_bounds(similarity) or method != 'race'):
        return 'dense', f'{size[0]} x {size[1]} pairs are few, and {obstacle}'
    if method == 'race':
        raise ValueError(f"'method' cannot be 'race': {obstacle}")
    return 'stream', obstacle


def make_plan(
    chosen: tuple[str, str],
    similarity: Similarity,
    law: Law,
    scale: float,
    num_sources: int,
    is_ragged: bool = False,
) -> SamplingPlan:
    """Adds the numbers of what a method looks at."""
    method, reason = chosen
    is_whole = method == 'dense' or law.kept >= num_sources
    count = proposals(similarity, law, scale) if method == 'race' else None
    return SamplingPlan(
        method,
        reason,
        None if count is None else int(count),
        None if is_whole else law.kept,
        0 if is_whole else tail_size(law, num_sources, is_ragged),
    )
