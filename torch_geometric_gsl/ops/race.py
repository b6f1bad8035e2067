r"""The Gumbel race by thinning: first arrivals without a look at all pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_value
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.noise import (
    below,
    draw_seed,
    random_words,
    states,
    uniform,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals, DrawOptions
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    disable_compile,
    has_triton,
    maybe_compile,
    row_blocks,
)

# What one proposal takes in a block of rows, in bytes.
_BYTES_PER_PROPOSAL = 64


def num_proposals(num_arrivals: int, spread: float, *, replace: bool = True) -> float:
    r"""Return the number of proposals :math:`P` of each race.

    .. math::
        P = \max \left( M + 2 \sqrt{M}, 8 \right) e^{\Delta}

    where :math:`\Delta` denotes the range of the scores: a proposal is accepted with a
    probability of at least :math:`e^{-\Delta}`, so that a race sees no arrival with a
    probability below :math:`e^{-8}`. Without replacement all :math:`k = M` neighbours
    must be found, and :math:`P = (2 k + 6 \sqrt{k} + 12) e^{\Delta}`.

    Args:
        num_arrivals (int): The number of arrivals :math:`M`.
        spread (float): The range :math:`\Delta` of the scores.
        replace (bool, optional): Draws with replacement. (default: :obj:`True`)
    """
    m = num_arrivals
    needed = max(8, m + 2 * math.sqrt(m))
    if not replace:
        needed = 2 * m + 6 * math.sqrt(m) + 12
    # Beyond, the exponential function overflows; no race is that long.
    return math.ceil(needed * math.exp(spread)) if spread < 40 else math.inf


@disable_compile
@torch.no_grad()
def race_arrivals(
    pairs: PairScores,
    options: DrawOptions,
    proposals: int,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Arrivals:
    r"""Find the first arrivals of each race, without gradient, by thinning.

    A Poisson process makes proposals at the times :math:`\Gamma_1 < \Gamma_2 < \dots`,
    cumulative sums of :math:`\mathrm{Exp}(1) / (N e^{s_{\max}})`. Each is a uniform
    candidate :math:`j`, accepted with probability :math:`e^{s_{ij} - s_{\max}}`. The
    first acceptance of :math:`j` is its arrival :math:`T_{ij}`; later ones are dropped.
    With :math:`P` proposals all arrivals before :math:`\Gamma_P` are known, at a cost
    that does not depend on :math:`N`. Should a race accept none, its last proposal
    counts as accepted. What the Triton kernel computes on a GPU is the same.

    The noise is a function of (seed, target, draw, proposal), so one seed gives one
    graph whatever the memory budget.

    Args:
        pairs (PairScores): The scores.
        options (DrawOptions): How neighbours are drawn.
        proposals (int): The number of proposals :math:`P`.
        generator (torch.Generator, optional): The generator. (default: :obj:`None`)
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)
    """
    device = pairs.dst.device
    seed = draw_seed(device, generator)
    is_float = pairs.dst.dtype == torch.float32
    is_known = pairs.response.formula is not None
    if is_known and is_float and options.replace and has_triton(device):
        from torch_geometric_gsl.ops._triton.race_kernel import race_kernel

        return race_kernel(pairs, options, proposals, seed)
    num_races = options.num_races
    noise = pairs.dst.new_empty(pairs.dst.size(0), num_races, options.num_arrivals)
    source = torch.empty_like(noise, dtype=torch.long)
    horizon = noise.new_empty(noise.shape[:2])
    bytes_per_row = _BYTES_PER_PROPOSAL * num_races * proposals
    for rows in row_blocks(noise.size(0), bytes_per_row, memory_budget):
        found = _race_rows(pairs, options, proposals, seed, rows, memory_budget)
        source[rows], noise[rows], horizon[rows] = found
    return Arrivals(source, noise, horizon)


def propose(
    row: Tensor, column: Tensor, size: Tensor | int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Draw each proposal's candidate, acceptance level and waiting time.

    Each takes two random words.

    Args:
        row (torch.Tensor): Random states of the rows :math:`[n]`.
        column (torch.Tensor): Random states of the columns :math:`[2 q]`.
        size (torch.Tensor or int): The number of candidates, or those of each row
            :math:`[n, 1]`.
        dtype (torch.dtype): The type of the numbers.

    Returns:
        tuple[torch.Tensor, torch.Tensor, torch.Tensor]: The proposed candidate, the
        uniform number that decides on it, and the time since the proposal before it in
        units of the mean, :math:`[n, q]` each.
    """
    first, second = column.chunk(2)
    word = random_words(row.unsqueeze(1) + first)
    gap = uniform(random_words(row.unsqueeze(1) + second), dtype).log().neg()
    return below(word, size), uniform(word, dtype), gap


def _race_rows(
    pairs: PairScores,
    options: DrawOptions,
    proposals: int,
    seed: Tensor,
    rows: slice,
    memory_budget: int,
) -> Arrivals:
    """Run the races of a block of rows."""
    shape = (rows.stop - rows.start, options.num_races, proposals)
    width = options.num_races * proposals
    row, column = states(seed, rows, 2 * width)
    draw = maybe_compile(propose, shape[0] * width, seed.device)
    size, own = _places(pairs, rows)
    source, level, gap = draw(row, column, size, pairs.dst.dtype)
    if own is not None:
        source += source >= own.unsqueeze(1)
    if pairs.candidates is not None:
        source = pairs.candidates.at(rows, source)
    proposed = Neighbours(source, pairs.src.size(0), memory_budget=memory_budget)
    score = pairs.pairs(rows, proposed).view(shape)
    _check_bounds(pairs, score[..., : options.num_arrivals])
    accepted = level.view(shape) < (score - pairs.upper).exp_()
    source, time = source.view(shape), gap.view(shape).cumsum(-1)
    if not options.replace:
        accepted &= ~_is_accepted_before(source, accepted)
    found = _first(source, score, time, accepted, options.num_arrivals)
    # Times were counted in units of the mean gap between two proposals.
    if isinstance(size, int):
        unit = time.new_full((1, 1), math.log(size)) + pairs.upper
    else:
        unit = size.to(time.dtype).log() + pairs.upper
    return Arrivals(found.source, found.noise + unit.unsqueeze(2), found.horizon - unit)


def _places(pairs: PairScores, rows: slice) -> tuple[Tensor | int, Tensor | None]:
    """Return the number of candidates, and the place to step over among them."""
    size: Tensor | int = pairs.src.size(0)
    if pairs.candidates is not None:
        size = pairs.candidates.size[rows, None]
    if pairs.excluded is None:
        return size, None
    own = pairs.excluded[rows]
    if pairs.candidates is not None:
        own = own - pairs.candidates.start[rows]
    return size - 1, own


def _check_bounds(pairs: PairScores, score: Tensor) -> None:
    """Raise if a sample of scores lies beyond the bounds: no race would notice."""
    if score.numel() == 0:
        return
    eps = 64 * torch.finfo(score.dtype).eps
    lowest, highest = score.aminmax()
    above = highest > pairs.upper + eps * max(1.0, abs(pairs.upper))
    beneath = lowest < pairs.lower - eps * max(1.0, abs(pairs.lower))
    check_value(
        ~(above | beneath),
        "'similarity' must lie between its 'bounds'",
        got=lambda: (
            f'scores in [{float(lowest):.4g}, {float(highest):.4g}] '
            f'for [{pairs.lower:.4g}, {pairs.upper:.4g}]'
        ),
    )


def _is_accepted_before(source: Tensor, accepted: Tensor) -> Tensor:
    """Mark the proposals of a source that was accepted earlier in the race."""
    place = torch.arange(source.size(-1), device=source.device)
    key = torch.where(accepted, source, -1 - place)
    ordered, order = key.sort(dim=-1, stable=True)
    repeated = torch.zeros_like(accepted)
    repeated[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    return torch.zeros_like(accepted).scatter_(-1, order, repeated)


def _first(
    source: Tensor, score: Tensor, time: Tensor, accepted: Tensor, num_arrivals: int
) -> Arrivals:
    """Keep the first accepted proposals of each race, in their order."""
    last = source.size(-1) - 1
    is_short = source.size(-1) < 2**15  # Ranks count up to the number of proposals.
    rank = accepted.cumsum(-1, dtype=torch.int16 if is_short else torch.int32)
    # All places begin with the last proposal, which counts where none is accepted.
    found = rank[..., -1:].clamp(min=1)
    # Slot 0 collects rejections, the last slot the overflow; drop both.
    slot = rank.clamp_(min=1, max=num_arrivals + 1).mul_(accepted).long()
    place = torch.arange(last + 1, device=source.device).expand_as(source)
    chosen = place.new_full((*source.shape[:-1], num_arrivals + 2), last)
    chosen = chosen.scatter_(-1, slot, place)[..., 1:-1]
    source, score = source.gather(-1, chosen), score.gather(-1, chosen)
    log_time = time.gather(-1, chosen).log_()
    missing = torch.arange(num_arrivals, device=source.device) >= found
    missing |= _is_repeated(source)
    noise = (log_time + score).neg_().masked_fill_(missing, -torch.inf)
    is_full = found.squeeze(-1) >= num_arrivals
    horizon = torch.where(is_full, log_time[..., -1], time[..., -1].log())
    return Arrivals(source, noise, horizon)


def _is_repeated(source: Tensor) -> Tensor:
    """Mark repeated sources within a race."""
    repeated = torch.zeros_like(source, dtype=torch.bool)
    for shift in range(1, source.size(-1)):
        repeated[..., shift:] |= source[..., shift:] == source[..., :-shift]
    return repeated
