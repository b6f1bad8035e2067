r"""Exact Gumbel top-k by blocks of rows: any score, O(n k) memory."""

from __future__ import annotations

import torch

from torch_geometric_gsl.ops.noise import draw_seed, race_states
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, disable_compile
from torch_geometric_gsl.ops.scan import scan_arrivals


@disable_compile
@torch.no_grad()
def stream_arrivals(
    pairs: PairScores,
    k: int,
    num_arrivals: int,
    *,
    generator: torch.Generator | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Arrivals:
    r"""Find the largest perturbed scores of each draw, without gradient.

    They are the first arrivals of :mod:`~torch_geometric_gsl.ops.relax`:
    :math:`-\log T_{ij} = s_{ij} + g_{ij}`. The scores of all candidates of a target
    are computed once for all its draws, and what arrives first is drawn from their
    exact rates, without noise for each pair. The noise is a function of (seed, target,
    draw, place), so one seed gives one graph whatever the memory budget.

    Args:
        pairs (PairScores): The scores.
        k (int): The number of races :math:`K` per target.
        num_arrivals (int): The number :math:`M` of arrivals to keep, at most
            :obj:`pairs.available`.
        generator (torch.Generator, optional): The generator. (default: :obj:`None`)
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)
    """
    num_targets = pairs.dst.size(0)
    seed = draw_seed(pairs.dst.device, generator)
    state = race_states(seed, pairs.first * k, num_targets * k).view(num_targets, k)
    found = scan_arrivals(pairs, state, num_arrivals, memory_budget=memory_budget)
    return Arrivals(found.source, found.noise, found.log_time[..., -1])
