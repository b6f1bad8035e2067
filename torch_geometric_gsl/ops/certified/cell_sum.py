"""The sums of a cell of near targets, over as many sources as the tolerance needs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.certified.source_ranking import (
    LEAST,
    NUM_STEPS,
    Messages,
    Ranking,
    long_product,
    rank_sources,
)
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all, exclude
from torch_geometric_gsl.ops.runtime import row_blocks

# Middles that add so little to the error are left out.
_LITTLE = 0.2
# Weights of e^-40 times small messages are still far from what float32 rounds to zero.
_MAX_RANGE = 40.0


def sum_cell(
    messages: Messages,
    pairs: PairScores,
    tau: float,
    tolerance: float,
    memory_budget: int,
    *,
    may_skip: bool = True,
) -> tuple[Tensor, int] | None:
    """Return the sums of the targets of a cell, and how many pairs were summed."""
    ranking = rank_sources(messages, pairs, tau, tolerance if may_skip else 0.0)
    if ranking is None:
        return None
    result, count, left = _refine(_Goal(ranking, tau, tolerance), pairs, memory_budget)
    if left.numel() > 0:
        # What whole clusters leave open is too much for them.
        again = sum_cell(
            messages, pairs.take(left), tau, tolerance, memory_budget, may_skip=False
        )
        if again is None:
            return None
        result[left] = again[0]
        count += again[1]
    return result, count


class _Sums(NamedTuple):
    """Sums of weighted messages and of weights relative to the largest score."""

    # Sums of the weighted messages, and of the weights [r, m + 1], in float64.
    total: Tensor
    peak: Tensor  # Largest scores so far [r].

    def of(self, some: Tensor) -> _Sums:
        return _Sums(self.total[some], self.peak[some])


class _Goal(NamedTuple):
    """The tolerance of the sums of a cell, and the checks of whether they reach it."""

    ranking: Ranking
    tau: float
    tolerance: float

    def check(self, sums: _Sums, step: int) -> tuple[Tensor, Tensor]:
        """Return which targets are done after some steps, and their sums."""
        ranking, error = self.ranking, self.ranking.error
        last = step
        if ranking.is_flat[step]:
            is_little = error[:, 2:] <= _LITTLE * error[step, :2]
            last = max(step, int(is_little.all(dim=1).long().argmax()))
        factor = self._factor(sums)
        middle = factor.unsqueeze(1) * ranking.middle_sum(step, last)
        total = sums.total + middle
        part = total[:, :-1] / total[:, -1:]
        norm = torch.linalg.vector_norm(part, dim=1)
        by_sum, by_weight = ranking.error_from(step, last)
        room = total[:, -1] - factor * by_weight
        bound = factor * (by_sum + norm * by_weight) / room
        out = part + ranking.messages.mean
        allowed = self.tolerance * torch.linalg.vector_norm(out, dim=1)
        is_done = (room > 0) & (bound * (1 + self.tolerance) <= allowed)
        return is_done | (step == NUM_STEPS and ranking.far is None), out

    def next_step(self, sums: _Sums, step: int) -> int:
        """Return the step where most targets are going to be done."""
        if step == 1:
            return self._bulk
        ranking, error = self.ranking, self.ranking.error
        skipped = torch.where(
            ranking.is_flat.unsqueeze(1), _LITTLE * error[:, :2], error[:, 2:]
        )
        error = error[:, :2] + skipped
        if ranking.far is not None:
            error = error + ranking.far.error
        total = sums.total
        part = total[:, :-1] / total[:, -1:]
        norm = torch.linalg.vector_norm(part, dim=1, keepdim=True)
        bound = self._factor(sums).unsqueeze(1) * (error[:, 0] + norm * error[:, 1])
        out = part + ranking.messages.mean
        norm = torch.linalg.vector_norm(out, dim=1, keepdim=True)
        is_good = bound <= 0.8 * self.tolerance * norm * total[:, -1:]
        is_good[:, -1] = True
        goal = is_good.long().argmax(dim=1).sort().values
        return max(step + 1, int(goal[goal.numel() * 9 // 10]))

    @property
    def first_step(self) -> int:
        """Return the first step after which targets may be done."""
        error, messages = self.ranking.error, self.ranking.messages
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
        return ((top - peak) / self.tau).exp().clamp(max=1 / LEAST**2)


def _refine(
    goal: _Goal, pairs: PairScores, memory_budget: int
) -> tuple[Tensor, int, Tensor]:
    """Sum sources until all targets are done, or none is left.

    Return the sums, the number of pairs, and the targets that are not done.
    """
    ranking = goal.ranking
    full = ranking.messages.full
    rows = torch.arange(pairs.dst.size(0), device=full.device)
    result = full.new_empty(rows.numel(), full.size(1) - 1)
    total = full.new_zeros(rows.numel(), full.size(1)).double()
    lowest = torch.finfo(full.dtype).min
    sums = _Sums(total, full.new_full((rows.numel(),), lowest))
    count, step, after = 0, 0, goal.first_step
    while True:
        some = ranking.source[ranking.ends[step] : ranking.ends[after]]
        sums = _add(goal, sums, pairs, some, step == 0, memory_budget)
        count += some.numel() * rows.numel()
        step = after
        is_done, out = goal.check(sums, step)
        result[rows[is_done]] = out[is_done].to(result.dtype)
        left = (~is_done).nonzero().squeeze(1)
        rows = rows[left]
        if rows.numel() == 0 or step == NUM_STEPS:
            return result, count, rows
        sums, pairs = sums.of(left), pairs.take(left)
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
    messages = goal.ranking.messages
    full, members = messages.full, messages.members
    total, peak = sums
    is_narrow = pairs.upper - pairs.lower <= _MAX_RANGE * goal.tau
    bytes_per_source = 4 * full.element_size() * pairs.dst.size(0)
    for columns in row_blocks(some.numel(), bytes_per_source, memory_budget):
        place = some[columns]
        tile = pairs._replace(src=members.src.index_select(0, place))
        source = members.source[place]
        if is_narrow:
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
        total += long_product(weight.to(full.dtype), messages.rows(place))
    return _Sums(total, peak)
