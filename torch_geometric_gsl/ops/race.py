r"""The Gumbel race by thinning: first arrivals without scoring all pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl.ops import scan
from torch_geometric_gsl.ops._native.compiled import (
    find_library,
    has_formula,
    run_kernel,
)
from torch_geometric_gsl.ops.envelope import Envelope, proposal_rates
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


def worst_case_proposals(
    num_arrivals: int, spread: float, *, replace: bool = True
) -> float:
    r"""Return the number of proposals :math:`P_0` that a race needs at most.

    .. math::
        P_0 = \max \left( M + 2 \sqrt{M}, 8 \right) e^{\Delta}

    where :math:`\Delta` is the range of the scores: a proposal is accepted with a
    probability of at least :math:`e^{-\Delta}`, so that a race sees no arrival with a
    probability below :math:`e^{-8}`. Without replacement all :math:`k = M` neighbours
    must be found, and :math:`P_0 = (2 k + 6 \sqrt{k} + 12) e^{\Delta}`.
    """
    m = num_arrivals
    needed = max(8, m + 2 * math.sqrt(m))
    if not replace:
        needed = 2 * m + 6 * math.sqrt(m) + 12
    # Beyond, the exponential function overflows; no race is that long.
    return math.ceil(needed * math.exp(spread)) if spread < 40 else math.inf


def has_kernel(pairs: PairScores) -> bool:
    """Return whether a kernel has the formula of these rows, and their type."""
    return has_formula(pairs) and pairs.src.size(0) < 2**31


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
    num_proposals: int,
    envelope: Envelope | None = None,
    *,
    min_arrivals: int | None = None,
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

    The first round has :obj:`num_proposals`. Without an envelope all bounds are
    :obj:`pairs.upper`; :obj:`min_arrivals` are enough, or all :math:`M` by default.

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
    # A kernel stores none.
    num_stored = 0 if kernel is not None else num_races * num_proposals
    if tail is not None:
        num_stored = max(num_stored, num_races * options.num_tail)
    bytes_per_row = BYTES_PER_PROPOSAL * (num_stored + envelope.num_bounds)
    for rows in row_blocks(dst.size(0), bytes_per_row, pairs.memory):
        first_race = (pairs.first_target + rows.start) * num_races
        count = (rows.stop - rows.start) * num_races
        block = RaceBlock(
            pairs,
            options,
            proposal_rates(pairs, envelope, rows),
            rows.start,
            race_states(seed, first_race, count),
            Arrivals(source[rows], noise[rows], horizon[rows]),
            torch.zeros(count, dtype=torch.long, device=dst.device),
            dst.new_zeros(count),
            num_proposals,
            min_arrivals or options.num_arrivals,
            kernel,
        )
        block.run()
        if tail is not None:
            draw = tail_native if kernel is race_native else RaceBlock.tail
            late, share = draw(block, race_states(tail_seed, first_race, count))
            tail[0][rows] = late.view(-1, *shape[1:])
            tail[1][rows] = share.view(-1, *shape[1:])
    for shift in range(1, source.size(-1)):  # Repeated sources do not arrive again.
        is_repeat = source[..., shift:] == source[..., :-shift]
        noise[..., shift:].masked_fill_(is_repeat, -torch.inf)
    arrivals = Arrivals(source, noise, horizon)
    if tail is None:
        return arrivals, draw_tail(pairs, options, generator=generator)
    return arrivals, Tail(tail[0].flatten(1), tail[1], group=1)


@torch.no_grad()
def race_native(block: RaceBlock) -> Tensor:
    """Run all rounds of a block of races in C++; return the range of the scores.

    The random words are those of :class:`RaceBlock`, so that both propose the same
    sources; where a score differs in its last bits, a proposal may be accepted by one
    and rejected by the other, once in about ten million.
    """
    return _run_native(
        'race',
        block,
        block.arrivals.source,
        block.arrivals.noise,
        block.options.num_arrivals,
        out_horizon=block.arrivals.horizon,
        out_accepted=block.num_accepted,
        out_clock=block.clock,
        num_proposals=block.num_proposals,
        min_arrivals=block.min_arrivals,
        is_distinct=not block.options.replace,
    )


def tail_native(block: RaceBlock, state: Tensor) -> tuple[Tensor, Tensor]:
    """Draw the sources of the tails of races in C++, and the logarithms of their shares
    of the candidates.
    """
    size = block.options.num_tail
    source = torch.empty(len(state), size, dtype=torch.long)
    share = block.pairs.dst.new_empty(len(state), size)
    # They are excluded where tails are scored.
    pairs = block.pairs._replace(excluded=None)
    block = block._replace(pairs=pairs, state=state)
    _run_native('tail', block, source, share, size)
    return source, share


def _run_native(
    function: str,
    block: RaceBlock,
    out_source: Tensor,
    out_noise: Tensor,
    num_arrivals: int,
    *,
    out_horizon: Tensor | None = None,
    out_accepted: Tensor | None = None,
    out_clock: Tensor | None = None,
    num_proposals: int = 0,
    min_arrivals: int = 0,
    is_distinct: bool = False,
) -> Tensor:
    """Run a function of the library for a block of races."""
    pairs = block.pairs
    rates = block.rates
    rows = slice(block.first_target, block.first_target + rates.sizes.size(0))
    if not (out_source.is_contiguous() and out_noise.is_contiguous()):
        raise ValueError("'outputs' must be contiguous: they are written in place")
    share, _, member, offset, head = rates.lookup or (None,) * 5
    start = listed = None
    if pairs.candidates is not None:
        start = pairs.candidates.start[rows].long()
        listed = pairs.candidates.source
    num_bounds = rates.bound.size(1)
    inputs = {
        'dst': pairs.dst[rows],
        'src': pairs.src,
        'excluded': None if pairs.excluded is None else pairs.excluded[rows].long(),
        'start': start,
        'listed': None if listed is None else listed.long(),
        'count': rates.sizes,
        'bound': rates.bound,
        'total': rates.total,
        'share': share,
        'head': head,
        'member': member,
        'offset': offset,
        'state': block.state,
    }
    return run_kernel(
        'race',
        function,
        pairs,
        rows,
        block.state.numel(),
        **{k: None if x is None else x.contiguous() for k, x in inputs.items()},
        out_source=out_source,
        out_noise=out_noise,
        out_horizon=out_horizon,
        out_accepted=out_accepted,
        out_clock=out_clock,
        channels=pairs.src.size(1),
        races_per_target=block.state.numel() // max(1, rates.sizes.numel()),
        num_proposals=num_proposals,
        min_arrivals=min_arrivals,
        num_arrivals=num_arrivals,
        num_bounds=num_bounds,
        num_clusters=num_bounds - (0 if head is None else head.size(1)),
        scan_factor=scan.SCAN_FACTOR,
        is_distinct=is_distinct,
    ).to(pairs.dst.dtype)
