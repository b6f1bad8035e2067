r"""Exact Gumbel top-k by blocks of rows: any score, O(n k) memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce

from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.gumbel import arrival_times, straight_through
from torch_geometric_gsl.ops.knn import top_k
from torch_geometric_gsl.ops.relaxed import expected_weights
from torch_geometric_gsl.ops.scorer import Law, Scorer
from torch_geometric_gsl.typing import SampledGraph


class Arrivals(NamedTuple):
    r"""The first :math:`M` arrivals of each of :math:`K` races per target.

    Args:
        source (torch.Tensor): Sources :math:`[n, K, M]` in the order of arrival.
        noise (torch.Tensor): Their Gumbel noise :math:`[n, K, M]`.
    """

    source: Tensor
    noise: Tensor


@eager
@torch.no_grad()
def first_arrivals(
    scorer: Scorer,
    k: int,
    num_arrivals: int,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Arrivals:
    r"""Finds the :obj:`num_arrivals` largest perturbed scores of :obj:`k` draws.

    Each draw is a race: source :math:`j` reaches target :math:`i` at the time
    :math:`T_{ij} = E_{ij} e^{-s_{ij}}` with :math:`E_{ij} \sim \mathrm{Exp}(1)`, and
    :math:`-\log T_{ij} = s_{ij} + g_{ij}` is the Gumbel-perturbed score. The noise is
    drawn in the order (target, draw, source), so on a CPU one seed gives one graph
    whatever the memory budget.

    Args:
        scorer (Scorer): The scores.
        k (int): The number of races :math:`K` per target.
        num_arrivals (int): The number :math:`M` of arrivals to keep, at most
            :obj:`scorer.available`.
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        Arrivals: Sources and noise, without gradient.
    """
    num_rows, num_columns = scorer.size
    shape = (num_rows, k, num_arrivals)
    noise = torch.empty(shape, dtype=scorer.dtype, device=scorer.device)
    source = torch.empty_like(noise, dtype=torch.long)
    bytes_per_row = 2 * (k + 1) * num_columns * noise.element_size()
    for rows in row_blocks(num_rows, bytes_per_row, memory_budget):
        score = scorer.rows(rows).unsqueeze(1)
        time = arrival_times(
            (score.size(0), k, num_columns),
            dtype=scorer.dtype,
            device=scorer.device,
            generator=generator,
        )
        # In logarithms, so that no scale overflows: the earliest has the largest.
        gumbel = time.log_().neg_()
        found = (gumbel + score).topk(num_arrivals, dim=-1).indices
        source[rows], noise[rows] = found, gumbel.gather(-1, found)
    return Arrivals(source, noise)


def arrival_weights(
    score: Tensor, noise: Tensor, tau: float, *, hard: bool = False
) -> Tensor:
    r"""Relaxed weights among the arrivals of each race.

    .. math::
        w_{r} = \mathrm{softmax}_r \left( \frac{s_r + g_r}{\tau} \right)

    Args:
        score (torch.Tensor): Scores of the arrivals :math:`[*, M]`, with gradient.
        noise (torch.Tensor): Their Gumbel noise :math:`[*, M]`.
        tau (float): The temperature.
        hard (bool, optional): If :obj:`True`, the first arrival gets the whole
            weight in the forward pass, and the gradient is the relaxed one
            (straight-through). (default: :obj:`False`)
    """
    soft = torch.softmax((score + noise) / tau, dim=-1)
    if not hard:
        return soft
    one_hot = torch.zeros_like(soft)
    one_hot[..., 0] = 1
    return straight_through(one_hot, soft)


def stream_graph(
    scorer: Scorer,
    law: Law,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> SampledGraph:
    r"""Samples a graph of the first arrivals: two phases.

    The arrivals are found without gradient; then the scores of these pairs alone
    are computed again, with gradient.

    Args:
        scorer (Scorer): The scores.
        law (Law): How neighbours are drawn.
        generator (torch.Generator, optional): Source of randomness.
            (default: :obj:`None`)
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Example:
        >>> from torch_geometric_gsl.ops.scorer import matrix_scorer
        >>> graph = stream_graph(matrix_scorer(torch.eye(3)), Law(k=5, tau=0.25))
        >>> float(graph.edge_weight.sum())
        3.0
    """
    draws = law.k if law.replace else 1
    kept = min(law.num_arrivals if law.replace else law.k, scorer.available)
    source, noise = first_arrivals(
        scorer, draws, kept, generator=generator, memory_budget=memory_budget
    )
    target = torch.arange(scorer.size[0], device=source.device)
    target = target.view(-1, 1, 1).expand_as(source)
    score = scorer.pairs(source, target)
    weight = arrival_weights(score, noise, law.tau, hard=law.hard and law.replace)
    if law.hard and not law.replace:
        weight = straight_through(torch.full_like(weight, 1 / kept), weight)
    return _merge(source, target, weight / draws)


def nearest_graph(
    scorer: Scorer, k: int, tau: float, *, memory_budget: int = MEMORY_BUDGET
) -> SampledGraph:
    r"""The :obj:`k` largest scores of each target, with noise-free weights.

    Args:
        scorer (Scorer): The scores.
        k (int): The number of neighbours.
        tau (float): The temperature: weights are
            :math:`\mathrm{softmax}_j(s_{ij} / \tau)` among the neighbours.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    source = top_k(scorer, min(k, scorer.available), memory_budget=memory_budget)
    target = torch.arange(scorer.size[0], device=source.device)
    target = target.unsqueeze(1).expand_as(source)
    return _merge(source, target, expected_weights(scorer.pairs(source, target), tau))


def _merge(source: Tensor, target: Tensor, weight: Tensor) -> SampledGraph:
    edges = torch.stack([source.flatten(), target.flatten()])
    return SampledGraph(*coalesce(edges, weight.flatten(), sort_by_row=False))
