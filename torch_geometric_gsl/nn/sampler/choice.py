"""The choice among the sampling methods of a draw."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

from torch_geometric_gsl.nn.sampler.methods import (
    BY_NAME,
    METHODS,
    POOL,
    RACE,
    STREAM,
    Method,
)
from torch_geometric_gsl.nn.sampler.plan import SCAN_FIRST, Draw, SamplingPlan, rounded
from torch_geometric_gsl.nn.sampler.row_cache import RowCache
from torch_geometric_gsl.ops.envelope import Envelope, has_kernel
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.pool import count_pool
from torch_geometric_gsl.ops.runtime import disable_compile


def plan_draw(
    draw: Draw, pairs: PairScores, cache: RowCache
) -> tuple[SamplingPlan, Envelope | None]:
    """Plan a draw; also return the bounds of a race of sharp scores."""
    options = draw.options  # Derived once for equal draws.
    if counts_pool(draw):
        with torch.autocast(pairs.dst.device.type, enabled=False):
            draw = replace(draw, num_listed=count_pool(pairs, options.tau))
    if not needs_bounds(draw):
        return choose(draw), None
    with torch.autocast(pairs.dst.device.type, enabled=False):
        envelope, expected = cache.best(pairs, options)
    draw = replace(
        draw,
        num_expected=expected,
        num_kinds=envelope.num_kinds,
        has_head=envelope.head is not None,
        bounds_text=str(envelope),
        # Sparse rows draw what the same dense ones do.
        has_kernel=pairs.is_sparse or has_kernel(pairs),
    )
    plan = choose(draw)
    if plan.method != 'race':
        return plan, None
    if RACE.target_cost(draw) > STREAM.target_cost(draw):
        # Requested by name: starts with a scan of all candidates.
        cost = STREAM.total_cost(draw)
        return plan._replace(num_proposals=SCAN_FIRST, cost=cost), None
    return plan, envelope


@disable_compile
@lru_cache(maxsize=1024)
def needs_bounds(draw: Draw) -> bool:
    """Return whether the choice of method depends on better bounds."""
    if not draw.needs_tight_bounds or RACE.obstacles(draw):
        return False
    if not draw.is_auto:
        return draw.settings.method == 'race'
    # Bounds take long to find: only if a race may be cheaper.
    others = [method for method in METHODS if not method.obstacles(draw)]
    return min(others, key=lambda method: method.shared_cost(draw)) is RACE


@disable_compile
@lru_cache(maxsize=1024)
def counts_pool(draw: Draw) -> bool:
    """Return whether the plan depends on how many candidates are not negligible."""
    return draw.is_auto and not POOL.obstacles(draw)


def depends_on_all_targets(draw: Draw) -> bool:
    """Return whether the draws of a target depend on the rows of the others."""
    return needs_bounds(draw) or counts_pool(draw)


@disable_compile
@lru_cache(maxsize=1024)
def choose(draw: Draw) -> SamplingPlan:
    """Plan the draw by the named method, or by the cheapest without obstacles."""
    if not draw.is_auto:
        method = BY_NAME[draw.settings.method]
        if reasons := method.obstacles(draw):
            reason = '; '.join(reasons)
            raise ValueError(f"'method' cannot be {method.name!r}: {reason}")
        reason = f'as requested{_measured(draw)}'
        return draw.describe(method.name, reason, method.total_cost(draw))
    obstacles = {method: method.obstacles(draw) for method in METHODS}
    applicable = [method for method in METHODS if not obstacles[method]]
    best = min(applicable, key=lambda method: method.shared_cost(draw))
    reasons = []
    for method in METHODS:
        why = ', '.join(obstacles[method])
        if method is not best:
            reasons.append(f'{method.name}: {why or _compare(method, best, draw)}')
    reason = '; '.join(reasons) + _measured(draw)
    return draw.describe(best.name, reason, best.total_cost(draw))


def _compare(method: Method, best: Method, draw: Draw) -> str:
    """Compare the cost of a method with that of the best."""
    cost, best_cost = rounded(method.shared_cost(draw)), rounded(best.shared_cost(draw))
    is_shortest = method is RACE and draw.needs_tight_bounds
    is_shortest &= draw.num_expected is None
    text = f'costs {"at least " * is_shortest}{cost} proposals per target'
    return f'{text}, {best.name} {best_cost}'


def _measured(draw: Draw) -> str:
    """Describe a race with several bounds, and a pool, if they were measured."""
    texts = []
    if draw.num_listed is not None:
        texts.append(f'a pool has {rounded(draw.num_listed)} candidates')
    if draw.num_expected is not None:
        expected = rounded(draw.num_expected)
        texts.append(f'a race needs {expected} per draw under {draw.bounds_text}')
    return ': ' * bool(texts) + ', '.join(texts)
