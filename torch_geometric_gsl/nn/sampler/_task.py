"""What a sampler is asked for: checked once, in one form."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_index,
    check_value,
)
from torch_geometric_gsl.nn.sampler._plan import (
    SHARE,
    bounds_obstacle,
    choose,
    proposals,
)
from torch_geometric_gsl.nn.sampler._scorer import Request, make_scorer
from torch_geometric_gsl.nn.similarity.base import EncodedPair
from torch_geometric_gsl.ops.candidates import list_candidates, sort_candidates
from torch_geometric_gsl.ops.scorer import Candidates, Law, Scorer
from torch_geometric_gsl.typing import Batch, Features


class Block(NamedTuple):
    """All pairs of one graph: its scores, where its nodes begin, and the method."""

    scorer: Scorer
    first_source: int
    first_target: int
    method: str


class Listed(NamedTuple):
    """Candidate edges, sorted by target, with their scores."""

    edge_index: Tensor
    score: Tensor


class Ragged(NamedTuple):
    """Targets that race among many candidates of their own."""

    scorer: Scorer
    target: Tensor


class Task(NamedTuple):
    """Candidates in the three forms; each target stands in one of them."""

    blocks: list[Block]
    listed: list[Listed]
    ragged: Ragged | None
    num_sources: int
    num_targets: int
    dtype: torch.dtype
    device: torch.device


def make_task(
    request: Request, x: Features, edge_index: Tensor | None, batch: Batch | None
) -> Task:
    """Checks the input and decides which targets are served in which form."""
    pair = request.similarity.encode_pair(x)
    is_pair = isinstance(x, tuple | list)
    has_loops = request.loop or is_pair
    ids = None if batch is None else _check_batches(batch, pair, is_pair)
    blocks: list[Block] = []
    listed: list[Listed] = []
    ragged = None
    if edge_index is not None:
        candidates = _given_candidates(edge_index, pair, ids, has_loops)
        _check_degrees(candidates, pair.dst.size(0), request.law)
        sets = _rows_of(candidates, pair.dst.size(0))
        is_raced = sets.size > _largest_list(request)
    else:
        sizes = _sizes(ids, pair)
        _check_sizes(sizes, request.law, has_loops, is_batch=ids is not None)
        methods = _methods(request, sizes, is_batch=ids is not None)
        blocks = _blocks(request, pair, sizes, methods, has_loops)
        if ids is None:
            sets = None
        else:
            sets = _graphs_of(ids, sizes)
            is_raced = _per_target(ids, [method == 'ragged' for method in methods])
            in_list = _per_target(ids, [method == 'list' for method in methods])
            sets = sets._replace(size=sets.size * (is_raced | in_list))
    if sets is not None:
        # Given edges hold no loops any more; those of a graph are excluded.
        own = None if has_loops or edge_index is not None else _every(pair.dst)
        if bool(is_raced.any()):
            target = is_raced.nonzero().squeeze(1)
            ragged = Ragged(_ragged_scorer(request, pair, sets, target, own), target)
        short = sets._replace(size=sets.size * ~is_raced)
        listed = _listed(request, pair, short, own)
    return Task(
        blocks,
        listed,
        ragged,
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


def _largest_list(request: Request) -> float:
    """The number of candidates up to which a target lists them all."""
    similarity, law, scale = request.similarity, request.law, request.scale
    if request.method in ('dense', 'stream') or not request.is_noisy:
        return math.inf
    obstacle = bounds_obstacle(similarity)
    if request.method == 'race' and obstacle is not None:
        raise ValueError(f"'method' cannot be 'race': {obstacle}")
    return SHARE * proposals(similarity, law, scale)


def _methods(
    request: Request, sizes: list[tuple[int, int]], is_batch: bool
) -> list[str]:
    """How each graph is served; 'list' and 'ragged' serve many of them at once."""
    # Without noise there is no race, nor what it asks of the scores.
    is_unused = request.method == 'race' and not request.is_noisy
    method = 'auto' if is_unused else request.method
    args = method, request.similarity, request.law, request.scale
    methods = [choose(*args, (num_dst, num_src))[0] for num_src, num_dst in sizes]
    if not is_batch:
        return methods
    if request.method in ('dense', 'stream'):
        few = sum(a * b for a, b in sizes) <= request.max_pairs
        return ['list'] * len(sizes) if few else methods
    served = {'dense': 'list', 'race': 'ragged' if request.is_noisy else 'race'}
    return [served.get(method, method) for method in methods]


def _per_target(ids: tuple[Tensor, Tensor], of_graph: list[bool]) -> Tensor:
    return torch.tensor(of_graph, dtype=torch.bool, device=ids[1].device)[ids[1]]


def _every(x: Tensor) -> Tensor:
    return torch.arange(x.size(0), device=x.device)


def _rows_of(candidates: Tensor, num_targets: int) -> Candidates:
    size = torch.bincount(candidates[1], minlength=num_targets)
    return Candidates(size.cumsum(0) - size, size, candidates[0])


def _graphs_of(ids: tuple[Tensor, Tensor], sizes: list[tuple[int, int]]) -> Candidates:
    counts = [num_src for num_src, _ in sizes]
    size = torch.tensor(counts, dtype=torch.long, device=ids[1].device)
    start = size.cumsum(0) - size
    return Candidates(start[ids[1]], size[ids[1]])


def _listed(
    request: Request, pair: EncodedPair, sets: Candidates, own: Tensor | None
) -> list[Listed]:
    blocks = list(list_candidates(sets, request.max_pairs))
    if not blocks:
        return []
    # Scored in one go: each block's gradient would be one of all nodes.
    edges, sizes = torch.cat(blocks, dim=1), [block.size(1) for block in blocks]
    score = request.scale * request.similarity.score_pairs(
        pair, *edges, memory_budget=request.memory_budget
    )
    if own is not None:  # They keep their share of the noise, as in a block.
        score = score.masked_fill(edges[0] == edges[1], -torch.inf)
    parts = zip(edges.split(sizes, dim=1), score.split(sizes), strict=True)
    return [Listed(*part) for part in parts]


def _ragged_scorer(
    request: Request,
    pair: EncodedPair,
    sets: Candidates,
    target: Tensor,
    own: Tensor | None,
) -> Scorer:
    params = tuple(param[target] for param in pair.params)
    some = EncodedPair(pair.src, pair.dst[target], params)
    candidates = Candidates(sets.start[target], sets.size[target], sets.listed)
    return make_scorer(request, some, None if own is None else target, candidates)


def _blocks(
    request: Request,
    pair: EncodedPair,
    sizes: list[tuple[int, int]],
    methods: list[str],
    has_loops: bool,
) -> list[Block]:
    blocks, first = [], (0, 0)
    # Split, not sliced: the gradient of each slice would be one of all nodes.
    sources = pair.src.split([num_src for num_src, _ in sizes])
    num_dst = [num_dst for _, num_dst in sizes]
    targets = [x.split(num_dst) for x in (pair.dst, *pair.params)]
    for method, src, dst, *params in zip(methods, sources, *targets, strict=True):
        is_block = method not in ('list', 'ragged')
        if is_block and src.size(0) - int(not has_loops) > 0 and dst.size(0) > 0:
            own = EncodedPair(src, dst, tuple(params))
            excluded = None if has_loops else _every(dst)
            scorer = make_scorer(request, own, excluded)
            blocks.append(Block(scorer, *first, method))
        first = first[0] + src.size(0), first[1] + dst.size(0)
    return blocks
