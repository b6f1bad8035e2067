"""The plan of a task: the method that serves most of it, and its numbers."""

from __future__ import annotations

from torch_geometric_gsl.nn.sampler._plan import RACE, SamplingPlan, choose, proposals
from torch_geometric_gsl.nn.sampler._scorer import Request
from torch_geometric_gsl.nn.sampler._task import Task
from torch_geometric_gsl.ops.arrivals import tail_size


def plan_task(request: Request, task: Task) -> SamplingPlan:
    """The plan of the target with the most candidates."""
    similarity, law, scale = request.similarity, request.law, request.scale
    sets = None if task.ragged is None else task.ragged.scorer.candidates
    num_sources = 0
    if sets is not None:
        num_sources, (method, reason) = int(sets.size.max()), RACE
    elif task.blocks:
        size = max(block.scorer.size for block in task.blocks)
        num_sources = size[1]
        method, reason = choose(request.method, similarity, law, scale, size)
    else:
        is_asked = request.method in ('dense', 'stream')
        why = '' if is_asked else 'the candidates are few: '
        method, reason = 'dense', f'{why}all are listed'
    is_whole = method == 'dense' or law.kept >= num_sources
    count = proposals(similarity, law, scale) if method == 'race' else None
    return SamplingPlan(
        method,
        reason,
        None if count is None else int(count),
        None if is_whole else law.kept,
        0 if is_whole else tail_size(law, num_sources, task.ragged is not None),
    )
