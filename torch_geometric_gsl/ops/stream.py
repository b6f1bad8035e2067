r"""Exact Gumbel top-k by blocks of rows: any score, O(n k) memory."""

from __future__ import annotations

import torch

from torch_geometric_gsl.ops.arrivals import Arrivals
from torch_geometric_gsl.ops.chunking import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.draws import draw_tail, drawn_graph, neighbour_graph
from torch_geometric_gsl.ops.eager import eager
from torch_geometric_gsl.ops.gumbel import arrival_times
from torch_geometric_gsl.ops.knn import top_k
from torch_geometric_gsl.ops.pairs import Neighbours
from torch_geometric_gsl.ops.relaxed import expected_weights
from torch_geometric_gsl.ops.scorer import Law, Scorer
from torch_geometric_gsl.typing import SampledGraph


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
        Arrivals: The first arrivals, without gradient.
    """
    num_rows, num_columns = scorer.size
    shape = (num_rows, k, num_arrivals)
    noise = torch.empty(shape, dtype=scorer.dtype, device=scorer.device)
    source = torch.empty_like(noise, dtype=torch.long)
    horizon = noise.new_empty(shape[:2])
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
        value, found = (gumbel + score).topk(num_arrivals, dim=-1)
        source[rows], noise[rows] = found, gumbel.gather(-1, found)
        horizon[rows] = -value[..., -1]
    return Arrivals(source, noise, horizon)


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
    kept = min(law.kept, scorer.available)
    arrivals = first_arrivals(
        scorer, law.draws, kept, generator=generator, memory_budget=memory_budget
    )
    tail = draw_tail(scorer, law, generator=generator)
    return drawn_graph(scorer, arrivals, tail, law, memory_budget)


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
    neighbours = Neighbours(source, scorer.size[1], memory_budget=memory_budget)
    score = scorer.pairs(slice(None), neighbours)
    return neighbour_graph(source, expected_weights(score, tau))
