r"""The Gumbel race by thinning: first arrivals without scoring all pairs."""

from __future__ import annotations

import math

import torch

from torch_geometric_gsl.ops._native.compiled import find_library
from torch_geometric_gsl.ops._native.race_native import race_native, tail_native
from torch_geometric_gsl.ops.envelope import Envelope, has_kernel, proposal_rates
from torch_geometric_gsl.ops.noise import draw_seed, race_states
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.race_block import (
    BYTES_PER_PROPOSAL,
    Kernel,
    RaceBlock,
)
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import (
    disable_compile,
    outside_transforms,
    row_blocks,
)
from torch_geometric_gsl.ops.tail import Tail, draw_tail

#: The first round of a flat race, relative to the worst case. A race with an arrival
#: may end after it: the missing ones take less than 1 % from the variance of a sum.
FIRST_ROUND = 0.5


def num_proposals(num_arrivals: int, spread: float, *, replace: bool = True) -> float:
    r"""Return the number of proposals :math:`P` of each race.

    .. math::
        P = \max \left( M + 2 \sqrt{M}, 8 \right) e^{\Delta}

    where :math:`\Delta` is the range of the scores: a proposal is accepted with a
    probability of at least :math:`e^{-\Delta}`, so that a race sees no arrival with a
    probability below :math:`e^{-8}`. Without replacement all :math:`k = M` neighbours
    must be found, and :math:`P = (2 k + 6 \sqrt{k} + 12) e^{\Delta}`.
    """
    m = num_arrivals
    needed = max(8, m + 2 * math.sqrt(m))
    if not replace:
        needed = 2 * m + 6 * math.sqrt(m) + 12
    # Beyond, the exponential function overflows; no race is that long.
    return math.ceil(needed * math.exp(spread)) if spread < 40 else math.inf


def find_kernel(pairs: PairScores) -> Kernel | None:
    """Return the kernel in C++ if it serves a call."""
    if has_kernel(pairs) and find_library('race', pairs) is not None:
        return race_native
    return None


@disable_compile
@torch.no_grad()
@outside_transforms
def race_arrivals(
    pairs: PairScores,
    options: DrawOptions,
    length: int,
    envelope: Envelope | None = None,
    *,
    least: int | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Arrivals, Tail | None]:
    r"""Find the first arrivals of each race by thinning a Poisson process.

    Proposals arrive at the times :math:`\Gamma_1 < \Gamma_2 < \dots`, cumulative sums
    of :math:`\mathrm{Exp}(1) / R_i`. Each proposes a candidate :math:`j` with
    probability :math:`e^{u_{ij}} / R_i` and is accepted with probability
    :math:`e^{s_{ij} - u_{ij}}`, where the envelope has the bounds :math:`u_{ij} \ge
    s_{ij}` and :math:`R_i = \sum_j e^{u_{ij}}`. The first acceptance of :math:`j` is
    its arrival :math:`T_{ij}`; later ones are dropped. A race ends with its
    :math:`M`-th acceptance :math:`\Gamma`, after :math:`M R_i / Z_i` proposals in the
    mean, where :math:`Z_i = \sum_j e^{s_{ij}}`: all arrivals before are known.

    Races that lack acceptances go on in rounds of twice the length. One that has
    proposed an eighth as often as it has candidates looks at all that have not arrived:
    by memorylessness these arrive at :math:`\Gamma + \mathrm{Exp}(e^{s_{ij}})`. Where
    fewer arrivals are enough, a race that has them ends with its round, and the time of
    its last proposal is :math:`\Gamma`.

    The first round has :obj:`length` proposals. Without an envelope all bounds are
    :obj:`pairs.upper`; :obj:`least` arrivals are enough, or all :math:`M` by default.

    The noise is a function of (seed, target, draw, proposal), so one seed gives one
    graph whatever the memory budget. A kernel in C++ runs the same rounds.

    Also returns the tail, without gradient. Up to a temperature of 1 and with clusters
    its sources are sampled by their bounds, so that no heavy one is missed, else
    uniformly.
    """
    envelope = Envelope() if envelope is None else envelope
    dst = pairs.dst
    num_races = options.num_races
    seed = draw_seed(dst.device, generator)
    noise = dst.new_full((dst.size(0), num_races, options.num_arrivals), -torch.inf)
    source = torch.zeros_like(noise, dtype=torch.long)
    horizon = noise.new_empty(noise.shape[:2])
    tail = None
    # Above a temperature of 1 slow sources weigh far more than their rates.
    by_rates = envelope.clusters is not None and options.tau <= 1
    if by_rates and 0 < options.num_tail < pairs.src.size(0):
        shape = *noise.shape[:2], options.num_tail
        tail = source.new_empty(shape), noise.new_empty(shape)
        tail_seed = draw_seed(dst.device, generator)
    kernel = find_kernel(pairs)
    if kernel is not None:  # Once for all blocks.
        pairs = pairs._replace(dst=dst.contiguous(), src=pairs.src.contiguous())
    num_stored = num_races * length if kernel is None else 0  # A kernel stores none.
    if tail is not None:
        num_stored = max(num_stored, num_races * options.num_tail)
    bytes_per_row = BYTES_PER_PROPOSAL * (num_stored + envelope.num_kinds)
    for rows in row_blocks(dst.size(0), bytes_per_row, pairs.memory):
        first = (pairs.first + rows.start) * num_races
        count = (rows.stop - rows.start) * num_races
        block = RaceBlock(
            pairs,
            options,
            proposal_rates(pairs, envelope, rows),
            rows.start,
            race_states(seed, first, count),
            Arrivals(source[rows], noise[rows], horizon[rows]),
            torch.zeros(count, dtype=torch.long, device=dst.device),
            dst.new_zeros(count),
            num_races,
            length,
            least or options.num_arrivals,
            kernel,
        )
        block.run()
        if tail is not None:
            draw = tail_native if kernel is race_native else RaceBlock.tail
            drawn = draw(block, race_states(tail_seed, first, count))
            tail[0][rows], tail[1][rows] = (x.view(-1, *shape[1:]) for x in drawn)
    for shift in range(1, source.size(-1)):  # Repeated sources do not arrive again.
        is_repeat = source[..., shift:] == source[..., :-shift]
        noise[..., shift:].masked_fill_(is_repeat, -torch.inf)
    arrivals = Arrivals(source, noise, horizon)
    if tail is None:
        return arrivals, draw_tail(pairs, options, generator=generator)
    return arrivals, Tail(tail[0].flatten(1), tail[1], group=1)
