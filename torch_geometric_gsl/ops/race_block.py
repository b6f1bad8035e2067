r"""A block of races: proposals, what arrives, and what is looked at in the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_value
from torch_geometric_gsl.ops._native.compiled import is_known
from torch_geometric_gsl.ops.envelope import Rates
from torch_geometric_gsl.ops.neighbours import Neighbours
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
from torch_geometric_gsl.ops.scan import SCAN_FACTOR, Found, is_repeated, scan_arrivals

#: What one proposal takes in a block of rows, in bytes.
BYTES_PER_PROPOSAL = 64

#: It runs all rounds of a block, and returns the least and the largest score.
Kernel = Callable[..., Tensor | None]


def has_kernel(pairs: PairScores) -> bool:
    """Return whether a kernel has the formula of these rows, and their type."""
    return is_known(pairs) and pairs.src.size(0) < 2**31


class RaceBlock(NamedTuple):
    """The races of a block of targets."""

    pairs: PairScores
    options: DrawOptions
    rates: Rates
    first: int  # The first target.
    state: Tensor  # The random state of each race.
    arrivals: Arrivals  # What has arrived, written in place.
    found: Tensor  # The number of acceptances of each race, in place.
    clock: Tensor  # The time of its last proposal, in units of the mean gap, in place.
    num_races: int  # Of each target.
    length: int  # The number of proposals of the first round.
    least: int  # The number of arrivals with which a race may end with its round.
    kernel: Kernel | None  # What runs all rounds at once.

    def run(self) -> None:
        """Run the races in rounds, until each has its least number of arrivals."""
        length, kernel = self.length, self.kernel
        race, begin = torch.arange(self.found.numel(), device=self.found.device), 0
        if length == 0:
            self._scan(race, begin)
            return
        if kernel is not None:
            scores = kernel(self)
            if scores is not None:
                _check_bounds(self.pairs, scores)
        while race.numel() > 0:
            num_rows = max(1, self.pairs.memory // (BYTES_PER_PROPOSAL * length))
            if kernel is None:
                for some in race.split(num_rows):
                    self._propose(some, begin, length)
            race = race[self.found[race] < self.least]
            begin, length = begin + length, 2 * length
            if race.numel() > 0:
                sizes = self.rates.sizes[race // self.num_races]
                is_long = begin * SCAN_FACTOR >= sizes
                if bool(is_long.any()):
                    self._scan(race[is_long], begin)
                    race = race[~is_long]

    def _propose(self, race: Tensor, begin: int, length: int) -> None:
        """Draw :obj:`length` proposals of each race, and keep the arrivals."""
        pairs, row, num_rows = self.pairs, race // self.num_races, race.numel()
        some: slice | Tensor = race
        rows = slice(None)
        # All races are a slice, which copies nothing, and their targets stand once.
        if race.numel() == self.found.numel():
            some, num_rows = slice(None), self.rates.sizes.numel()
            rows = slice(self.first, self.first + num_rows)
        else:
            pairs = pairs.take(self.first + row)
        source, bound, level, gap = self._candidates(
            self.state[some], row, begin, length
        )
        listed = Neighbours(
            source.view(num_rows, -1), pairs.src.size(0), memory_budget=pairs.memory
        )
        score = pairs.respond(rows, pairs.compare(rows, listed)).view_as(source)
        if begin == 0:  # A sample: the first proposals of each race.
            _check_bounds(self.pairs, score[:, : self.options.num_arrivals])
        accepted = level < (score - bound).exp_()
        time = self.clock[some].unsqueeze(1) + gap.cumsum_(dim=1)
        self._note(some, row, source, score, time, accepted)

    def _candidates(
        self, state: Tensor, row: Tensor, begin: int, length: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw proposals: sources, bounds, levels of acceptance, and gaps of time."""
        pairs, rates, target = self.pairs, self.rates, self.first + row
        word = torch.arange(2 * begin + 1, 2 * (begin + length), 2, device=row.device)
        columns = torch.stack([word, word + 1]).unsqueeze(1) * STEP
        own = None if pairs.excluded is None else pairs.excluded[target].unsqueeze(1)
        if rates.kinds is not None:
            words = random_words(state.unsqueeze(1) + columns)
            level, gap = uniform(words, pairs.dst.dtype)
            kind = (words[1] >> 32).int()
            source, bound, is_void = propose(kind, words[0], row, *rates.kinds)
            if is_void is not None:
                level.masked_fill_(is_void, torch.inf)
            if own is not None:
                level.masked_fill_(source == own, torch.inf)
            return source, bound, level, gap.log().neg()
        count = rates.sizes[row].unsqueeze(1)
        source, level, gap = draw_uniform(state, columns, count, pairs.dst.dtype)
        if pairs.candidates is None:
            if own is not None:  # Step over it.
                source += source >= own
            return source, rates.bound[row], level, gap
        start = pairs.candidates.start[target].unsqueeze(1)
        if own is not None:
            source += source >= own - start
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
        place = torch.arange(size, device=state.device)
        state = state.unsqueeze(1)
        word, other = (random_words(state + (2 * place + i) * STEP) for i in (1, 2))
        # One of each of S equal parts of the rates.
        part = (place + upper_uniform(other)) * (2.0**32 / size) - 2.0**31
        row = torch.arange(len(state), device=state.device) // self.num_races
        kinds = self.rates.kinds or ()
        source, bound, is_void = propose(part.floor().int(), word, row, *kinds)
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
        """Note the first arrivals among some proposals."""
        options, arrivals = self.options, self.arrivals
        out_source = arrivals.source.view(-1, options.num_arrivals)
        out_noise = arrivals.noise.view(-1, options.num_arrivals)
        if not options.replace:
            is_known = torch.zeros_like(accepted)
            for place in range(options.num_arrivals):
                is_new = place < self.found[race]
                earlier = out_source[race, place].masked_fill(~is_new, -1)
                is_known |= source == earlier.unsqueeze(1)
            accepted &= ~is_known
            accepted &= ~is_repeated(source, accepted)
        # Slot 0 takes what is rejected, the last one what comes too late.
        most, found = options.num_arrivals, self.found[race].int().unsqueeze(1)
        rank = accepted.cumsum(dim=1, dtype=torch.int32)
        total = found + rank[:, -1:]
        slot = rank.add_(found).clamp_(max=most + 1).mul_(accepted).long()
        column = torch.arange(slot.size(1), device=slot.device).expand_as(slot)
        chosen = column.new_zeros(slot.size(0), most + 2).scatter_(1, slot, column)
        chosen = chosen[:, 1:-1]
        log_rate = self.rates.total[row]
        log_time = time.gather(1, chosen).log_() - log_rate.unsqueeze(1)
        noise = (log_time + score.gather(1, chosen)).neg_()
        number = torch.arange(1, most + 1, device=slot.device)
        is_new = (number > found) & (number <= total)
        for out, new in (out_source, source.gather(1, chosen)), (out_noise, noise):
            out[race] = torch.where(is_new, new, out[race])
        # A race that ends with fewer has seen what arrives until its last proposal.
        end = time[:, -1].log() - log_rate
        last = torch.where(is_new[:, -1], log_time[:, -1], end)
        arrivals.horizon.view(-1)[race] = last
        self.found[race] = total.squeeze(1).clamp_(max=most).long()
        self.clock[race] = time[:, -1]

    def _scan(self, race: Tensor, begin: int) -> None:
        """Draw what some races lack from all candidates that have not arrived."""
        most, num_races = self.options.num_arrivals, self.num_races
        row, place = (race // num_races).unique(return_inverse=True)
        # The races of a target share its scores.
        every = row.unsqueeze(1) * num_races + torch.arange(
            num_races, device=row.device
        )
        source, noise = (x.view(-1, most) for x in self.arrivals[:2])
        slot = torch.arange(most, device=race.device)
        is_later = slot >= self.found[every].unsqueeze(-1)
        later = scan_arrivals(
            self.pairs.take(self.first + row),
            self.state[every],
            most,
            num_words=2 * begin,
            horizon=self.clock[every].log() - self.rates.total[row].unsqueeze(1),
            arrived=source[every].masked_fill(is_later, -1) if begin else None,
        )
        found = Found(*(x[place, race - row[place] * num_races] for x in later))
        # The first of them are the arrivals that the race lacks.
        lacking = most - self.found[race].unsqueeze(1)
        which, place = (slot < lacking).nonzero(as_tuple=True)
        index = race[which], place + self.found[race][which]
        source[index] = found.source[which, place]
        noise[index] = found.noise[which, place]
        last = found.log_time.gather(1, lacking - 1).squeeze(1)
        self.arrivals.horizon.view(-1)[race] = last


def _check_bounds(pairs: PairScores, score: Tensor) -> None:
    """Raise if a sample of scores lies beyond the bounds: no race would notice."""
    if score.numel() == 0:
        return
    eps = 64 * torch.finfo(score.dtype).eps
    lowest, highest = score.aminmax()
    # As precise as the scores.
    dtype, device = score.dtype, score.device
    lower = torch.as_tensor(pairs.lower, dtype=dtype, device=device)
    upper = torch.as_tensor(pairs.upper, dtype=dtype, device=device)
    # A score is a difference of larger numbers, such as 1 - t, times the scale.
    ends = torch.stack([lower, upper]).abs()
    error = eps * ends.masked_fill(ends.isinf(), 1).amax().clamp(min=1)
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
