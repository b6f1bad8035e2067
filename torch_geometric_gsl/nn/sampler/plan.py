"""The description of a draw, and its plan."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from torch_geometric_gsl.nn.sampler.options import Settings
from torch_geometric_gsl.ops.race import worst_case_proposals
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.tail import (
    TOLERANCE,
    added_variance,
    default_num_arrivals,
    lost_variance,
    tail_size,
)

# Up to this number of pairs the definition is fastest; up to the second one (256 MiB)
# it replaces races that truncation would bias.
SMALL, LARGE = 2**16, 2**26
# A race pays if it proposes fewer than one in this many candidates.
RACE_FACTOR = 4
# Better bounds than those of all scores pay for longer races.
LONG = 64
# Costs, in proposals of a race.
BOUND = 0.06  # The bound of a cluster.
HEAD_SEARCH = 0.12  # A comparison in the search for a head.
# The number of proposals of a race that scans all candidates first.
SCAN_FIRST = 0.0
# Rows of this many channels double the time of a proposal.
WIDTH = 192


class TruncatedRaceWarning(UserWarning):
    r"""Issued if truncation biases the samples at this temperature.

    :obj:`SamplingPlan.caveat` reports the error of the variance of a sum. There is none
    with :obj:`method="dense"`, :obj:`"pool"` or a :obj:`tau` of at most 1.
    """


def rounded(value: float) -> str:
    """Format a number with three digits, without an exponent."""
    return f'{float(f"{value:.3g}"):.15g}'


class SamplingPlan(NamedTuple):
    r"""The sampling method of a call, and why it was chosen.

    Args:
        method (str): The name of the method, such as :obj:`"race"`.
        reason (str): Why the other methods were not chosen.
        num_proposals (float or None): The mean number of proposals of a race, measured
            on 64 targets where scores are sharp, else an upper bound; 0 if all
            candidates are scanned first.
        num_arrivals (int or None): The number of arrivals :math:`M` per draw, or all.
        num_tail (int): The number of sources :math:`S` that represent later arrivals.
        caveat (str, optional): The error of the variance of a sum, if defaults change
            it by more than 2 %. (default: :obj:`None`)
        cost (float, optional): The processor time of the draw of all targets, in
            proposals of a race. (default: :obj:`0.0`)
    """

    method: str
    reason: str
    num_proposals: float | None
    num_arrivals: int | None
    num_tail: int
    caveat: str | None = None
    cost: float = 0.0

    def __str__(self) -> str:
        """Describe the plan in words."""
        lines = [self.method]
        if self.num_proposals is not None:
            lines.append(f'{rounded(self.num_proposals)} proposals per draw')
        if self.num_arrivals is not None:
            lines.append(f'{self.num_arrivals} arrivals and a tail of {self.num_tail}')
        lines += self.reason.split('; ')
        if self.caveat is not None:
            lines.append(self.caveat)
        return '\n  '.join(lines)

    def __repr__(self) -> str:
        shown = (
            f'{name}={rounded(value) if isinstance(value, float) else repr(value)}'
            for name, value in self._asdict().items()
        )
        return f'{type(self).__name__}({", ".join(shown)})'


@dataclass(frozen=True)
class Draw:
    """A draw for targets with at most :obj:`num_sources` candidates each."""

    settings: Settings
    num_targets: int
    num_sources: int
    # Where candidates are listed target by target: 'batch', 'edge_index' or, with a
    # prior, 'edge_weight'.
    listed_by: str | None = None
    # Of a race under the best bounds that were found, if scores are sharp.
    num_expected: float | None = None
    num_bounds: int = 1
    has_head: bool = False
    bounds_text: str = 'one bound'
    num_listed: float | None = None  # Candidates per target that a pool would keep.
    has_kernel: bool = True  # For the race, on a machine that can compile it.

    @cached_property
    def options(self) -> DrawOptions:
        """Return the options of the draw, with its arrivals and the size of a tail."""
        settings = self.settings
        budget = settings.budget
        tau = settings.tau
        num_arrivals = settings.k
        if settings.replace:
            num_arrivals = budget.arrivals or default_num_arrivals(tau)
        num_tail = budget.tail
        if not settings.replace or num_arrivals >= self.available:
            num_tail = 0
        elif num_tail is None:
            num_tail = tail_size(tau, num_arrivals, self.num_sources)
        return DrawOptions(
            settings.k,
            tau,
            num_arrivals,
            min(num_tail, self.num_sources),
            settings.hard,
            settings.replace,
        )

    @cached_property
    def num_proposals(self) -> float:
        """Return the number of proposals of a race under the bounds of all scores."""
        settings, (lower, upper) = self.settings, self.settings.bounds
        if not lower <= upper:
            raise ValueError(
                f"'bounds' of 'similarity' must be a pair (lower, upper) "
                f'(got {settings.bounds})'
            )
        spread = settings.scale * (upper - lower)
        num_arrivals = self.options.num_arrivals
        return worst_case_proposals(num_arrivals, spread, replace=settings.replace)

    @cached_property
    def caveat(self) -> str | None:
        """Describe the error if truncation changes the variance of a sum."""
        settings, options = self.settings, self.options
        if self.keeps_all or not settings.replace:
            return None
        num_arrivals, tau = options.num_arrivals, options.tau
        errors = []
        if settings.budget.tail is None:
            added = added_variance(
                tau, num_arrivals, options.num_tail, self.num_sources
            )
            if added > TOLERANCE:
                errors.append(
                    f'a tail of {options.num_tail} sources adds {100 * added:.3g} %'
                )
        if settings.budget.arrivals is None and tau > 1:
            lost = lost_variance(tau, num_arrivals, self.num_sources)
            if lost > TOLERANCE:
                errors.append(f'{num_arrivals} arrivals a draw lack {100 * lost:.3g} %')
        if not errors:
            return None
        text = f'at tau={tau:g} {" and ".join(errors)} of the variance of a sum'
        return f"{text} (method='dense' is exact at any tau)"

    @property
    def available(self) -> int:
        """Return the largest number of candidates of a target.

        Given edges have no excluded loops among them.
        """
        has_edges = self.listed_by in ('edge_index', 'edge_weight')
        return self.num_sources - int(not self.settings.loop and not has_edges)

    @property
    def is_auto(self) -> bool:
        """Return whether the method is chosen by cost."""
        return self.settings.method == 'auto'

    @property
    def keeps_all(self) -> bool:
        """Return whether all candidates are kept as arrivals."""
        return self.options.num_arrivals >= self.available

    @property
    def has_short_race(self) -> bool:
        """Return whether a race with one bound makes few proposals per candidate."""
        is_short = self.num_proposals * RACE_FACTOR < self.num_sources
        is_short &= self.listed_by != 'edge_weight'
        if self.listed_by is not None:  # Each target gathers a tail.
            is_short &= self.options.num_tail * RACE_FACTOR < self.num_sources
        return is_short and self.caveat is None

    @property
    def is_small(self) -> bool:
        """Return whether candidates are listed or there are few pairs."""
        is_listed = self.listed_by is not None
        return is_listed or self.num_targets * self.num_sources <= SMALL

    @property
    def fits_dense(self) -> bool:
        """Return whether there are few enough pairs for the definition."""
        is_small = self.is_small
        if self.caveat is not None:
            is_small |= self.num_targets * self.num_sources <= LARGE
        return is_small and not self.has_short_race

    @property
    def needs_tight_bounds(self) -> bool:
        """Return whether a race needs several bounds instead of one for all scores."""
        is_long = self.num_proposals * RACE_FACTOR >= self.num_sources
        is_long |= self.num_proposals > LONG
        return self.listed_by is None and is_long


@disable_compile  # It warns about each traced cache.
@lru_cache(maxsize=1024)
def make_draw(
    settings: Settings, num_targets: int, num_sources: int, listed_by: str | None = None
) -> Draw:
    """Describe a draw; an equal one has been derived before."""
    return Draw(settings, num_targets, num_sources, listed_by)
