r"""Noise-free sums over all sources whose error is bounded, not only estimated."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cells import Members, cells_of, find_members, score_range
from torch_geometric_gsl.ops.clusters import Clusters
from torch_geometric_gsl.ops.noise_free import noise_free_sum
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all, exclude
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    disable_compile,
    row_blocks,
)

# Sources are ranked by the logarithm of their error, in steps of half a unit.
_STEPS = 128
# Cells that tell whether the bounds are worth their price, and the largest share of
# pairs that may be left to sum.
_FIRST_CELLS = 8
_MAX_SHARE = 0.4
# Middles that add so little to the error are left out, and all where the intervals
# are wide.
_LITTLE = 0.2
_WIDE = 0.5
# No weight is known to be smaller than this part of the bound of all.
_LEAST = 1e-100
# Weights of e^-40 times small messages are still far from what float32 rounds to zero.
_MAX_RANGE = 40.0


@disable_compile
@torch.no_grad()
def tree_sum(
    h: Tensor,
    pairs: PairScores,
    tau: float,
    tolerance: float,
    clusters: Clusters,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Sum all sources with their noise-free weights, within a relative error.

    .. math::
        y_i = \sum_j w_{ij} h_j / \sum_j w_{ij}, \qquad w_{ij} = e^{s_{ij} / \tau},
        \qquad \lVert \hat{y}_i - y_i \rVert \le \epsilon \lVert y_i \rVert

    For each cell of near targets an interval :math:`m_j \pm e_j` holds the weights of
    source :math:`j`. The sources of largest :math:`e_j` are summed pair by pair, until
    the others may be replaced by their :math:`m_j`, the same for all targets of the
    cell: with :math:`\hat{D}_i` the sum of the weights, the error is at most

    .. math::
        \frac{\sum_j e_j \left( \lVert h_j - \bar{h} \rVert + \lVert \hat{y}_i -
        \bar{h} \rVert \right)}{\hat{D}_i - \sum_j e_j}

    whatever the common part :math:`\bar{h}`. The bound is evaluated for each target
    with its own :math:`\hat{y}_i`; where it fails, more sources are summed pair by
    pair, in the end all. It accounts for the rounding of the intervals, not for that of
    what is summed pair by pair, which is as large as in :func:`noise_free_sum`.

    No gradient flows. Bounds that leave more than 40 % of the pairs of the
    first cells are given up.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        pairs (PairScores): The scores; all sources are candidates, and the response has
            an interval.
        tau (float): The temperature.
        tolerance (float): The relative error :math:`\epsilon`.
        clusters (Clusters): Clusters of the sources, found for any embeddings of them.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Example:
        >>> from torch_geometric_gsl.ops.clusters import k_means
        >>> from torch_geometric_gsl.ops.scores import Response, identity
        >>> x = torch.eye(2).repeat(50, 1)
        >>> pairs = PairScores(x, x, Response(identity))
        >>> tree_sum(x, pairs, 0.5, 1e-3, k_means(x, 2))[0]
        tensor([0.8808, 0.1192])
    """
    out = h.new_empty(pairs.dst.size(0), h.size(1))
    messages = _Messages.of(h, pairs, clusters)
    cells, few = cells_of(pairs, clusters, memory_budget=memory_budget)
    rest, num_pairs, num_summed = [few], 0, 0
    for number, rows in enumerate(cells):
        part = pairs.take(rows)
        ranking = _rank(messages, part, tau)
        num_pairs += rows.numel() * h.size(0)
        if ranking is None:
            rest.append(rows)
            num_summed += rows.numel() * h.size(0)
        else:
            goal = _Goal(messages, ranking, tau, tolerance)
            found, count = _sum_cell(goal, part, memory_budget)
            out[rows] = found.to(out.dtype)
            num_summed += count
        if number + 1 == _FIRST_CELLS and num_summed > _MAX_SHARE * num_pairs:
            rest += cells[number + 1 :]
            break
    left = torch.cat(rest)
    if left.numel() > 0:
        out[left] = noise_free_sum(
            h, pairs.take(left), tau, memory_budget=memory_budget
        )
    return out


class _Messages(NamedTuple):
    """The sources in order of their clusters, and their messages without the mean."""

    members: Members
    place: Tensor  # Where each source stands in this order.
    full: Tensor  # Messages, and a column of ones.
    size: Tensor  # Norms of the messages.
    mean: Tensor

    @classmethod
    def of(cls, h: Tensor, pairs: PairScores, clusters: Clusters) -> _Messages:
        members = find_members(pairs.src, clusters)
        h = h[clusters.source].to(torch.promote_types(h.dtype, pairs.dst.dtype))
        mean = h.mean(dim=0)
        h = h - mean
        full = torch.cat([h, h.new_ones(h.size(0), 1)], dim=1)
        size = torch.linalg.vector_norm(h, dim=1)
        return cls(members, clusters.source.argsort(), full, size, mean)


class _Ranking(NamedTuple):
    """The sources of a cell in descending order of their errors, step by step.

    Weights are relative to the upper bound of all scores.
    """

    top: Tensor  # The upper bound.
    source: Tensor  # Places of sources.
    ends: list[int]  # How many sources come before each step.
    middle: Tensor  # The middles of the intervals of the weights.
    # What the sources from each step on add to the errors of sum and weight, by half
    # the widths of their intervals, and by their middles: [steps + 1, 4].
    error: Tensor
    is_flat: Tensor  # Whether the middles are worth their sum, from each step on.


def _rank(messages: _Messages, pairs: PairScores, tau: float) -> _Ranking | None:
    """Rank the sources for the targets of a cell, if there are bounds."""
    found = score_range(pairs, messages.members)
    if found is None:
        return None
    low, high = found
    top = high.amax()
    upper, lower = ((high - top) / tau).exp_(), ((low - top) / tau).exp_()
    middle, half = (upper + lower) / 2, (upper - lower) / 2
    info = torch.finfo(half.dtype)
    half += 4 * info.eps * upper + max(info.tiny, _LEAST)  # Rounding, to zero as well.
    size = messages.size.to(half.dtype)
    typical = size.mean()
    worst = half * (size + typical.masked_fill(typical == 0, 1))
    step = (worst.amax() / worst).log_().mul_(2).add_(1)
    step = step.nan_to_num_(1).clamp_(1, _STEPS - 1).to(torch.int16)
    if pairs.excluded is not None:
        step[messages.place[pairs.excluded]] = 0
    count = step.bincount(minlength=_STEPS).cumsum(0).tolist()
    columns = (half * size, half, middle * size, middle)
    error = torch.stack([step.bincount(x.double(), _STEPS) for x in columns], dim=1)
    error = error.flip(0).cumsum(0).flip(0) * (1 + 1e-6)  # Sums are rounded as well.
    error = torch.cat([error, error.new_zeros(1, 4)])
    source = step.sort(stable=True).indices
    is_flat = error[:, 1] < _WIDE * error[:, 3]
    return _Ranking(top, source, [0, *count], middle, error, is_flat)


class _Sums(NamedTuple):
    """Weighted messages and weights of some targets, and what these are relative to."""

    total: Tensor  # Sums of the weighted messages, and of the weights [r, m + 1].
    peak: Tensor  # Largest scores so far [r].

    def of(self, some: Tensor) -> _Sums:
        return _Sums(self.total[some], self.peak[some])


class _Goal(NamedTuple):
    """Hold what the sums of a cell are to reach, and tell when they do."""

    messages: _Messages
    ranking: _Ranking
    tau: float
    tolerance: float

    def check(self, sums: _Sums, step: int) -> tuple[Tensor, Tensor]:
        """Return which targets are done, and their sums, after some steps."""
        ranking, error = self.ranking, self.ranking.error
        last = step
        if ranking.is_flat[step]:
            is_little = error[:, 2:] <= _LITTLE * error[step, :2]
            last = max(step, int(is_little.all(dim=1).long().argmax()))
        middle = self._middle(step, last)
        factor = self._factor(sums)
        total = sums.total.double() + factor.unsqueeze(1) * middle.double()
        part = total[:, :-1] / total[:, -1:]
        norm = torch.linalg.vector_norm(part, dim=1)
        by_sum, by_weight = error[step, :2] + error[last, 2:]
        room = total[:, -1] - factor * by_weight
        bound = factor * (by_sum + norm * by_weight) / room
        out = part + self.messages.mean
        allowed = self.tolerance * torch.linalg.vector_norm(out, dim=1)
        is_done = (room > 0) & (bound * (1 + self.tolerance) <= allowed)
        return is_done | (step == _STEPS), out

    def _middle(self, step: int, last: int) -> Tensor:
        """Sum the sources of some steps by the middles of their weights."""
        ranking, full = self.ranking, self.messages.full
        some = ranking.source[ranking.ends[step] : ranking.ends[last]]
        weight = ranking.middle.to(full.dtype)
        if 4 * some.numel() < full.size(0):
            return weight[some] @ full.index_select(0, some)
        # To read all messages is quicker than to gather many.
        return torch.zeros_like(weight).index_copy_(0, some, weight[some]) @ full

    def next_step(self, sums: _Sums, step: int) -> int:
        """Return the step where most targets are going to be done."""
        if step == 1:
            return self._bulk
        error = self.ranking.error
        skipped = torch.where(
            self.ranking.is_flat.unsqueeze(1), _LITTLE * error[:, :2], error[:, 2:]
        )
        error = error[:, :2] + skipped
        total = sums.total.double()
        part = total[:, :-1] / total[:, -1:]
        norm = torch.linalg.vector_norm(part, dim=1, keepdim=True)
        bound = self._factor(sums).unsqueeze(1) * (error[:, 0] + norm * error[:, 1])
        norm = torch.linalg.vector_norm(part + self.messages.mean, dim=1, keepdim=True)
        is_good = bound <= 0.8 * self.tolerance * norm * total[:, -1:]
        is_good[:, -1] = True
        goal = is_good.long().argmax(dim=1).sort().values
        return max(step + 1, int(goal[goal.numel() * 9 // 10]))

    @property
    def first_step(self) -> int:
        """Return the first step after which targets may be done."""
        error, messages = self.ranking.error, self.messages
        largest = torch.linalg.vector_norm(messages.mean) + messages.size.amax()
        is_hopeless = error[1, 0] > self.tolerance * largest * error[1, 3]
        return self._bulk if bool(is_hopeless) else 1

    @property
    def _bulk(self) -> int:
        # The sources of most of what the weights may be.
        error = self.ranking.error
        return int((error[2:, 1] <= 0.3 * error[1, 1]).long().argmax()) + 2

    def _factor(self, sums: _Sums) -> Tensor:
        top = self.ranking.top.double()
        peak = torch.where(sums.total[:, -1] > 0, sums.peak.double(), top)
        return ((top - peak) / self.tau).exp().clamp(max=1 / _LEAST**2)


def _sum_cell(goal: _Goal, pairs: PairScores, memory_budget: int) -> tuple[Tensor, int]:
    """Return the sums of the targets of a cell, and how many pairs were summed."""
    full, ranking = goal.messages.full, goal.ranking
    rows = torch.arange(pairs.dst.size(0), device=full.device)
    result = full.new_empty(rows.numel(), full.size(1) - 1)
    total = full.new_zeros(rows.numel(), full.size(1))
    lowest = torch.finfo(total.dtype).min
    sums = _Sums(total, total.new_full((rows.numel(),), lowest))
    count, step, after = 0, 0, goal.first_step
    while True:
        some = ranking.source[ranking.ends[step] : ranking.ends[after]]
        sums = _add(goal, sums, pairs, some, step == 0, memory_budget)
        count += some.numel() * rows.numel()
        step = after
        is_done, out = goal.check(sums, step)
        result[rows[is_done]] = out[is_done].to(result.dtype)
        left = (~is_done).nonzero().squeeze(1)
        if left.numel() == 0:
            return result, count
        rows, sums, pairs = rows[left], sums.of(left), pairs.take(left)
        after = goal.next_step(sums, step)


def _add(
    goal: _Goal,
    sums: _Sums,
    pairs: PairScores,
    some: Tensor,
    may_exclude: bool,
    memory_budget: int,
) -> _Sums:
    """Add some of the sources to the sums of some targets."""
    full, members = goal.messages.full, goal.messages.members
    total, peak = sums
    is_narrow = pairs.upper - pairs.lower <= _MAX_RANGE * goal.tau
    bytes_per_source = 4 * full.element_size() * pairs.dst.size(0)
    for columns in row_blocks(some.numel(), bytes_per_source, memory_budget):
        place = some[columns]
        tile = pairs._replace(src=members.src.index_select(0, place))
        source = members.source[place]
        if pairs.response.formula is not None and is_narrow:
            weight = tile.weights(slice(None), slice(None), goal.tau)
            if may_exclude and pairs.excluded is not None:
                weight = weight.masked_fill_(source == pairs.excluded.unsqueeze(1), 0)
            peak = torch.zeros_like(peak) + pairs.upper
        else:
            value = compare_all(pairs.comparison, pairs.dst, tile.src)
            score = pairs.respond(slice(None), value)
            if may_exclude and pairs.excluded is not None:
                score = exclude(score, pairs.excluded, source)
            new = torch.maximum(peak, score.amax(dim=1).to(peak.dtype))
            total = total * ((peak - new) / goal.tau).exp().unsqueeze(1)
            weight = ((score - new.unsqueeze(1)) / goal.tau).exp_()
            peak = new
        total = torch.addmm(total, weight.to(full.dtype), full.index_select(0, place))
    return _Sums(total, peak)
