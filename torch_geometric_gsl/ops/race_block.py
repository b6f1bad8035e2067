r"""The races of a block of targets: rounds of proposals, then a scan of candidates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_value
from torch_geometric_gsl.ops.envelope import Rates
from torch_geometric_gsl.ops.noise import (
    STEP,
    draw_uniform,
    propose,
    random_words,
    uniform,
    upper_uniform,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.scan import (
    SCAN_FACTOR,
    NextArrivals,
    is_repeated,
    scan_arrivals,
)

#: Bytes of a proposal in a block of rows.
BYTES_PER_PROPOSAL = 64

#: A function that runs all rounds of a block and returns the range of the scores.
Kernel = Callable[..., Tensor]


class RaceBlock(NamedTuple):
    """The races of a block of targets."""

    pairs: PairScores
    options: DrawOptions
    rates: Rates
    first_target: int
    state: Tensor  # The random state of each race.
    arrivals: Arrivals  # What has arrived, written in place.
    num_accepted: Tensor  # The number of acceptances of each race, in place.
    clock: Tensor  # The time of its last proposal, in units of the mean gap, in place.
    num_proposals: int  # Of each race in the first round.
    min_arrivals: int  # With as many a race ends after its round.
    kernel: Kernel | None  # Runs all rounds, if there is one.

    def run(self) -> None:
        """Run rounds of proposals until each race has :attr:`min_arrivals` arrivals."""
        num_proposals = self.num_proposals
        kernel = self.kernel
        race = torch.arange(self.num_accepted.numel(), device=self.num_accepted.device)
        begin = 0
        if num_proposals == 0:
            self._scan(race, begin)
            return
        if kernel is not None:
            _check_bounds(self.pairs, kernel(self))
        while race.numel() > 0:
            num_rows = max(1, self.pairs.memory // (BYTES_PER_PROPOSAL * num_proposals))
            if kernel is None:
                for block in race.split(num_rows):
                    self._propose(block, begin, num_proposals)
            race = race[self.num_accepted[race] < self.min_arrivals]
            begin += num_proposals
            num_proposals *= 2
            if race.numel() > 0:
                sizes = self.rates.sizes[race // self.options.num_races]
                is_long = begin * SCAN_FACTOR >= sizes
                if bool(is_long.any()):
                    self._scan(race[is_long], begin)
                    race = race[~is_long]

    def _propose(self, race: Tensor, begin: int, num_proposals: int) -> None:
        """Draw :obj:`num_proposals` of each race, and keep the arrivals."""
        pairs = self.pairs
        row = race // self.options.num_races
        num_rows = race.numel()
        index: slice | Tensor = race
        rows = slice(None)
        # All races are indexed by a slice, without a copy, and targets are listed once.
        if race.numel() == self.num_accepted.numel():
            index = slice(None)
            num_rows = self.rates.sizes.numel()
            rows = slice(self.first_target, self.first_target + num_rows)
        else:
            pairs = pairs.take(self.first_target + row)
        source, bound, level, gap = self._candidates(
            self.state[index], row, begin, num_proposals
        )
        score = pairs.listed(source.view(num_rows, -1), rows).view_as(source)
        if begin == 0:  # A sample: the first proposals of each race.
            _check_bounds(self.pairs, score[:, : self.options.num_arrivals])
        accepted = level < (score - bound).exp_()
        time = self.clock[index].unsqueeze(1) + gap.cumsum_(dim=1)
        self._note(index, row, source, score, time, accepted)

    def _candidates(
        self, state: Tensor, row: Tensor, begin: int, num_proposals: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw proposals: sources, bounds, levels of acceptance, and gaps of time."""
        pairs = self.pairs
        rates = self.rates
        target = self.first_target + row
        end = begin + num_proposals
        word = torch.arange(2 * begin + 1, 2 * end, 2, device=row.device)
        columns = torch.stack([word, word + 1]).unsqueeze(1) * STEP
        excluded = pairs.excluded
        if excluded is not None:
            excluded = excluded[target].unsqueeze(1)
        if rates.lookup is not None:
            words = random_words(state.unsqueeze(1) + columns)
            level, gap = uniform(words, pairs.dst.dtype)
            bound_level = (words[1] >> 32).int()
            source, bound, is_void = propose(bound_level, words[0], row, *rates.lookup)
            if is_void is not None:
                level.masked_fill_(is_void, torch.inf)
            if excluded is not None:
                level.masked_fill_(source == excluded, torch.inf)
            return source, bound, level, gap.log().neg()
        count = rates.sizes[row].unsqueeze(1)
        source, level, gap = draw_uniform(state, columns, count, pairs.dst.dtype)
        if pairs.candidates is None:
            if excluded is not None:  # Step over it.
                source += source >= excluded
            return source, rates.bound[row], level, gap
        start = pairs.candidates.start[target].unsqueeze(1)
        if excluded is not None:
            source += source >= excluded - start
        source += start
        if pairs.candidates.source is not None:
            source = pairs.candidates.source[source]
        return source, rates.bound[row], level, gap

    def tail(self, state: Tensor) -> tuple[Tensor, Tensor]:
        r"""Draw sources of the tail in proportion to the rates, and their log shares.

        They are :math:`[n K, S]` each; shares of :math:`-\infty` are void. The races
        have other random states than in their rounds.
        """
        size = self.options.num_tail
        stratum = torch.arange(size, device=state.device)
        state = state.unsqueeze(1)
        word = random_words(state + (2 * stratum + 1) * STEP)
        bound_word = random_words(state + (2 * stratum + 2) * STEP)
        # One of each of S equal parts of the rates.
        level = (stratum + upper_uniform(bound_word)) * (2.0**32 / size) - 2.0**31
        row = torch.arange(len(state), device=state.device) // self.options.num_races
        lookup = self.rates.lookup or ()
        source, bound, is_void = propose(level.floor().int(), word, row, *lookup)
        share = self.rates.total[row].unsqueeze(1) - bound - math.log(size)
        if is_void is not None:
            share.masked_fill_(is_void, -torch.inf)
        return source, share

    def _note(
        self,
        race: Tensor | slice,
        row: Tensor,
        source: Tensor,
        score: Tensor,
        time: Tensor,
        accepted: Tensor,
    ) -> None:
        """Append the accepted proposals to the arrivals of their races."""
        options = self.options
        arrivals = self.arrivals
        out_source = arrivals.source.view(-1, options.num_arrivals)
        out_noise = arrivals.noise.view(-1, options.num_arrivals)
        if not options.replace:
            has_arrived = torch.zeros_like(accepted)
            for column in range(options.num_arrivals):
                is_new = column < self.num_accepted[race]
                earlier = out_source[race, column].masked_fill(~is_new, -1)
                has_arrived |= source == earlier.unsqueeze(1)
            accepted &= ~has_arrived
            accepted &= ~is_repeated(source, accepted)
        # Slot 0 takes what is rejected, the last one what comes too late.
        num_arrivals = options.num_arrivals
        num_accepted = self.num_accepted[race].int().unsqueeze(1)
        rank = accepted.cumsum(dim=1, dtype=torch.int32)
        total = num_accepted + rank[:, -1:]
        slot = rank.add_(num_accepted).clamp_(max=num_arrivals + 1)
        slot = slot.mul_(accepted).long()
        proposal = torch.arange(slot.size(1), device=slot.device).expand_as(slot)
        slots = proposal.new_zeros(slot.size(0), num_arrivals + 2)
        accepted_proposal = slots.scatter_(1, slot, proposal)[:, 1:-1]
        log_rate = self.rates.total[row]
        log_time = time.gather(1, accepted_proposal).log_() - log_rate.unsqueeze(1)
        noise = (log_time + score.gather(1, accepted_proposal)).neg_()
        arrival = torch.arange(1, num_arrivals + 1, device=slot.device)
        is_new = (arrival > num_accepted) & (arrival <= total)
        source = source.gather(1, accepted_proposal)
        out_source[race] = torch.where(is_new, source, out_source[race])
        out_noise[race] = torch.where(is_new, noise, out_noise[race])
        # A race that ends with fewer has seen what arrives until its last proposal.
        end = time[:, -1].log() - log_rate
        last = torch.where(is_new[:, -1], log_time[:, -1], end)
        arrivals.horizon.view(-1)[race] = last
        self.num_accepted[race] = total.squeeze(1).clamp_(max=num_arrivals).long()
        self.clock[race] = time[:, -1]

    def _scan(self, race: Tensor, begin: int) -> None:
        """Draw the missing arrivals of some races among all other candidates."""
        num_arrivals = self.options.num_arrivals
        num_races = self.options.num_races
        row, row_index = (race // num_races).unique(return_inverse=True)
        # The races of a target share its scores.
        draw = torch.arange(num_races, device=row.device)
        races = row.unsqueeze(1) * num_races + draw
        source, noise = (x.view(-1, num_arrivals) for x in self.arrivals[:2])
        slot = torch.arange(num_arrivals, device=race.device)
        is_later = slot >= self.num_accepted[races].unsqueeze(-1)
        arrivals = scan_arrivals(
            self.pairs.take(self.first_target + row),
            self.state[races],
            num_arrivals,
            num_words=2 * begin,
            horizon=self.clock[races].log() - self.rates.total[row].unsqueeze(1),
            arrived=source[races].masked_fill(is_later, -1) if begin else None,
        )
        index = row_index, race - row[row_index] * num_races
        arrivals = NextArrivals(*(x[index] for x in arrivals))
        # The first of them are the arrivals that the race lacks.
        lacking = num_arrivals - self.num_accepted[race].unsqueeze(1)
        lacks = slot < lacking
        entry, rank = lacks.nonzero(as_tuple=True)
        index = race[entry], rank + self.num_accepted[race][entry]
        source[index] = arrivals.source[lacks]
        noise[index] = arrivals.noise[lacks]
        last = arrivals.log_time.gather(1, lacking - 1).squeeze(1)
        self.arrivals.horizon.view(-1)[race] = last


def _check_bounds(pairs: PairScores, score: Tensor) -> None:
    """Raise if a sample of scores lies beyond the bounds: no race would notice."""
    if score.numel() == 0:
        return
    eps = 64 * torch.finfo(score.dtype).eps
    lowest, highest = score.aminmax()
    # As precise as the scores.
    lower = torch.as_tensor(pairs.lower, dtype=score.dtype, device=score.device)
    upper = torch.as_tensor(pairs.upper, dtype=score.dtype, device=score.device)
    # A score is a difference of larger numbers, such as 1 - t, times the scale.
    magnitudes = torch.stack([lower, upper]).abs()
    error = eps * magnitudes.masked_fill(magnitudes.isinf(), 1).amax().clamp(min=1)
    above = highest > upper + error
    beneath = lowest < lower - error
    check_value(
        ~(above | beneath),
        "'similarity' must lie between its 'bounds'",
        got=lambda: (
            f'scores in [{float(lowest):.4g}, {float(highest):.4g}] '
            f'for [{pairs.lower:.4g}, {pairs.upper:.4g}], times the scale'
        ),
    )
