r"""Noise-free sums over all sources with a certified error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl.ops.cells import cells_of
from torch_geometric_gsl.ops.clusters import Clusters, k_means, num_clusters
from torch_geometric_gsl.ops.noise_free import is_narrow, noise_free_sum
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all, exclude
from torch_geometric_gsl.ops.runtime import disable_compile, row_blocks
from torch_geometric_gsl.ops.source_ranking import (
    LEAST,
    NUM_STEPS,
    RUN,
    Messages,
    Ranking,
    long_product,
    rank_sources,
)

# Bounds are abandoned if more than this share of the first cells' pairs remain.
_TRIALS = {2: 0.8, 8: 0.4}
_TRIED_ROWS = 64
# Between these numbers of rows, bounds are tried on two small cells first.
_FEW, _MANY = 4096, 2**16
# Middles below this share of the error are left out.
_LITTLE = 0.2


def certified_sum(h: Tensor, pairs: PairScores, tau: float, tolerance: float) -> Tensor:
    r"""Sum all sources with their noise-free weights, within a relative error.

    .. math::
        y_i = \sum_j w_{ij} h_j / \sum_j w_{ij}, \qquad w_{ij} = e^{s_{ij} / \tau},
        \qquad \lVert \hat{y}_i - y_i \rVert \le \epsilon \lVert y_i \rVert

    For each cell of near targets an interval :math:`m_j \pm e_j` contains the weights
    of source :math:`j`, or of a whole cluster if they are small. The sources of largest
    :math:`e_j` are summed pair by pair, until the others may be replaced by their
    :math:`m_j`, the same for all targets of the cell: with :math:`\hat{D}_i` the sum of
    the weights, the error is at most

    .. math::
        \frac{\sum_j e_j \left( \lVert h_j - \bar{h} \rVert + \lVert \hat{y}_i -
        \bar{h} \rVert \right)}{\hat{D}_i - \sum_j e_j}

    for any common part :math:`\bar{h}`. The bound is evaluated for each target with its
    own :math:`\hat{y}_i`; if it fails, more sources are summed pair by pair, in the end
    all. It includes the rounding of the intervals, but not that of the sums of pairs.

    Falls back to :func:`noise_free_sum` without bounds (a null neighbour, sparse rows,
    a response without an interval), if bounds leave too many pairs or rounding may
    matter, and with gradients enabled. Messages are :math:`[N, m]`, and
    :math:`\epsilon` is the :obj:`tolerance`.

    Example:
        >>> from torch_geometric_gsl.ops.scores import Identity
        >>> x = torch.eye(2).repeat(50, 1)
        >>> pairs = PairScores(x, x, Identity())
        >>> certified_sum(x, pairs, 0.5, 1e-3)[0]
        tensor([0.8808, 0.1192])
    """
    args, is_exact = (h, pairs, tau), torch.is_grad_enabled() or not pairs.has_clusters
    is_exact |= pairs.null is not None
    if is_exact or not _may_pay(*args, tolerance):
        return noise_free_sum(*args)
    clusters = k_means(pairs.src, num_clusters(pairs.src.size(0)))
    return tree_sum(*args, tolerance, clusters)


@disable_compile
@torch.no_grad()
def tree_sum(
    h: Tensor, pairs: PairScores, tau: float, tolerance: float, clusters: Clusters
) -> Tensor:
    """Sum by cells of targets, with clusters of the sources for any embeddings."""
    out = h.new_empty(pairs.dst.size(0), h.size(1))
    messages = Messages.of(h, pairs, clusters)
    cells, few = cells_of(pairs, clusters)
    rest, num_pairs, num_summed = [few], 0, 0
    for number, rows in enumerate(cells):
        part = pairs.take(rows)
        found, count = sum_cell(messages, part, tau, tolerance)
        if found is None:
            rest.append(rows)
        else:
            out[rows] = found.to(out.dtype)
        num_pairs += rows.numel() * h.size(0)
        num_summed += count
        if num_summed > _TRIALS.get(number + 1, math.inf) * num_pairs:
            rest += cells[number + 1 :]
            break
    # Sums much smaller than the subtracted mean suffer from cancellation.
    mean = torch.linalg.vector_norm(messages.mean.double())
    error = RUN * torch.finfo(messages.full.dtype).eps * mean
    norm = torch.linalg.vector_norm(out.double(), dim=1)
    is_left = (mean > 4 * norm) & (error > tolerance / 2 * norm)
    is_left[torch.cat(rest)] = True
    left = is_left.nonzero().squeeze(1)
    if left.numel() > 0:
        out[left] = noise_free_sum(h, pairs.take(left), tau)
    return out


@disable_compile
@torch.no_grad()
def _may_pay(h: Tensor, pairs: PairScores, tau: float, tolerance: float) -> bool:
    """Return whether bounds may skip enough pairs to pay for their clusters.

    Sums two cells with the tightest clusters, single sources, as a test. With few
    sources bounds do not pay; with many, clusters are cheap enough to try.
    """
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    if min(num_targets, num_sources) < _FEW:
        return False
    if num_sources > _MANY:
        return True
    every = torch.arange(num_sources + 1, device=h.device)
    messages = Messages.of(h, pairs, Clusters(every[:-1], every))
    num_summed = 0
    for place in (0, num_targets // 2):
        distance = (pairs.dst - pairs.dst[place]).square().sum(dim=1)
        near = distance.topk(_TRIED_ROWS, largest=False).indices
        args = messages, pairs.take(near), tau, tolerance
        num_summed += sum_cell(*args, may_skip=False)[1]
    return num_summed <= _TRIALS[2] * 2 * _TRIED_ROWS * num_sources


def sum_cell(
    messages: Messages,
    pairs: PairScores,
    tau: float,
    tolerance: float,
    *,
    may_skip: bool = True,
) -> tuple[Tensor | None, int]:
    """Sum the sources of a cell; also return the number of pairs that were summed.

    Without bounds all pairs remain to be summed.
    """
    every = pairs.dst.size(0) * pairs.src.size(0)
    ranking = rank_sources(messages, pairs, tau, tolerance if may_skip else 0.0)
    if ranking is None:
        return None, every
    cell = _CellSum(ranking, pairs, tau, tolerance)
    result, count, left = cell.run()
    if left.numel() > 0:
        # The error of whole clusters is too large.
        args = messages, pairs.take(left), tau, tolerance
        again, more = sum_cell(*args, may_skip=False)
        if again is None:
            return None, every
        result[left] = again
        count += more
    return result, count


class _CellSum:
    """The sums of the targets of a cell, until each is done."""

    def __init__(
        self, ranking: Ranking, pairs: PairScores, tau: float, tolerance: float
    ) -> None:
        full, count = ranking.messages.full, pairs.dst.size(0)
        self.ranking, self.pairs, self.tau = ranking, pairs, tau
        self.tolerance = tolerance
        # Sums of the weighted messages, and of the weights [r, m + 1], in float64, all
        # relative to the largest scores so far [r].
        self.total = full.new_zeros(count, full.size(1)).double()
        self.peak = full.new_full((count,), torch.finfo(full.dtype).min)

    def run(self) -> tuple[Tensor, int, Tensor]:
        """Sum sources until all targets are done, or none is left.

        Return the sums, the number of pairs, and the targets that are not done.
        """
        full, ends = self.ranking.messages.full, self.ranking.ends
        rows = torch.arange(self.peak.numel(), device=full.device)
        result = full.new_empty(rows.numel(), full.size(1) - 1)
        count, step, after = 0, 0, self._first_step()
        while True:
            some = self.ranking.source[ends[step] : ends[after]]
            self._add(some, may_exclude=step == 0)
            count += some.numel() * rows.numel()
            step = after
            is_done, out = self._check(step)
            result[rows[is_done]] = out[is_done].to(result.dtype)
            left = (~is_done).nonzero().squeeze(1)
            rows = rows[left]
            if rows.numel() == 0 or step == NUM_STEPS:
                return result, count, rows
            self.total, self.peak = self.total[left], self.peak[left]
            self.pairs = self.pairs.take(left)
            after = self._next_step(step)

    def _add(self, some: Tensor, *, may_exclude: bool) -> None:
        """Add some of the sources to the sums."""
        pairs, messages, tau = self.pairs, self.ranking.messages, self.tau
        full, members = messages.full, messages.members
        has_bounds = is_narrow(pairs, tau)
        bytes_per_source = 4 * full.element_size() * pairs.dst.size(0)
        for columns in row_blocks(some.numel(), bytes_per_source, pairs.memory):
            place = some[columns]
            tile = pairs._replace(src=members.src.index_select(0, place))
            source = members.source[place]
            if has_bounds:
                weight = tile.weights(slice(None), slice(None), tau)
                if may_exclude and pairs.excluded is not None:
                    own = source == pairs.excluded.unsqueeze(1)
                    weight = weight.masked_fill_(own, 0)
                self.peak = torch.zeros_like(self.peak) + pairs.upper
            else:
                value = compare_all(pairs.comparison, pairs.dst, tile.src)
                score = pairs.respond(slice(None), value)
                if may_exclude and pairs.excluded is not None:
                    score = exclude(score, pairs.excluded, source)
                new = torch.maximum(self.peak, score.amax(dim=1).to(self.peak.dtype))
                self.total *= ((self.peak - new) / tau).exp().unsqueeze(1)
                weight = ((score - new.unsqueeze(1)) / tau).exp_()
                self.peak = new
            self.total += long_product(weight.to(full.dtype), messages.rows(place))

    def _check(self, step: int) -> tuple[Tensor, Tensor]:
        """Return which targets are done after some steps, and their sums."""
        ranking, error = self.ranking, self.ranking.error
        last = step
        if ranking.sums_middles[step]:
            is_little = error[:, 2:] <= _LITTLE * error[step, :2]
            last = max(step, int(is_little.all(dim=1).long().argmax()))
        factor = self._factor()
        total = self.total + factor.unsqueeze(1) * ranking.middle_sum(step, last)
        part = total[:, :-1] / total[:, -1:]
        norm = torch.linalg.vector_norm(part, dim=1)
        by_sum, by_weight = ranking.error_from(step, last)
        room = total[:, -1] - factor * by_weight
        bound = factor * (by_sum + norm * by_weight) / room
        out = part + ranking.messages.mean
        allowed = self.tolerance * torch.linalg.vector_norm(out, dim=1)
        is_done = (room > 0) & (bound * (1 + self.tolerance) <= allowed)
        return is_done | (step == NUM_STEPS and ranking.far is None), out

    def _next_step(self, step: int) -> int:
        """Return the step after which most targets will be done."""
        if step == 1:
            return self._bulk()
        ranking, error, total = self.ranking, self.ranking.error, self.total
        skipped = torch.where(
            ranking.sums_middles.unsqueeze(1), _LITTLE * error[:, :2], error[:, 2:]
        )
        error = error[:, :2] + skipped
        if ranking.far is not None:
            error = error + ranking.far.error
        part = total[:, :-1] / total[:, -1:]
        norm = torch.linalg.vector_norm(part, dim=1, keepdim=True)
        bound = self._factor().unsqueeze(1) * (error[:, 0] + norm * error[:, 1])
        out = part + ranking.messages.mean
        norm = torch.linalg.vector_norm(out, dim=1, keepdim=True)
        is_good = bound <= 0.8 * self.tolerance * norm * total[:, -1:]
        is_good[:, -1] = True
        goal = is_good.long().argmax(dim=1).sort().values
        return max(step + 1, int(goal[goal.numel() * 9 // 10]))

    def _first_step(self) -> int:
        """Return the first step after which targets may be done."""
        error, messages = self.ranking.error, self.ranking.messages
        largest = torch.linalg.vector_norm(messages.mean) + messages.size.amax()
        is_hopeless = error[1, 0] > self.tolerance * largest * error[1, 3]
        return self._bulk() if bool(is_hopeless) else 1

    def _bulk(self) -> int:
        # The sources with most of the possible weight.
        error = self.ranking.error
        return int((error[2:, 1] <= 0.3 * error[1, 1]).long().argmax()) + 2

    def _factor(self) -> Tensor:
        top = self.ranking.top.double()
        peak = torch.where(self.total[:, -1] > 0, self.peak.double(), top)
        return ((top - peak) / self.tau).exp().clamp(max=1 / LEAST**2)
