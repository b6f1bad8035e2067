"""The plan of a task: how it serves the target with the most candidates."""

from __future__ import annotations

from torch_geometric_gsl.nn.sampler._plan import RACE, SamplingPlan, choose, proposals
from torch_geometric_gsl.nn.sampler._scorer import Request
from torch_geometric_gsl.nn.sampler._task import Task
from torch_geometric_gsl.ops.draws import num_tail


def plan_task(request: Request, task: Task) -> SamplingPlan:
    """The plan of the target with the most candidates."""
    similarity, law, scale = request.similarity, request.law, request.scale
    longest = (int(listed.edge_index[1].bincount().max()) for listed in task.listed)
    available, tail = max(longest, default=0), 0
    scorers = [block.scorer for block in task.blocks]
    if task.ragged is not None:
        scorers.append(task.ragged.scorer)
    scorer = max(scorers, key=lambda scorer: scorer.most, default=None)
    if scorer is None or scorer.most < available:
        is_asked = request.method in ('dense', 'stream')
        why = '' if is_asked else 'the candidates are few: '
        method, reason = 'dense', f'{why}all are listed'
    else:
        available, tail = scorer.available, num_tail(scorer, law)
        method, reason = RACE
        if scorer.candidates is None:
            args = similarity, law, scale, scorer.size
            method, reason = choose(request.method, *args)
    is_whole = law.kept >= available or (method == 'dense' and law.replace)
    return SamplingPlan(
        method,
        reason,
        int(proposals(similarity, law, scale)) if method == 'race' else None,
        None if is_whole else law.kept,
        0 if is_whole else tail,
    )
