from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Law(NamedTuple):
    r"""How neighbours are drawn.

    Args:
        k (int): The number of draws :math:`K`.
        tau (float): The temperature :math:`\tau`.
        hard (bool, optional): One-hot draws with a relaxed gradient.
            (default: :obj:`False`)
        replace (bool, optional): If :obj:`False`, one race and its first :obj:`k`
            distinct arrivals. (default: :obj:`True`)
        num_arrivals (int, optional): The number of arrivals that are kept of each
            draw. (default: :obj:`16`)
    """

    k: int
    tau: float
    hard: bool = False
    replace: bool = True
    num_arrivals: int = 16


class Scorer(NamedTuple):
    r"""Scores of sources for targets, on demand.

    Args:
        rows (Callable): Maps a slice of targets to the scores of all sources,
            :math:`[|\mathrm{slice}|, N]`; :math:`-\infty` excludes a source.
        pairs (Callable): Maps indices of sources and of targets, of one shape, to
            scores of that shape.
        size (tuple[int, int]): The numbers of targets :math:`n` and sources
            :math:`N`.
        available (int): The number of sources that are not excluded, the same for
            each target.
        dtype (torch.dtype): The type of the scores.
        device (torch.device): The device of the scores.
    """

    rows: Callable[[slice], Tensor]
    pairs: Callable[[Tensor, Tensor], Tensor]
    size: tuple[int, int]
    available: int
    dtype: torch.dtype
    device: torch.device


def matrix_scorer(score: Tensor, *, loop: bool = True) -> Scorer:
    r"""Serves the scores of a matrix.

    Args:
        score (torch.Tensor): Scores :math:`[n, N]`.
        loop (bool, optional): If :obj:`False`, the diagonal is excluded.
            (default: :obj:`True`)
    """
    if not loop:
        score = exclude_loops(score, slice(0, score.size(0)))
    return Scorer(
        rows=lambda rows: score[rows],
        pairs=lambda source, target: score[target, source],
        size=(score.size(0), score.size(1)),
        available=score.size(1) - int(not loop),
        dtype=score.dtype,
        device=score.device,
    )


def exclude_loops(score: Tensor, rows: slice) -> Tensor:
    r"""Sets the scores of the nodes :obj:`rows` for themselves to :math:`-\infty`."""
    target = torch.arange(rows.start, rows.stop, device=score.device).unsqueeze(1)
    source = torch.arange(score.size(1), device=score.device)
    return score.masked_fill(target == source, -torch.inf)
