"""What a sampler is asked for: checked once, in one form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_index,
    check_value,
)
from torch_geometric_gsl.nn.similarity.base import EncodedPair, Similarity
from torch_geometric_gsl.ops.candidates import batch_candidates, sort_candidates
from torch_geometric_gsl.ops.scorer import Law, Scorer, exclude_loops
from torch_geometric_gsl.typing import Batch, Features


class Block(NamedTuple):
    """All pairs of one graph: its scores and where its nodes begin."""

    scorer: Scorer
    first_source: int
    first_target: int


class Task(NamedTuple):
    """Candidates, either as blocks of pairs or as listed edges with scores."""

    blocks: list[Block]
    candidates: Tensor | None
    score: Tensor | None
    num_sources: int
    num_targets: int
    dtype: torch.dtype
    device: torch.device


def make_task(
    similarity: Similarity,
    x: Features,
    edge_index: Tensor | None,
    batch: Batch | None,
    *,
    law: Law,
    scale: float,
    loop: bool,
    max_pairs: int,
) -> Task:
    """Checks the input; small graphs of a batch become one list of pairs."""
    pair = similarity.encode_pair(x)
    is_pair = isinstance(x, tuple | list)
    has_loops = loop or is_pair
    ids = None if batch is None else _check_batches(batch, pair, is_pair)
    blocks: list[Block] = []
    candidates = None
    if edge_index is not None:
        candidates = _given_candidates(edge_index, pair, ids, has_loops)
        _check_degrees(candidates, pair.dst.size(0), law)
    else:
        sizes = _sizes(ids, pair)
        _check_sizes(sizes, law, has_loops, is_batch=ids is not None)
        if ids is not None and sum(a * b for a, b in sizes) <= max_pairs:
            candidates = batch_candidates(*ids, num_graphs=len(sizes))
        else:
            blocks = _blocks(similarity, pair, sizes, scale, has_loops)
    score = None
    if candidates is not None:
        score = scale * similarity.score_pairs(pair, candidates[0], candidates[1])
        if not has_loops:  # They keep their share of the noise, as in a block.
            score = score.masked_fill(candidates[0] == candidates[1], -torch.inf)
    return Task(
        blocks,
        candidates,
        score,
        pair.src.size(0),
        pair.dst.size(0),
        (x[0] if isinstance(x, tuple | list) else x).dtype,
        pair.src.device,
    )


def _given_candidates(
    edge_index: Tensor,
    pair: EncodedPair,
    ids: tuple[Tensor, Tensor] | None,
    has_loops: bool,
) -> Tensor:
    check_edge_index(edge_index, pair.src, pair.dst)
    if ids is not None:
        crosses = ids[0][edge_index[0]] != ids[1][edge_index[1]]
        check_value(
            ~crosses.any(),
            "'edge_index' joins two graphs of 'batch'",
            got=lambda: f'edge {edge_index[:, crosses][:, 0].tolist()}',
        )
    return sort_candidates(edge_index, loop=has_loops)


def _check_batches(
    batch: Batch, pair: EncodedPair, is_pair: bool
) -> tuple[Tensor, Tensor]:
    if not is_pair:
        check_batch(batch, pair.src)
        # Numbers without a gap: ids are names of graphs, not how many there are.
        _, number = torch.unique_consecutive(batch, return_inverse=True)
        return number, number
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise TypeError(
            "'batch' must be a pair (batch_src, batch_dst) where 'x' is a pair "
            f'(got {type(batch).__name__})'
        )
    check_batch(batch[0], pair.src, 'batch_src')
    check_batch(batch[1], pair.dst, 'batch_dst')
    _, number = torch.cat([batch[0], batch[1]]).unique(return_inverse=True)
    src, dst = number.split([batch[0].numel(), batch[1].numel()])
    return src, dst


def _sizes(
    ids: tuple[Tensor, Tensor] | None, pair: EncodedPair
) -> list[tuple[int, int]]:
    """The numbers of sources and targets of each graph."""
    if ids is None:
        return [(pair.src.size(0), pair.dst.size(0))]
    num_graphs = 1 + max((int(i[-1]) for i in ids if i.numel()), default=-1)
    counts = [torch.bincount(i, minlength=num_graphs).tolist() for i in ids]
    return list(zip(*counts, strict=True))


def _check_sizes(
    sizes: list[tuple[int, int]], law: Law, has_loops: bool, is_batch: bool
) -> None:
    for graph, (num_src, num_dst) in enumerate(sizes):
        if num_dst == 0:
            continue
        available = num_src - int(not has_loops)
        # With replacement a small graph of a batch repeats its neighbours.
        if not is_batch or not law.replace:
            where = f' of graph {graph}' if is_batch else ''
            check_candidate_count(law.k, available, where)


def _check_degrees(candidates: Tensor, num_targets: int, law: Law) -> None:
    if law.replace or num_targets == 0:
        return
    degree = torch.bincount(candidates[1], minlength=num_targets)
    check_value(
        degree.min() >= law.k,
        "'k' must not exceed the candidates of any target where 'replace' is False",
        got=lambda: (
            f'k={law.k}, but target {int(degree.argmin())} has {int(degree.min())}'
        ),
    )


def _blocks(
    similarity: Similarity,
    pair: EncodedPair,
    sizes: list[tuple[int, int]],
    scale: float,
    has_loops: bool,
) -> list[Block]:
    blocks, src, dst = [], 0, 0
    for num_src, num_dst in sizes:
        own = EncodedPair(
            pair.src[src : src + num_src],
            pair.dst[dst : dst + num_dst],
            tuple(param[dst : dst + num_dst] for param in pair.params),
        )
        if num_src - int(not has_loops) > 0 and num_dst > 0:
            scorer = _scorer(similarity, own, scale, has_loops)
            blocks.append(Block(scorer, src, dst))
        src, dst = src + num_src, dst + num_dst
    return blocks


def _scorer(
    similarity: Similarity, pair: EncodedPair, scale: float, has_loops: bool
) -> Scorer:
    def rows(block: slice) -> Tensor:
        score = scale * similarity.score_rows(pair, block)
        return score if has_loops else exclude_loops(score, block)

    def pairs(source: Tensor, target: Tensor) -> Tensor:
        return scale * similarity.score_pairs(pair, source, target)

    num_src, num_dst = pair.src.size(0), pair.dst.size(0)
    return Scorer(
        rows=rows,
        pairs=pairs,
        size=(num_dst, num_src),
        available=num_src - int(not has_loops),
        dtype=pair.src.dtype,
        device=pair.src.device,
    )
