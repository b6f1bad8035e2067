r"""Graphs and sums of drawn neighbours: the arrivals and the tail of each target."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.utils import coalesce

from torch_geometric_gsl.ops.arrivals import (
    Arrivals,
    Tail,
    group_size,
    relax,
    spread_sources,
    tail_size,
)
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET
from torch_geometric_gsl.ops.counter import below, draw_seed, random_words, states
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.pairs import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.precision import full_precision
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer, ungroup
from torch_geometric_gsl.typing import SampledGraph


def num_tail(scorer: Scorer, law: Law) -> int:
    r"""The number of sources :math:`S` that stand for the tail of each draw.

    It is :func:`~torch_geometric_gsl.ops.arrivals.tail_size` of the target with the
    most candidates, one number for all targets, and zero where nothing arrives later.

    Args:
        scorer (Scorer): The scores.
        law (Law): How neighbours are drawn.
    """
    if law.kept >= scorer.available:
        return 0
    return tail_size(law, scorer.most, is_ragged=scorer.candidates is not None)


@eager
def draw_tail(
    scorer: Scorer, law: Law, *, generator: torch.Generator | None = None
) -> Tail | None:
    r"""Draws the sources that stand for the later arrivals.

    For each draw one source is drawn from each of :math:`S` equal parts of the
    candidates. Small groups of targets share them, unless each has candidates of its
    own.

    Args:
        scorer (Scorer): The scores.
        law (Law): How neighbours are drawn.
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)

    Returns:
        Tail or None: :obj:`None` where nothing arrives later.
    """
    num_sources, sets = scorer.size[1], scorer.candidates
    size = num_tail(scorer, law)
    if size == 0:
        return None
    if sets is not None:
        return _own_tail(sets, size, scorer, law, generator)
    group = group_size(size, law.k)
    groups = -(-scorer.size[0] // group)
    source = spread_sources(
        num_sources, size, scorer.device, generator, groups * law.k
    ).view(groups, law.k * size)
    share = torch.full(
        (), math.log(num_sources / size), dtype=scorer.dtype, device=scorer.device
    )
    return Tail(source, share, group)


def _own_tail(
    sets: Candidates,
    size: int,
    scorer: Scorer,
    law: Law,
    generator: torch.Generator | None,
) -> Tail:
    seed, rows = draw_seed(scorer.device, generator), slice(0, scorer.size[0])
    row, column = states(seed, rows, law.k * size)
    part = below(random_words(row.unsqueeze(1) + column), 2**31).double() / 2**31
    part += torch.arange(size, device=scorer.device).repeat(law.k)
    width = sets.size.double().unsqueeze(1) / size
    place = torch.minimum((part * width).long(), sets.size.unsqueeze(1) - 1)
    share = width.log().to(scorer.dtype).unsqueeze(-1)
    return Tail(sets.at(rows, place), share, group=1)


def drawn_graph(
    scorer: Scorer,
    arrivals: Arrivals,
    tail: Tail | None,
    law: Law,
    memory_budget: int = MEMORY_BUDGET,
) -> SampledGraph:
    r"""The graph of the arrivals and of the tail.

    The scores of these pairs alone are computed again, with gradient.

    Args:
        scorer (Scorer): The scores.
        arrivals (Arrivals): The first arrivals of each target.
        tail (Tail or None): The sources that stand for the later ones.
        law (Law): How neighbours are drawn.
        memory_budget (int, optional): Bytes for one block of gathered rows.
            (default: :obj:`2**25`)
    """
    every = slice(0, scorer.size[0])
    source = arrivals.source.flatten(1)
    neighbours = Neighbours(source, scorer.size[1], memory_budget=memory_budget)
    score = scorer.pairs(every, neighbours).view_as(arrivals.source)
    listed = arrivals.noise.flatten(1) > -torch.inf
    if tail is None:
        weight, _ = relax(score, arrivals, law)
        return neighbour_graph(source, weight.flatten(1), listed)
    if scorer.candidates is None:
        late_score = scorer.select(tail.source, tail.group).rows(every)
    else:
        late_score = _own_tail_score(scorer, tail, memory_budget)
    late_score = late_score.unflatten(1, (law.k, -1))
    weight, late = relax(score, arrivals, law, late_score, tail.log_share)
    also = ungroup(tail.source, tail.group, source.size(0))
    is_candidate = torch.ones_like(also, dtype=torch.bool)
    if scorer.excluded is not None:
        is_candidate = also != scorer.excluded.unsqueeze(1)
    return neighbour_graph(
        torch.cat([source, also], dim=1),
        torch.cat([weight.flatten(1), late.flatten(1)], dim=1),
        torch.cat([listed, is_candidate], dim=1),
    )


def drawn_sum(
    h: Tensor,
    scorer: Scorer,
    arrivals: Arrivals,
    tail: Tail | None,
    law: Law,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Sums the messages over the graph of :func:`drawn_graph`, without its edges.

    Args:
        h (torch.Tensor): Messages of the sources :math:`[N, m]`.
        scorer (Scorer): The scores.
        arrivals (Arrivals): The first arrivals of each target.
        tail (Tail or None): The sources that stand for the later ones.
        law (Law): How neighbours are drawn.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    if scorer.size[0] == 0:
        return h.new_zeros(0, h.size(1))
    full = full_precision(h)
    source = arrivals.source.flatten(1)
    neighbours = Neighbours(source, scorer.size[1], memory_budget=memory_budget)
    value = scorer.compare(slice(0, scorer.size[0]), neighbours)
    # What stands for later arrivals is gathered once for all blocks.
    if tail is None:
        group, late, late_h = 1, scorer, full.new_empty(scorer.size[0], 0, full.size(1))
    else:
        group, late_h = tail.group, full[tail.source]
        late = scorer.select(tail.source, group)

    def block(
        value: Tensor, late_h: Tensor, own: Scorer, drawn: Arrivals
    ) -> tuple[Tensor, Tensor]:
        rows = slice(0, own.size[0])
        score = own.respond(rows, value).view_as(drawn.source)
        late_score, share = None, None
        if tail is not None:
            late_score, share = own.rows(rows).unflatten(1, (law.k, -1)), tail.log_share
        weight, late = relax(score, drawn, law, late_score, share)
        return weight.flatten(1).to(late_h), _group_sum(late.flatten(1), late_h, group)

    bytes_per_row = 8 * (value.size(1) + late_h.size(1)) * value.element_size()
    budget = max(memory_budget, group * bytes_per_row)
    # Blocks hold whole groups.
    step = budget // (group * bytes_per_row) * group
    sizes = [len(part) for part in torch.arange(value.size(0)).split(step)]
    groups = [-(-size // group) for size in sizes]
    run = block
    if len(sizes) > 1 and torch.is_grad_enabled():
        # What a block computes it computes again in the backward pass.
        run = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False)
    drawn = map(Arrivals, *(part.split(sizes) for part in arrivals))
    pieces = zip(
        value.split(sizes), late_h.split(groups), late.split(sizes), drawn, strict=True
    )
    parts = [run(*piece) for piece in pieces]
    weight, late_sum = (torch.cat(part) for part in zip(*parts, strict=True))
    return (neighbour_sum(full, weight, neighbours) + late_sum).to(h.dtype)


def _group_sum(weight: Tensor, h: Tensor, group: int) -> Tensor:
    """Weighted sums [n, m] of the sources [B, S, m] of each group of targets."""
    missing = h.size(0) * group - weight.size(0)
    grouped = F.pad(weight.to(h), (0, 0, 0, missing)).unflatten(0, (-1, group))
    total: Tensor = (grouped @ h).flatten(0, 1)
    return total[: weight.size(0)]


def _own_tail_score(scorer: Scorer, tail: Tail, memory_budget: int) -> Tensor:
    """Scores of the tail where each target has its own."""
    every = slice(0, scorer.size[0])
    neighbours = Neighbours(tail.source, scorer.size[1], memory_budget=memory_budget)
    score = scorer.pairs(every, neighbours)
    if scorer.excluded is None:
        return score
    own = tail.source == scorer.excluded.unsqueeze(1)
    return score.masked_fill(own, -torch.inf)


def neighbour_graph(
    source: Tensor, weight: Tensor, listed: Tensor | None = None
) -> SampledGraph:
    r"""Lists the sources of each target as edges; weights of equal edges add up.

    Args:
        source (torch.Tensor): Sources :math:`[n, q]`.
        weight (torch.Tensor): Weights :math:`[n, q]`.
        listed (torch.Tensor, optional): Which of them are edges.
            (default: :obj:`None`)

    Example:
        >>> neighbour_graph(torch.tensor([[1, 1]]), torch.tensor([[0.5, 0.5]]))
        SampledGraph(edge_index=tensor([[1],
                [0]]), edge_weight=tensor([1.]))
    """
    target = torch.arange(source.size(0), device=source.device)
    edges = torch.stack([source, target.unsqueeze(1).expand_as(source)])
    if listed is not None:
        edges, weight = edges[:, listed], weight[listed]
    return SampledGraph(
        *coalesce(edges.flatten(1), weight.flatten(), sort_by_row=False)
    )
