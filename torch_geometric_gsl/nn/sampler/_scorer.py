"""The scores of two sets of nodes, on demand."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.nn.similarity.base import EncodedPair, Similarity
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer, exclude, ungroup


class Request(NamedTuple):
    """The options of the sampler that decide how a call is served."""

    similarity: Similarity
    law: Law
    scale: float
    loop: bool
    method: str
    memory_budget: int
    is_noisy: bool = True
    max_eval_pairs: float = math.inf

    @property
    def max_pairs(self) -> int:
        """The number of listed pairs whose draws fit into the memory budget."""
        # A listed pair takes about eight numbers of eight bytes a draw.
        return max(1, self.memory_budget // (64 * self.law.k))


def make_scorer(
    request: Request,
    pair: EncodedPair,
    excluded: Tensor | None,
    candidates: Candidates | None = None,
) -> Scorer:
    similarity, scale = request.similarity, request.scale

    def rows(block: slice) -> Tensor:
        own = None if excluded is None else excluded[block]
        return exclude(scale * similarity.score_rows(pair, block), own)

    def respond(block: slice, value: Tensor) -> Tensor:
        return scale * similarity.respond_rows(pair, block, value)

    def split(sizes: list[int]) -> list[Scorer]:
        pieces = _split(pair, excluded, sizes)
        return [make_scorer(request, part, own) for part, own in pieces]

    return Scorer(
        rows=rows,
        compare=partial(similarity.compare_neighbours, pair),
        respond=respond,
        select=partial(_selected_scorer, request, pair, excluded),
        split=split,
        size=(pair.dst.size(0), pair.src.size(0)),
        dtype=pair.src.dtype,
        device=pair.src.device,
        upper=scale * similarity.bounds[1],
        lower=scale * similarity.bounds[0],
        excluded=excluded,
        candidates=candidates,
        fused=similarity.fused_score(pair, scale),
    )


def _selected_scorer(
    request: Request,
    pair: EncodedPair,
    excluded: Tensor | None,
    source: Tensor,
    group: int = 1,
) -> Scorer:
    """Scores of some sources for each group of targets: they are gathered once."""
    chosen = pair._replace(src=pair.src[source])
    scorer = make_scorer(request, chosen, excluded)
    if source.dim() == 1:
        return make_scorer(request, chosen, _places(excluded, source, pair.src.size(0)))

    def scores(part: EncodedPair, own: Tensor | None, source: Tensor) -> Tensor:
        value = request.similarity.compare_groups(part, group)
        rows = slice(0, part.dst.size(0))
        score = request.scale * request.similarity.respond_rows(part, rows, value)
        if own is None:
            return score
        return exclude(score, own, ungroup(source, group, score.size(0)))

    def split(sizes: list[int]) -> list[Scorer]:
        groups = [-(-size // group) for size in sizes]
        sources = zip(chosen.src.split(groups), source.split(groups), strict=True)
        pieces = zip(_split(chosen, excluded, sizes), sources, strict=True)
        return [
            scorer._replace(
                rows=_rows(scores, part._replace(src=src), own, index),
                respond=make_scorer(request, part, own).respond,
                size=(part.dst.size(0), index.size(1)),
                excluded=own,
            )
            for (part, own), (src, index) in pieces
        ]

    return scorer._replace(
        rows=_rows(scores, chosen, excluded, source),
        split=split,
        size=(scorer.size[0], source.size(1)),
        fused=None,
    )


def _places(excluded: Tensor | None, source: Tensor, num_sources: int) -> Tensor | None:
    """Where excluded sources stand among some distinct ones; -1 for nowhere."""
    if excluded is None:
        return None
    place = excluded.new_full((num_sources,), -1)
    place[source] = torch.arange(source.size(0), device=source.device)
    return place[excluded]


def _rows(
    scores: Callable[..., Tensor], *args: Tensor | EncodedPair | None
) -> Callable[[slice], Tensor]:
    return lambda block: scores(*args)[block]


def _split(
    pair: EncodedPair, excluded: Tensor | None, sizes: list[int]
) -> list[tuple[EncodedPair, Tensor | None]]:
    dst, *params = (part.split(sizes) for part in (pair.dst, *pair.params))
    own = [None] * len(sizes) if excluded is None else excluded.split(sizes)
    return [
        (EncodedPair(pair.src, part, tuple(param[i] for param in params)), own[i])
        for i, part in enumerate(dst)
    ]
