r"""Exact Gumbel top-k by blocks of rows: any score, O(n k) memory."""

from __future__ import annotations

import torch

from torch_geometric_gsl.ops.noise import arrival_times
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import Arrivals
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, disable_compile, row_blocks


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
    :math:`-\log T_{ij} = s_{ij} + g_{ij}`. The noise is drawn in the order (target,
    draw, source), so on a CPU one seed gives one graph whatever the memory budget.

    Args:
        pairs (PairScores): The scores.
        k (int): The number of races :math:`K` per target.
        num_arrivals (int): The number :math:`M` of arrivals to keep, at most
            :obj:`pairs.available`.
        generator (torch.Generator, optional): The generator. (default: :obj:`None`)
        memory_budget (int, optional): Bytes of a block. (default: :obj:`2**25`)
    """
    dst, num_columns = pairs.dst, pairs.src.size(0)
    noise = dst.new_empty(dst.size(0), k, num_arrivals)
    source = torch.empty_like(noise, dtype=torch.long)
    horizon = noise.new_empty(noise.shape[:2])
    bytes_per_row = 2 * (k + 1) * num_columns * noise.element_size()
    for rows in row_blocks(dst.size(0), bytes_per_row, memory_budget):
        score = pairs.rows(rows).unsqueeze(1)
        time = arrival_times(
            (score.size(0), k, num_columns),
            dtype=score.dtype,
            device=score.device,
            generator=generator,
        )
        # In logarithms, so that no scale overflows: the earliest has the largest.
        gumbel = time.log_().neg_()
        value, found = (gumbel + score).topk(num_arrivals, dim=-1)
        source[rows], noise[rows] = found, gumbel.gather(-1, found)
        horizon[rows] = -value[..., -1]
    return Arrivals(source, noise, horizon)
