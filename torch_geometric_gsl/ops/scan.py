r"""The first arrivals of races from the exact rates of all candidates."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.neighbours import gather
from torch_geometric_gsl.ops.noise import (
    STEP,
    draw_seed,
    precise_uniform,
    race_states,
    random_words,
    uniform,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.runtime import disable_compile, row_blocks

#: A scan of all candidates costs as much as proposals for one in this many of them.
SCAN_FACTOR = 8
_F64 = torch.float64
# The size of blocks of candidates whose rates are summed; one block is searched.
_BLOCK = 32
# Proposals of others in addition to one for each arrival: nearly always enough.
_EXTRA = 4


class NextArrivals(NamedTuple):
    """The next arrivals of K races per target."""

    source: Tensor  # Sources [n, K, M] in the order of arrival.
    noise: Tensor  # Their Gumbel noise -log T - s; -inf where fewer are left.
    log_time: Tensor  # The logarithms of their times T.


class _Rates(NamedTuple):
    """The scores of the best candidates, and the rates of the others by blocks."""

    position: Tensor  # Positions of the best [n, H].
    score: Tensor
    weight: Tensor  # Rates of the others [n, C, B], relative to the lowest of the best.
    sums: Tensor  # Their sums up to the end of each block [n, C].
    log_total: Tensor  # The logarithm of the sum of all [n, 1].


@disable_compile
@torch.no_grad()
def stream_arrivals(
    pairs: PairScores,
    k: int,
    num_arrivals: int,
    *,
    generator: torch.Generator | None = None,
) -> Arrivals:
    r"""Find the largest perturbed scores of each draw, without gradient.

    They are the first :math:`M` arrivals of the :math:`K` races of each target, at most
    :obj:`pairs.available`: :math:`-\log T_{ij} = s_{ij} + g_{ij}`. The scores of all
    candidates of a target are computed once for all its draws, and the first arrivals
    are drawn from their exact rates, without noise for each pair. The noise is a
    function of (seed, target, draw, position), so one seed gives one graph for any
    memory budget.
    """
    num_targets = pairs.dst.size(0)
    seed = draw_seed(pairs.dst.device, generator)
    state = race_states(seed, pairs.first_target * k, num_targets * k).view(
        num_targets, k
    )
    arrivals = scan_arrivals(pairs, state, num_arrivals)
    return Arrivals(arrivals.source, arrivals.noise, arrivals.log_time[..., -1])


@torch.no_grad()
def scan_arrivals(
    pairs: PairScores,
    state: Tensor,
    num_arrivals: int,
    *,
    num_words: int = 0,
    horizon: Tensor | None = None,
    arrived: Tensor | None = None,
) -> NextArrivals:
    r"""Find the next arrivals of races among all candidates of their targets.

    By memorylessness a candidate that has not arrived by the time :math:`\Gamma`
    arrives at :math:`\Gamma + \mathrm{Exp}(e^{s_{ij}})`. The candidates with the
    highest scores have separate times. The others are proposed by a Poisson process
    with the sum of their rates: as none of them is faster, few proposals suffice for
    enough distinct arrivals. All races of a target share its rates, and the noise is a
    function of (state, position), independent of blocks.

    Races with random states :math:`[n, K]` have drawn :obj:`num_words` random words
    each. :obj:`horizon` :math:`[n, K]` are the logarithms of :math:`\Gamma`, and
    :obj:`arrived` :math:`[n, K, A]` the sources that have arrived, padded with
    :obj:`-1`; without them the races start anew.
    """
    shape = *state.shape, num_arrivals
    dtype = pairs.dst.dtype
    arrivals = NextArrivals(
        state.new_zeros(shape),
        torch.full(shape, -torch.inf, dtype=dtype, device=state.device),
        torch.full(shape, torch.inf, dtype=dtype, device=state.device),
    )
    if horizon is None:
        horizon = arrivals.log_time.new_full(state.shape, -torch.inf)
    num_candidates = pairs.num_candidates
    num_best = 2 * num_arrivals + (0 if arrived is None else arrived.size(-1))
    if 2 * num_best >= num_candidates:
        num_best = num_candidates
    # Scores and rates, and the blocks that proposals search.
    searched = 4 * _BLOCK * state.size(1) * (num_arrivals + _EXTRA)
    bytes_per_row = pairs.dst.element_size() * (4 * num_candidates + searched)
    for rows in row_blocks(state.size(0), bytes_per_row, pairs.memory):
        listed, score = _candidates(pairs, rows)
        race = _Race(
            listed,
            _rates(score, num_best),
            state[rows],
            num_words,
            horizon[rows].double(),
            None if arrived is None else arrived[rows],
        )
        num_first = min(num_arrivals, num_candidates)
        position, log_time = race.first_arrivals(num_first, num_first + _EXTRA)
        block = rows, slice(None), slice(position.size(-1))
        flat = position.flatten(1)
        score = score.gather(1, flat).view_as(position)
        source = position
        if listed is not None:
            source = listed.gather(1, flat).view_as(position)
        is_left = log_time != torch.inf  # NaN stays NaN.
        arrivals.source[block] = source.where(is_left, 0)
        arrivals.log_time[block] = log_time.to(dtype)
        arrivals.noise[block] = (-log_time - score).to(dtype).where(is_left, -torch.inf)
    return arrivals


class _Race(NamedTuple):
    """The races of a block of targets."""

    listed: Tensor | None
    rates: _Rates
    state: Tensor
    num_words: int
    horizon: Tensor
    arrived: Tensor | None

    def first_arrivals(self, num_arrivals: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the positions and times of the first arrivals, in order.

        Others are proposed :obj:`count` times, more often only where this is not
        enough.
        """
        position, time = self._best()
        if self.rates.weight.numel() == 0:
            time, index = time.topk(num_arrivals, largest=False)
            return position.gather(-1, index), time
        proposed, proposed_time, end = self._propose(count)
        time, index = torch.cat([time, proposed_time], -1).topk(
            num_arrivals, largest=False
        )
        position = torch.cat([position, proposed], -1).gather(-1, index)
        # All arrivals up to the last proposal are known.
        is_unknown = (time[..., -1] > end).any(dim=1)
        if bool(is_unknown.any()):
            again = self.take(is_unknown).first_arrivals(num_arrivals, 2 * count)
            position[is_unknown], time[is_unknown] = again
        return position, time

    def take(self, target: Tensor) -> _Race:
        """Return the races of some targets."""
        return self._replace(
            listed=None if self.listed is None else self.listed[target],
            rates=_Rates(*(rate[target] for rate in self.rates)),
            state=self.state[target],
            horizon=self.horizon[target],
            arrived=None if self.arrived is None else self.arrived[target],
        )

    def _words(self, start: int, count: int) -> Tensor:
        column = torch.arange(start + 1, start + count + 1, device=self.state.device)
        return random_words(self.state.unsqueeze(-1) + column * STEP)

    def _best(self) -> tuple[Tensor, Tensor]:
        """Draw the arrival times of the best candidates."""
        level = uniform(self._words(self.num_words, self.rates.position.size(1)), _F64)
        wait = level.log_().neg_().log_() - self.rates.score.double().unsqueeze(1)
        time = torch.logaddexp(self.horizon.unsqueeze(-1), wait)
        position = self.rates.position.unsqueeze(1).expand_as(time)
        return position, self._without_arrived(position, time)

    def _propose(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Propose others: return positions, arrival times, and the end of proposals."""
        num_words = self.num_words + self.rates.position.size(1)
        words = self._words(num_words, 2 * count)
        level = precise_uniform(words[..., ::2])
        position, is_void = _look_up(self.rates, level.flatten(1))
        position, is_void = position.view_as(level), is_void.view_as(level)
        gap = uniform(words[..., 1::2], _F64).log_().neg_()
        wait = gap.cumsum_(dim=-1).log_() - self.rates.log_total.unsqueeze(1)
        time = torch.logaddexp(self.horizon.unsqueeze(-1), wait)
        end = time[..., -1]
        is_void |= is_repeated(position, ~is_void)
        arrival_time = time.masked_fill(is_void, torch.inf)
        return position, self._without_arrived(position, arrival_time), end

    def _without_arrived(self, position: Tensor, time: Tensor) -> Tensor:
        if self.arrived is not None:
            source = position
            if self.listed is not None:
                source = self.listed.gather(1, position.flatten(1)).view_as(position)
            for arrival in self.arrived.unbind(-1):
                time.masked_fill_(source == arrival.unsqueeze(-1), torch.inf)
        return time


def _rates(score: Tensor, num_best: int) -> _Rates:
    """Return the best candidates of some targets, and the rates of the others."""
    best, position = score.topk(num_best, dim=1)
    num_rows, num_candidates = score.shape
    num_blocks = 0 if num_best == num_candidates else -(-num_candidates // _BLOCK)
    weight = score.new_zeros(num_rows, num_blocks * _BLOCK)
    lowest = best[:, -1:].clamp(min=torch.finfo(score.dtype).min)
    if num_blocks:
        weight[:, :num_candidates].copy_(score).sub_(lowest).exp_()
        weight.scatter_(1, position, 0.0)
    weight = weight.view(num_rows, num_blocks, _BLOCK)
    sums = weight.sum(dim=2).double().cumsum_(dim=1)
    log_total = sums[:, -1:].log() + lowest
    return _Rates(position, best, weight, sums, log_total)


def _look_up(rates: _Rates, level: Tensor) -> tuple[Tensor, Tensor]:
    """Find the positions of shares [n, q] of all rates; also return which are void."""
    num_rows, num_blocks = rates.sums.shape
    level = level * rates.sums[:, -1:]
    block = torch.searchsorted(rates.sums, level, right=True).clamp_(max=num_blocks - 1)
    before = rates.sums.gather(1, (block - 1).clamp(min=0)).masked_fill(block == 0, 0.0)
    row = torch.arange(num_rows, device=level.device).unsqueeze(1)
    weight = gather(rates.weight.flatten(0, 1), row * num_blocks + block)
    level = (level - before).to(weight.dtype).unsqueeze(-1)
    inner = torch.searchsorted(weight.cumsum(dim=-1), level, right=True)
    inner = inner.clamp_(max=_BLOCK - 1)
    # Rounded sums, or no rate left, can lead to an empty position.
    is_void = weight.gather(-1, inner).squeeze(-1) == 0
    position = block * _BLOCK + inner.squeeze(-1)
    return position.masked_fill_(is_void, 0), is_void


def is_repeated(source: Tensor, counts: Tensor) -> Tensor:
    """Mark repetitions of earlier valid entries of the row."""
    position = torch.arange(source.size(-1), device=source.device)
    key = torch.where(counts, source, -1 - position)
    ordered, order = key.sort(dim=-1, stable=True)
    repeated = torch.zeros_like(counts)
    repeated[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    return torch.zeros_like(counts).scatter_(-1, order, repeated)


def _candidates(pairs: PairScores, rows: slice) -> tuple[Tensor | None, Tensor]:
    """Return the candidates of some targets and their scores, -inf where excluded."""
    if pairs.candidates is None:
        return None, pairs.rows(rows)
    position = torch.arange(pairs.num_candidates, device=pairs.dst.device).unsqueeze(0)
    size = pairs.candidates.size[rows].unsqueeze(1)
    source = pairs.candidates.at(rows, torch.minimum(position, size - 1))
    score = pairs.listed(source, rows)
    is_none = position >= size
    if pairs.excluded is not None:
        is_none |= source == pairs.excluded[rows].unsqueeze(1)
    return source, score.masked_fill(is_none, -torch.inf)
