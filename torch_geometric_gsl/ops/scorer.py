from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.fused import FusedScore
from torch_geometric_gsl.ops.pairs import Neighbours


class Law(NamedTuple):
    r"""How neighbours are drawn.

    Args:
        k (int): The number of draws :math:`K`.
        tau (float): The temperature :math:`\tau`.
        hard (bool, optional): One-hot draws with a relaxed gradient.
            (default: :obj:`False`)
        replace (bool, optional): If :obj:`False`, one race and its first :obj:`k`
            distinct arrivals. (default: :obj:`True`)
        num_arrivals (int, optional): The number of arrivals :math:`M` that are kept of
            each draw. (default: :obj:`16`)
        num_tail (int, optional): The number of sources :math:`S` that stand for later
            arrivals; :obj:`0` leaves them out. By default enough of them.
            (default: :obj:`None`)
    """

    k: int
    tau: float
    hard: bool = False
    replace: bool = True
    num_arrivals: int = 16
    num_tail: int | None = None

    @property
    def draws(self) -> int:
        """The number of races per target."""
        return self.k if self.replace else 1

    @property
    def kept(self) -> int:
        """The number of arrivals to keep of each race."""
        return self.num_arrivals if self.replace else self.k


class Candidates(NamedTuple):
    r"""The candidates of each target: a range of sources, or of a list of them.

    Candidate :math:`p` of target :math:`i` is the source :obj:`start[i] + p`, or where
    there is a list :obj:`listed[start[i] + p]`: a graph of a batch or a row in CSR
    form.

    Args:
        start (torch.Tensor): The first candidate of each target :math:`[n]`.
        size (torch.Tensor): The number of candidates of each target :math:`[n]`.
        listed (torch.Tensor, optional): Sources. (default: :obj:`None`)
    """

    start: Tensor
    size: Tensor
    listed: Tensor | None = None

    @property
    def most(self) -> int:
        """The number of candidates of the target with the most."""
        return int(self.size.max()) if self.size.numel() else 0

    def at(self, rows: slice, place: Tensor) -> Tensor:
        r"""The sources at places :math:`[|\mathrm{rows}|, q]` of the targets."""
        index = self.start[rows].unsqueeze(1) + place
        return index if self.listed is None else self.listed[index]


class Scorer(NamedTuple):
    r"""Scores of sources for targets, on demand.

    Args:
        rows (Callable): Maps a slice of targets to the scores of all sources,
            :math:`[|\mathrm{slice}|, N]`; :math:`-\infty` excludes a source.
        compare (Callable): Maps a slice of targets and the sources
            :math:`[|\mathrm{slice}|, q]` that each of them lists to what is compared,
            of that shape.
        respond (Callable): Maps a slice of targets and such values to scores.
        select (Callable): Maps distinct sources :math:`[S]` to their scorer alone, or
            sources :math:`[B, S]` and a number of targets, where each group of so many
            targets has its own.
        split (Callable): Maps numbers of targets to one scorer for each block of so
            many targets.
        size (tuple[int, int]): The numbers of targets :math:`n` and sources
            :math:`N`.
        dtype (torch.dtype): The type of the scores.
        device (torch.device): The device of the scores.
        upper (float, optional): An upper bound of the scores.
            (default: :obj:`math.inf`)
        lower (float, optional): A lower bound of the scores.
            (default: :obj:`-math.inf`)
        excluded (torch.Tensor, optional): The source that is no candidate of each
            target :math:`[n]`: itself. (default: :obj:`None`)
        candidates (Candidates, optional): The candidates of each target; all sources
            if :obj:`None`. (default: :obj:`None`)
        fused (FusedScore, optional): The scores as a formula, where there is one.
            (default: :obj:`None`)
    """

    rows: Callable[[slice], Tensor]
    compare: Callable[[slice, Neighbours], Tensor]
    respond: Callable[[slice, Tensor], Tensor]
    select: Callable[..., Scorer]
    split: Callable[[list[int]], list[Scorer]]
    size: tuple[int, int]
    dtype: torch.dtype
    device: torch.device
    upper: float = math.inf
    lower: float = -math.inf
    excluded: Tensor | None = None
    candidates: Candidates | None = None
    fused: FusedScore | None = None

    def pairs(self, rows: slice, neighbours: Neighbours) -> Tensor:
        """Scores of the sources that the targets of a block list."""
        return self.respond(rows, self.compare(rows, neighbours))

    @property
    def available(self) -> int:
        """The number of sources that are not excluded, of the target with the most."""
        return self.most - int(self.excluded is not None)

    @property
    def most(self) -> int:
        """The number of candidates of the target with the most."""
        return self.size[1] if self.candidates is None else self.candidates.most


def matrix_scorer(score: Tensor, *, loop: bool = True) -> Scorer:
    r"""Serves the scores of a matrix.

    Args:
        score (torch.Tensor): Scores :math:`[n, N]`.
        loop (bool, optional): If :obj:`False`, the diagonal is excluded.
            (default: :obj:`True`)
    """
    excluded = None
    if not loop:
        excluded = torch.arange(score.size(0), device=score.device)
        score = exclude(score, excluded)
    every = torch.arange(score.size(0), device=score.device).unsqueeze(1)
    return Scorer(
        rows=lambda rows: score[rows],
        compare=lambda rows, neighbours: score[every[rows], neighbours.source],
        respond=lambda rows, value: value,
        select=lambda source, group=1: matrix_scorer(
            score[:, source]
            if source.dim() == 1
            else score.gather(1, ungroup(source, group, score.size(0)))
        ),
        split=lambda sizes: [
            own._replace(excluded=None if excluded is None else part)
            for own, part in zip(
                map(matrix_scorer, score.split(sizes)),
                every[:, 0].split(sizes),
                strict=True,
            )
        ],
        size=(score.size(0), score.size(1)),
        dtype=score.dtype,
        device=score.device,
        upper=float(score.detach().max()) if score.numel() else 0.0,
        excluded=excluded,
    )


def exclude(
    score: Tensor, excluded: Tensor | None, source: Tensor | None = None
) -> Tensor:
    r"""Sets the scores of excluded sources to :math:`-\infty`.

    Args:
        score (torch.Tensor): Scores :math:`[n, S]`.
        excluded (torch.Tensor or None): The excluded source of each target
            :math:`[n]`; nothing is excluded if :obj:`None`.
        source (torch.Tensor, optional): The source of each column, :math:`[S]` or
            :math:`[n, S]`; all in their order if :obj:`None`. (default: :obj:`None`)
    """
    if excluded is None:
        return score
    if source is None:
        source = torch.arange(score.size(-1), device=score.device)
    return score.masked_fill(source == excluded.unsqueeze(-1), -torch.inf)


def ungroup(x: Tensor, group: int, count: int) -> Tensor:
    r"""Repeats each row :obj:`group` times, and keeps :obj:`count` rows."""
    target = torch.arange(count, device=x.device)
    return x[torch.div(target, group, rounding_mode='floor')]
