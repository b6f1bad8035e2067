"""Choose the method that serves a call, its numbers, and say why."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from torch_geometric_gsl._checks import (
    check_count,
    check_flag,
    check_option,
    check_positive,
)
from torch_geometric_gsl.ops.race import num_proposals
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.tail import (
    TOLERANCE,
    added_variance,
    default_num_arrivals,
    lost_variance,
    tail_size,
)

METHODS = ('auto', 'dense', 'race', 'stream')
# The least and the largest factor of a similarity.
SCALES = 1e-9, 1e9
# Up to this number of pairs the definition is the quickest; where no truncated race has
# its law it serves up to the second one (256 MiB).
SMALL, LARGE = 2**16, 2**26
# A race pays where it proposes fewer than this share of the candidates.
SHARE = 4
# Better bounds than those of all scores pay for longer races.
LONG = 64
# A graph of more edges is not listed in evaluation mode (1.3 GB).
MOST_LISTED = 2**26
# An estimate from fewer sources is of no use.
LEAST_SAMPLES = 1024
RACE = 'the scores are bounded and the candidates many'
LISTED = 'the candidates are few: all are listed'


def _check_count_or_none(value: object, name: str, minimum: int = 1) -> None:
    if value is not None:
        check_count(value, name, minimum)


def _check_tolerance(value: object, name: str) -> None:
    if value is not None:
        check_positive(value, name)


def _check_eval_k(value: object, name: str) -> None:
    if value is not None and value != 'all':
        check_count(value, name)


#: How a sampler checks its options, by their names.
CHECKS: dict[str, Callable[..., None]] = {
    'k': check_count,
    # Beyond, scores over the temperature leave the range of float32.
    'tau': partial(check_positive, low=1e-6, high=1e6),
    'scale': partial(check_positive, low=SCALES[0], high=SCALES[1]),
    'method': partial(check_option, options=METHODS),
    'num_arrivals': _check_count_or_none,
    'num_tail': partial(_check_count_or_none, minimum=0),
    'eval_k': _check_eval_k,
    'eval_tolerance': _check_tolerance,
    **dict.fromkeys(('max_eval_pairs', 'memory_budget'), check_count),
    **dict.fromkeys(('hard', 'replace', 'loop', 'train_scale'), check_flag),
}


class SampledEvaluationWarning(UserWarning):
    r"""Sums in evaluation mode were estimated, because there are too many pairs."""


class TruncatedRaceWarning(UserWarning):
    r"""Truncated races do not have the law of the definition: the temperature is high.

    At high temperatures no few arrivals carry the weight of a draw;
    :obj:`SamplingPlan.caveat` tells how far the variance of a sum is off. The way out
    is :obj:`method="dense"`, or a :obj:`tau` of at most 1.
    """


class SamplingPlan(NamedTuple):
    r"""The way in which a sampler serves a call.

    Args:
        method (str): :obj:`"dense"`, :obj:`"race"` or :obj:`"stream"`.
        reason (str): Why.
        num_proposals (float or None): The mean number of proposals of a race, measured
            on 64 targets where scores are sharp, else at the most.
        num_arrivals (int or None): The number of arrivals :math:`M` that are kept of
            each draw; :obj:`None` for all.
        num_tail (int): The number of sources :math:`S` that stand for the later
            arrivals of each draw.
        caveat (str, optional): How far the drawn weights are from their definition,
            if the defaults of :math:`M` or :math:`S` change the variance of a sum of
            neighbours by more than 2 %; numbers that were given are not judged.
            (default: :obj:`None`)
    """

    method: str
    reason: str
    num_proposals: float | None
    num_arrivals: int | None
    num_tail: int
    caveat: str | None = None


class CallOptions(NamedTuple):
    """The options of a sampler for one call, under the names of its arguments."""

    method: str
    bounds: tuple[float, float]  # Those of the similarity.
    scale: float
    k: int
    tau: float
    hard: bool
    replace: bool
    num_arrivals: int | None
    num_tail: int | None
    loop: bool  # True for a pair of node sets, too.
    is_noisy: bool  # Without noise there is no race, nor what it asks of the scores.
    memory_budget: int
    num_nearest: int | None  # Neighbours without noise, None for all candidates.
    max_eval_pairs: int
    eval_tolerance: float | None

    @property
    def max_pairs(self) -> int:
        """Return the number of listed pairs whose draws fit into the memory budget."""
        # A listed pair takes about eight numbers of eight bytes a draw.
        return max(1, self.memory_budget // (64 * self.k))

    @property
    def arrivals(self) -> int:
        """Return the number of arrivals to keep of each race."""
        if not self.replace:
            return self.k
        return self.num_arrivals or default_num_arrivals(self.tau)

    @property
    def is_bounded(self) -> bool:
        """Return whether a race can serve, which needs an upper bound alone."""
        return math.isfinite(self.bounds[1])

    @property
    def proposals(self) -> float:
        """Return the number of proposals that the bounds of all scores ask for."""
        lower, upper = self.bounds
        if not lower <= upper:
            raise ValueError(
                f"'bounds' of 'similarity' must be a lower and an upper one "
                f'(got {self.bounds})'
            )
        spread = self.scale * (upper - lower)
        return num_proposals(self.arrivals, spread, replace=self.replace)


@disable_compile  # Which warns of each cache that it traces.
@lru_cache(maxsize=1024)
def choose_plan(
    given: CallOptions, num_targets: int, num_sources: int, *, is_own: bool = False
) -> tuple[SamplingPlan, DrawOptions]:
    """Choose the method for targets with at most :obj:`num_sources` candidates.

    Where each target has candidates of its own (:obj:`is_own`) and no race serves, all
    of them are listed. A method that is asked for and cannot serve raises.
    """
    options = draw_options(given, num_sources)
    is_all = options.num_arrivals >= num_sources - int(not given.loop)
    caveat = None
    if given.is_noisy and given.method != 'dense' and not is_all:
        caveat = _caveat(given, options, num_sources)
    asked = given.method if given.is_noisy else 'auto'
    if asked in ('dense', 'stream'):
        method, reason = asked, 'as asked for'
    else:
        obstacle = _race_obstacle(given, num_sources)
        if asked == 'race' and not given.is_bounded:
            raise ValueError(f"'method' cannot be 'race': {obstacle}")
        # A target that gathers a tail of its own pays for it.
        is_long = is_own and SHARE * options.num_tail >= num_sources
        serves = obstacle is None and caveat is None and not is_long
        if asked == 'race' or serves:
            method, reason = 'race', RACE
        elif is_own:
            why = caveat or (None if given.is_bounded else obstacle)
            method, reason = 'dense', f'all are listed: {why}' if why else LISTED
        else:
            method, reason = _method(obstacle, caveat, num_targets, num_sources)
    is_all |= method == 'dense' and options.replace
    plan = SamplingPlan(
        method,
        reason,
        num_proposals=min(given.proposals, num_sources) if method == 'race' else None,
        num_arrivals=None if is_all else options.num_arrivals,
        num_tail=0 if is_all else options.num_tail,
        caveat=None if method == 'dense' else caveat,
    )
    return plan, options


def is_sharp(given: CallOptions, plan: SamplingPlan, num_sources: int) -> bool:
    """Return whether a race may serve a call by better bounds than one for all."""
    if not given.is_noisy or given.method not in ('auto', 'race'):
        return False
    is_long = given.proposals > min(LONG, num_sources / SHARE)
    return given.is_bounded and is_long and plan.method != 'dense'


def draw_options(given: CallOptions, num_sources: int) -> DrawOptions:
    """Return the draw options for :obj:`num_sources` candidates."""
    num_arrivals, num_tail = given.arrivals, given.num_tail
    if not given.replace or num_arrivals >= num_sources - int(not given.loop):
        num_tail = 0
    elif num_tail is None:
        num_tail = tail_size(given.tau, num_arrivals, num_sources)
    num_tail = min(num_tail, num_sources)
    return DrawOptions(
        given.k,
        given.tau,
        num_arrivals,
        num_tail=num_tail,
        hard=given.hard,
        replace=given.replace,
    )


def list_plan(given: CallOptions, most: int) -> SamplingPlan:
    """Return the plan of targets that list all of their candidates."""
    reason = 'all are listed'
    if given.method == 'auto' and given.is_noisy:
        plan, _ = choose_plan(given, 1, most, is_own=True)
        reason = plan.reason if plan.method == 'dense' else LISTED
    return SamplingPlan('dense', reason, None, None, 0)


def _method(
    obstacle: str | None, caveat: str | None, num_targets: int, num_sources: int
) -> tuple[str, str]:
    """Return the method that serves all pairs best where no race does, and why."""
    if num_targets * num_sources <= (SMALL if caveat is None else LARGE):
        few = f'{num_targets} x {num_sources} pairs are few'
        return 'dense', f'{few}, and {obstacle or caveat}'
    if obstacle is None:
        return 'race', f'the pairs are too many to list them all, although {caveat}'
    return 'stream', obstacle


def _race_obstacle(given: CallOptions, num_sources: int) -> str | None:
    """Return why a race under the bounds of all scores does not pay, or cannot be."""
    needed = given.proposals
    if needed * SHARE < num_sources:
        return None
    if not given.is_bounded:
        return f"'similarity' has no finite upper 'bounds' (got {given.bounds})"
    return (
        f'{needed:.4g} proposals a draw (scale={given.scale:g}, bounds={given.bounds}) '
        f'need more than {needed * SHARE:.4g} candidates (got {num_sources})'
    )


def _caveat(given: CallOptions, options: DrawOptions, num_sources: int) -> str | None:
    """Return how far truncation takes the law of a sum from its definition."""
    num_arrivals, tau = options.num_arrivals, options.tau
    found = []
    if given.num_tail is None and options.replace:
        added = added_variance(tau, num_arrivals, options.num_tail, num_sources)
        if added > TOLERANCE:
            found.append(
                f'a tail of {options.num_tail} sources adds {100 * added:.3g} %'
            )
    if given.num_arrivals is None and options.replace and tau > 1:
        lost = lost_variance(tau, num_arrivals, num_sources)
        if lost > TOLERANCE:
            found.append(f'{num_arrivals} arrivals a draw lack {100 * lost:.3g} %')
    if not found:
        return None
    what = f'at tau={tau:g} {" and ".join(found)} of the variance of a sum'
    return f"{what} (method='dense' has its law at any tau)"
