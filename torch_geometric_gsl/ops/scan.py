r"""The end of slow races: a look at all candidates that have not arrived."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.noise import STEP, random_words, uniform
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks


@torch.no_grad()
def scan_arrivals(
    pairs: PairScores,
    state: Tensor,
    num_words: int,
    horizon: Tensor,
    arrived: Tensor,
    num_arrivals: int,
    *,
    memory_budget: int = MEMORY_BUDGET,
) -> tuple[Tensor, Tensor]:
    r"""Find the next arrivals of races after a time until which all are known.

    By memorylessness what has not arrived by then arrives at :math:`\Gamma_i +
    \mathrm{Exp}(e^{s_{ij}})`.

    Args:
        pairs (PairScores): The scores, a target for each race.
        state (torch.Tensor): The random state of each race :math:`[n]`.
        num_words (int): The number of random words that each has drawn.
        horizon (torch.Tensor): The logarithm of that time :math:`[n]`.
        arrived (torch.Tensor): The sources that have arrived :math:`[n, M]`;
            :obj:`-1` for none.
        num_arrivals (int): How many arrivals to find.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)

    Returns:
        tuple[torch.Tensor, torch.Tensor]: Sources in the order of their arrival and
        the logarithms of their times, :math:`[n, \mathrm{num\_arrivals}]` each;
        :math:`\infty` where fewer are left.
    """
    num_races, most = state.size(0), pairs.most
    source = arrived.new_zeros(num_races, num_arrivals)
    log_time = horizon.new_full((num_races, num_arrivals), torch.inf)
    column = torch.arange(num_words + 1, num_words + most + 1, device=state.device)
    column *= STEP
    for rows in row_blocks(num_races, 48 * most, memory_budget):
        listed, score = _candidates(pairs, rows)
        # In double precision: the first of many times are small.
        level = uniform(random_words(state[rows].unsqueeze(1) + column), torch.double)
        wait = level.log_().neg_().log_().sub_(score)
        time = torch.logaddexp(wait, horizon[rows].double().unsqueeze(1))
        for place in arrived[rows].unbind(1):
            time.masked_fill_(listed == place.unsqueeze(1), torch.inf)
        found = min(num_arrivals, most)
        value, index = time.topk(found, dim=1, largest=False)
        log_time[rows, :found] = value.to(log_time.dtype)
        source[rows, :found] = listed.expand(time.shape).gather(1, index).clamp_(min=0)
    return source, log_time


def _candidates(pairs: PairScores, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the candidates of some targets and their scores, -inf for no candidate."""
    place = torch.arange(pairs.most, device=pairs.dst.device).unsqueeze(0)
    if pairs.candidates is None:
        return place, pairs.rows(rows)
    size = pairs.candidates.size[rows].unsqueeze(1)
    source = pairs.candidates.at(rows, torch.minimum(place, size - 1))
    score = pairs.pairs(rows, Neighbours(source, pairs.src.size(0)))
    is_none = place >= size
    if pairs.excluded is not None:
        is_none |= source == pairs.excluded[rows].unsqueeze(1)
    return source.masked_fill(is_none, -1), score.masked_fill(is_none, -torch.inf)
