r"""The Gumbel race by thinning: first arrivals without a look at all pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_value
from torch_geometric_gsl.ops.arrivals import Arrivals
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.compiled import fastest
from torch_geometric_gsl.ops.counter import (
    below,
    draw_seed,
    random_words,
    states,
    uniform,
)
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.fused import has_triton
from torch_geometric_gsl.ops.pairs import Neighbours
from torch_geometric_gsl.ops.scorer import Law, Scorer

# What one proposal takes in a block of rows, in bytes.
_BYTES_PER_PROPOSAL = 64


def num_proposals(law: Law, spread: float) -> float:
    r"""The number of proposals :math:`P` of each race.

    .. math::
        P = \max \left( M + 2 \sqrt{M}, 8 \right) e^{\Delta}

    where :math:`\Delta` denotes the range of the scores: a proposal is accepted with a
    probability of at least :math:`e^{-\Delta}`, so that a race sees no arrival with a
    probability below :math:`e^{-8}`. Without replacement all :math:`k` neighbours must
    be found, and :math:`P = (2 k + 6 \sqrt{k} + 12) e^{\Delta}`.

    Args:
        law (Law): How neighbours are drawn.
        spread (float): The range :math:`\Delta` of the scores.

    Example:
        >>> num_proposals(Law(k=5, tau=0.25, num_arrivals=4), spread=1.0)
        22
    """
    m = law.kept
    needed = max(8, m + 2 * math.sqrt(m))
    if not law.replace:
        needed = 2 * m + 6 * math.sqrt(m) + 12
    # Beyond, the exponential function overflows; no race is that long.
    return math.ceil(needed * math.exp(spread)) if spread < 100 else math.inf


@eager
@torch.no_grad()
def race_arrivals(
    scorer: Scorer,
    law: Law,
    proposals: int,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Arrivals:
    r"""Finds the first arrivals of each race by thinning a Poisson process.

    Proposals arrive at the times :math:`\Gamma_1 < \Gamma_2 < \dots`, cumulative sums
    of :math:`\mathrm{Exp}(1) / (N e^{s_{\max}})`. Each proposes a uniform candidate
    :math:`j` and is accepted with probability :math:`e^{s_{ij} - s_{\max}}`. The first
    acceptance of :math:`j` is its arrival :math:`T_{ij}`; later ones are dropped. With
    :math:`P` proposals all arrivals before :math:`\Gamma_P` are known, at a cost that
    does not depend on :math:`N`. Should a race accept none, its last proposal counts as
    accepted. What the Triton kernel computes on a GPU is the same.

    The noise is a function of (seed, target, draw, proposal), so one seed gives one
    graph whatever the memory budget.

    Args:
        scorer (Scorer): The scores.
        law (Law): How neighbours are drawn.
        proposals (int): The number of proposals :math:`P`.
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        Arrivals: The first arrivals, without gradient.
    """
    seed = draw_seed(scorer.device, generator)
    fused = scorer.fused
    is_float = scorer.dtype == torch.float32
    if fused is not None and is_float and law.replace and has_triton(scorer.device):
        from torch_geometric_gsl.ops._triton.race_kernel import race_kernel

        return race_kernel(scorer, fused, law, proposals, seed)
    shape = (scorer.size[0], law.draws, law.kept)
    source = torch.empty(shape, dtype=torch.long, device=scorer.device)
    noise = torch.empty(shape, dtype=scorer.dtype, device=scorer.device)
    horizon = noise.new_empty(shape[:2])
    bytes_per_row = _BYTES_PER_PROPOSAL * law.draws * proposals
    for rows in row_blocks(shape[0], bytes_per_row, memory_budget):
        found = _race_rows(scorer, law, proposals, seed, rows, memory_budget)
        source[rows], noise[rows], horizon[rows] = found
    return Arrivals(source, noise, horizon)


def propose(
    row: Tensor, column: Tensor, size: Tensor | int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Draws what each proposal needs, two random words each.

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
    scorer: Scorer,
    law: Law,
    proposals: int,
    seed: Tensor,
    rows: slice,
    memory_budget: int,
) -> Arrivals:
    shape = (rows.stop - rows.start, law.draws, proposals)
    width = law.draws * proposals
    row, column = states(seed, rows, 2 * width)
    draw = fastest(propose, shape[0] * width, scorer.device)
    sets = scorer.candidates
    size: Tensor | int = scorer.size[1] if sets is None else sets.size[rows, None]
    if scorer.excluded is not None:
        size = size - 1
    source, level, gap = draw(row, column, size, scorer.dtype)
    if scorer.excluded is not None:  # Step over it.
        own = scorer.excluded[rows] - (0 if sets is None else sets.start[rows])
        source += source >= own.unsqueeze(1)
    if sets is not None:
        source = sets.at(rows, source)
    neighbours = Neighbours(source, scorer.size[1], memory_budget=memory_budget)
    score = scorer.pairs(rows, neighbours)
    _check_bounds(score[:, : law.kept], scorer.lower, scorer.upper)
    accepted = level < (score - scorer.upper).exp_()
    source, accepted = source.view(shape), accepted.view(shape)
    if not law.replace:
        accepted &= ~_is_accepted_before(source, accepted)
    time = gap.view(shape).cumsum(-1)
    found = _first(source, score.view(shape), time, accepted, law.kept)
    # Times were counted in units of the mean gap between two proposals.
    if isinstance(size, int):
        log_size = time.new_full((1, 1), math.log(size))
    else:
        log_size = size.to(time.dtype).log()
    unit = log_size + scorer.upper
    return Arrivals(found.source, found.noise + unit.unsqueeze(2), found.horizon - unit)


def _check_bounds(score: Tensor, lower: float, upper: float) -> None:
    """Raises if some of the scores lie beyond, which no race would notice."""
    eps = 64 * torch.finfo(score.dtype).eps
    above = score > upper + eps * max(1.0, abs(upper))
    beneath = score < lower - eps * max(1.0, abs(lower))
    check_value(
        ~(above | beneath).any(),
        "'similarity' must lie between its 'bounds'",
        got=lambda: (
            f'scores in [{float(score.min()):.4g}, {float(score.max()):.4g}] '
            f'for [{lower:.4g}, {upper:.4g}]'
        ),
    )


def _is_accepted_before(source: Tensor, accepted: Tensor) -> Tensor:
    """Marks the proposals of a source that was accepted earlier in the race."""
    place = torch.arange(source.size(-1), device=source.device)
    key = torch.where(accepted, source, -1 - place)
    ordered, order = key.sort(dim=-1, stable=True)
    repeated = torch.zeros_like(accepted)
    repeated[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    return torch.zeros_like(accepted).scatter_(-1, order, repeated)


def _first(
    source: Tensor, score: Tensor, time: Tensor, accepted: Tensor, kept: int
) -> Arrivals:
    """Keeps the first accepted proposals of each race, in their order."""
    last = source.size(-1) - 1
    is_short = source.size(-1) < 2**15  # Ranks count up to the number of proposals.
    rank = accepted.cumsum(-1, dtype=torch.int16 if is_short else torch.int32)
    found = rank[..., -1:].clamp(min=1)
    accepted[..., -1:] |= rank[..., -1:] == 0
    # Rejected proposals meet in place 0, late ones in the last; both are cut off.
    slot = rank.clamp_(min=1, max=kept + 1).mul_(accepted).long()
    place = torch.arange(last + 1, device=source.device).expand_as(source)
    chosen = place.new_full((*source.shape[:-1], kept + 2), last)
    chosen = chosen.scatter_(-1, slot, place)[..., 1:-1]
    source, score = source.gather(-1, chosen), score.gather(-1, chosen)
    log_time = time.gather(-1, chosen).log_()
    missing = torch.arange(kept, device=source.device) >= found
    missing |= _is_repeated(source)
    noise = (log_time + score).neg_().masked_fill_(missing, -torch.inf)
    is_full = found.squeeze(-1) >= kept
    horizon = torch.where(is_full, log_time[..., -1], time[..., -1].log())
    return Arrivals(source, noise, horizon)


def _is_repeated(source: Tensor) -> Tensor:
    """Marks the sources that stand earlier in their race, too."""
    repeated = torch.zeros_like(source, dtype=torch.bool)
    for shift in range(1, source.size(-1)):
        repeated[..., shift:] |= source[..., shift:] == source[..., :-shift]
    return repeated
