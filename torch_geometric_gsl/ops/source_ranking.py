r"""The sources of a cell of targets, by descending error bounds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cells import Members, find_members, score_range
from torch_geometric_gsl.ops.clusters import Clusters
from torch_geometric_gsl.ops.edges import expand_ranges
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all

# Sources are ranked by the logarithm of their error, in steps of half a unit.
NUM_STEPS = 128
# Clusters replaced as a whole may use this share of the tolerance, and must leave at
# most this share of the sources.
_FAR = 0.3
_MAX_NEAR = 0.5
# Targets from which the sum of all weights is estimated.
_GUESSED = 8
# Middles are omitted if the intervals are wide.
_WIDE = 0.5
# The number of sources over which products are summed in single precision.
RUN = 128
# Smallest half-width of a weight interval, relative to the largest weight.
LEAST = 1e-100


class Messages(NamedTuple):
    """The sources ordered by cluster, and their messages less the mean."""

    members: Members
    place: Tensor  # Positions of sources in this order.
    row: Tensor | None  # The rows of the members in `full`, if not all.
    full: Tensor  # Messages, and a column of ones.
    size: Tensor  # Norms of the messages of these members.
    mean: Tensor
    groups: Members  # The clusters, with their sums of `full` and `size`.
    group_full: Tensor
    group_size: Tensor

    @classmethod
    def of(cls, h: Tensor, pairs: PairScores, clusters: Clusters) -> Messages:
        members = find_members(pairs.src, clusters)
        h = h[clusters.source].to(torch.promote_types(h.dtype, pairs.dst.dtype))
        mean = h.mean(dim=0)
        h = h - mean
        full = torch.cat([h, h.new_ones(h.size(0), 1)], dim=1)
        size = torch.linalg.vector_norm(h, dim=1)
        groups = members.whole_clusters()
        sums = full.new_zeros(groups.source.numel(), full.size(1) + 1).double()
        sums.index_add_(0, members.number, torch.cat([full, size[:, None]], 1).double())
        place = clusters.source.argsort()
        sums, sizes = sums[:, :-1], sums[:, -1]
        return cls(members, place, None, full, size, mean, groups, sums, sizes)

    def places(self, clusters: Tensor) -> Tensor:
        """Return the positions of all members of some clusters."""
        size = self.group_full[:, -1].long()
        start = size.cumsum(0) - size
        return expand_ranges(start[clusters], size[clusters])[1]

    def take(self, some: Tensor, clusters: Tensor) -> Messages:
        """Select positions that cover whole clusters."""
        members, size = self.members.take(some, clusters), self.size[some]
        return self._replace(members=members, row=some, size=size)

    def rows(self, some: Tensor) -> Tensor:
        """Return the messages of some members."""
        return self.full.index_select(0, some if self.row is None else self.row[some])


class Far(NamedTuple):
    """Contribution to a sum of clusters that are replaced as a whole."""

    total: Tensor  # Their messages and ones, by the middles of their weights [m + 1].
    error: Tensor  # Their errors of sum and weight [2].
    top: Tensor  # The score to which these weights are relative.


class Ranking(NamedTuple):
    """The sources of a cell, in steps of descending errors.

    Weights are relative to the upper bound of all scores.
    """

    messages: Messages  # Of all clusters but the far ones.
    top: Tensor  # The upper bound.
    source: Tensor  # Positions of sources.
    ends: list[int]  # The number of sources before each step.
    middle: Tensor  # The middles of the intervals of the weights.
    # Contributions of the sources from each step on to the errors of sum and weight, by
    # half-widths of intervals and by middles: [steps + 1, 4].
    error: Tensor
    sums_middles: Tensor  # Whether to sum middles, from each step on.
    far: Far | None

    def error_from(self, step: int, last: int) -> Tensor:
        """Return the errors [2] if middles replace the sources of some steps."""
        error = self.error[step, :2] + self.error[last, 2:]
        return error if self.far is None else error + self.far.error

    def middle_sum(self, step: int, last: int) -> Tensor:
        """Sum the sources of some steps with the middles of their weights."""
        full, row = self.messages.full, self.messages.row
        some = self.source[self.ends[step] : self.ends[last]]
        weight = self.middle[some].to(full.dtype)
        if 4 * some.numel() < full.size(0):
            rows = self.messages.rows(some)
        else:  # Reading all is faster than gathering many.
            some = some if row is None else row[some]
            weight = weight.new_zeros(full.size(0)).index_copy_(0, some, weight)
            rows = full
        total = long_product(weight.unsqueeze(0), rows).squeeze(0)
        return total if self.far is None else total + self.far.total


def long_product(weight: Tensor, rows: Tensor) -> Tensor:
    """Multiply matrices in chunks, which are added up in double precision.

    In single precision, long sums of equal terms lose several digits.
    """
    num_runs = rows.size(0) // RUN
    end = num_runs * RUN
    total = (weight[:, end:] @ rows[end:]).double()
    if num_runs == 0:
        return total
    runs = weight[:, :end].unflatten(1, (num_runs, RUN)).transpose(0, 1)
    parts = torch.bmm(runs, rows[:end].unflatten(0, (num_runs, RUN)))
    return total.add_(parts.sum(dim=0, dtype=torch.float64))


def rank_sources(
    messages: Messages, pairs: PairScores, tau: float, tolerance: float
) -> Ranking | None:
    """Rank the sources for the targets of a cell, if there are bounds.

    With a tolerance (relative error) of zero no cluster is replaced as a whole.
    """
    excluded = None if pairs.excluded is None else messages.place[pairs.excluded]
    typical = messages.size.mean()
    typical = typical.masked_fill(typical == 0, 1)
    far = None
    if tolerance > 0:
        split = _far_clusters(messages, pairs, tau, tolerance * typical, excluded)
        if split is not None:
            clusters, far = split
            near = messages.places(clusters)
            messages = messages.take(near, clusters)
            excluded = None if excluded is None else torch.searchsorted(near, excluded)
    found = score_range(pairs, messages.members)
    if found is None:
        return None
    top = found[1].amax()
    if far is not None:
        top = torch.maximum(top, far.top)
        factor = ((far.top - top) / tau).double().exp()
        far = Far(factor * far.total, factor * far.error, top)
    middle, half = _weights(*found, top, tau)
    size = messages.size.to(half.dtype)
    step = _steps(half * (size + typical), excluded)
    columns = (half * size, half, middle * size, middle)
    error = torch.stack([step.bincount(x.double(), NUM_STEPS) for x in columns], dim=1)
    error = error.flip(0).cumsum(0).flip(0) * (1 + 1e-6)  # Sums are rounded as well.
    error = torch.cat([error, error.new_zeros(1, 4)])
    ends = [0, *step.bincount(minlength=NUM_STEPS).cumsum(0).tolist()]
    source = step.sort(stable=True).indices
    sums_middles = error[:, 1] < _WIDE * error[:, 3]
    return Ranking(messages, top, source, ends, middle, error, sums_middles, far)


def _steps(worst: Tensor, excluded: Tensor | None) -> Tensor:
    """Return the step of each source, by its error; excluded ones come first."""
    step = (worst.amax() / worst).log_().mul_(2).add_(1)
    step = step.nan_to_num_(1).clamp_(1, NUM_STEPS - 1).to(torch.int16)
    if excluded is not None:
        step[excluded] = 0
    return step


def _weights(
    low: Tensor, high: Tensor, top: Tensor, tau: float
) -> tuple[Tensor, Tensor]:
    """Return the middles and half-widths of the intervals of weights."""
    upper, lower = ((high - top) / tau).exp_(), ((low - top) / tau).exp_()
    middle, half = (upper + lower) / 2, (upper - lower) / 2
    info = torch.finfo(half.dtype)
    half += 4 * info.eps * upper + max(info.tiny, LEAST)  # Rounding and underflow.
    return middle, half


def _far_clusters(
    messages: Messages,
    pairs: PairScores,
    tau: float,
    allowed: Tensor,
    excluded: Tensor | None,
) -> tuple[Tensor, Far] | None:
    """Find clusters of small error; return all others, if these are few."""
    found = score_range(pairs, messages.groups)
    if found is None:
        return None
    top = found[1].amax()
    middle, half = (x.double() for x in _weights(*found, top, tau))
    count = messages.group_full[:, -1]
    error = torch.stack([half * messages.group_size, half * count], dim=1)
    typical = messages.group_size.sum() / count.sum()
    worst, order = (error[:, 0] + typical * error[:, 1]).sort()
    total = _guess_total(pairs, messages.groups.src, count, top, tau)
    is_far = torch.empty_like(order, dtype=torch.bool)
    is_far[order] = worst.cumsum(0) <= _FAR * allowed * total
    if excluded is not None:  # A far cluster would include this source.
        is_far[messages.members.number[excluded]] = False
    near = (~is_far).nonzero().squeeze(1)
    if near.numel() == 0 or count[near].sum() > _MAX_NEAR * count.sum():
        return None
    total = (is_far * middle) @ messages.group_full
    return near, Far(total, error[is_far].sum(dim=0) * (1 + 1e-6), top)


def _guess_total(
    pairs: PairScores, centre: Tensor, count: Tensor, top: Tensor, tau: float
) -> Tensor:
    """Estimate the least sum of weights from some targets and the cluster centres."""
    some = torch.arange(min(_GUESSED, pairs.dst.size(0)), device=centre.device)
    pairs = pairs.take(some)
    value = compare_all(pairs.comparison, pairs.dst, centre)
    score = pairs.respond(slice(None), value)
    return (((score - top) / tau).double().exp() @ count).amin()
