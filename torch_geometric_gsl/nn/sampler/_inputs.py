"""Validate batches and given candidates, and assign their targets to parts."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import lexsort

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_index,
    check_one_graph,
    check_value,
)
from torch_geometric_gsl.nn.sampler._compared import ComparedEdges
from torch_geometric_gsl.nn.sampler._parts import (
    CandidateList,
    OwnCandidates,
    Part,
    all_pairs,
    exclude_loops,
)
from torch_geometric_gsl.nn.sampler.plan import (
    SHARE,
    CallOptions,
    choose_plan,
    draw_options,
    list_plan,
)
from torch_geometric_gsl.ops.candidates import (
    Candidates,
    list_candidates,
    sort_candidates,
    weighted_candidates,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import disable_compile

# A graph of fewer pairs is listed with others rather than drawn on its own.
_LISTED_PAIRS = 64**2
# The graph of each source and of each target, counted from zero.
GraphIds = tuple[Tensor, Tensor]


@disable_compile
def assign_parts(
    pairs: PairScores,
    is_pair: bool,
    edge_index: Any,
    edge_weight: Tensor | None,
    batch: Any,
    given: CallOptions,
    compare: ComparedEdges,
) -> list[Part]:
    """Check candidate edges and graph ids, and assign a part to each target."""
    with torch.autocast(pairs.src.device.type, enabled=False):
        ids = None if batch is None else _graph_ids(batch, pairs, is_pair)
        if edge_index is not None:
            return _parts_of_edges(pairs, edge_index, edge_weight, ids, given, compare)
        return [] if ids is None else _parts_of_graphs(pairs, ids, given, compare)


def _graph_ids(batch: Any, pairs: PairScores, is_pair: bool) -> GraphIds:
    """Check graph ids, and number the graphs without gaps."""
    if not is_pair:
        check_batch(batch, pairs.src)
        # Ids are names of graphs, not how many there are.
        _, number = torch.unique_consecutive(batch, return_inverse=True)
        return number, number
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise TypeError(
            "'batch' must be a pair (batch_src, batch_dst) where 'x' is a pair "
            f'(got {type(batch).__name__})'
        )
    check_batch(batch[0], pairs.src, 'batch_src')
    check_batch(batch[1], pairs.dst, 'batch_dst')
    _, number = torch.cat([batch[0], batch[1]]).unique(return_inverse=True)
    src, dst = number.split([batch[0].numel(), batch[1].numel()])
    return src, dst


def _parts_of_edges(
    pairs: PairScores,
    edge_index: Any,
    edge_weight: Tensor | None,
    ids: GraphIds | None,
    given: CallOptions,
    compare: ComparedEdges,
) -> list[Part]:
    """Assign targets with given candidates: those with many of them race."""
    check_edge_index(edge_index, pairs.src, pairs.dst)
    if ids is not None:
        check_one_graph(edge_index, ids)
    prior: Tensor | None = None
    if edge_weight is None:
        source, target = sort_candidates(edge_index, loop=given.loop)
    else:
        (source, target), prior = weighted_candidates(
            edge_index, edge_weight, loop=given.loop
        )
    size = torch.bincount(target, minlength=pairs.dst.size(0))
    if not given.replace and size.numel() > 0:
        check_value(
            size.min() >= given.k,
            "'k' must not exceed the candidates of any target where 'replace' is False",
            got=lambda: (
                f'k={given.k}, but target {int(size.argmin())} has {int(size.min())}'
            ),
        )
    if given.is_noisy and given.method == 'stream':
        raise ValueError(
            "'method' cannot be 'stream' where 'edge_index' is given: candidates are "
            "listed ('dense') or race ('race', 'auto')"
        )
    if given.is_noisy and given.method == 'race' and prior is not None:
        raise ValueError(
            "'method' cannot be 'race' where 'edge_weight' is given: weighted "
            "candidates are listed ('dense', 'auto')"
        )
    candidates = Candidates(size.cumsum(0) - size, size, source)
    is_raced = torch.zeros_like(size, dtype=torch.bool)
    may_race = given.is_noisy and given.method != 'dense' and prior is None
    if may_race and candidates.most > 0:
        plan, options = choose_plan(given, 1, candidates.most, is_own=True)
        if plan.method == 'race':  # Which pays only where candidates are many.
            gathered = max(given.proposals, options.num_tail)
            least = 0 if given.method == 'race' else SHARE * gathered
            is_raced = size > least
    return _short_and_long(pairs, candidates, is_raced, given, compare, prior)


def _parts_of_graphs(
    pairs: PairScores, ids: GraphIds, given: CallOptions, compare: ComparedEdges
) -> list[Part]:
    """Assign the graphs of a batch: small ones are listed, large ones race."""
    num_graphs = 1 + max((int(i[-1]) for i in ids if i.numel()), default=-1)
    counts = [torch.bincount(i, minlength=num_graphs) for i in ids]
    sizes = list(zip(*(count.tolist() for count in counts), strict=True))
    if not given.replace:  # With replacement a small graph repeats its neighbours.
        for graph, (num_src, num_dst) in enumerate(sizes):
            if num_dst > 0:
                available = num_src - int(not given.loop)
                check_candidate_count(given.k, available, f' of graph {graph}')
    total = sum(num_src * num_dst for num_src, num_dst in sizes)

    @cache
    def form(num_src: int, num_dst: int) -> str:
        if num_src <= int(not given.loop) or num_dst == 0:
            return 'list'
        if given.is_noisy and given.method == 'dense':
            return 'list' if total <= given.max_pairs else 'pairs'
        if given.is_noisy and given.method != 'stream':
            plan, _ = choose_plan(given, num_dst, num_src, is_own=True)
            if plan.method == 'race':
                return 'own'
        plan, _ = choose_plan(given, num_dst, num_src)
        is_small = num_src * num_dst < _LISTED_PAIRS
        return 'list' if is_small and plan.method == 'dense' else 'pairs'

    forms = [form(*size) for size in sizes]
    is_own, is_block = (
        torch.tensor([f == name for f in forms], dtype=torch.bool, device=ids[1].device)
        for name in ('own', 'pairs')
    )
    size = counts[0]
    candidates = Candidates((size.cumsum(0) - size)[ids[1]], (size * ~is_block)[ids[1]])
    apart = pairs if given.loop else exclude_loops(pairs)
    parts = _short_and_long(apart, candidates, is_own[ids[1]], given, compare)
    return parts + _blocks(pairs, sizes, forms, given)


def _short_and_long(
    pairs: PairScores,
    candidates: Candidates,
    is_raced: Tensor,
    given: CallOptions,
    compare: ComparedEdges,
    prior: Tensor | None = None,
) -> list[Part]:
    """List the candidates of targets with few, and let those of others race."""
    parts: list[Part] = []
    num_targets = pairs.dst.size(0)
    short = candidates._replace(size=candidates.size * ~is_raced)
    blocks = list(list_candidates(short, given.max_pairs))
    if blocks:
        # Scored in one go: each block's gradient would be one of all nodes.
        edges, sizes = torch.cat(blocks, dim=1), [block.size(1) for block in blocks]
        value = compare(pairs, edges, given.memory_budget)
        score = pairs.edges(edges, value)
        rank = None
        if not given.is_noisy and given.num_nearest is not None:
            rank = pairs.ranking.edges(edges, value.detach())
        if prior is not None:
            score = score + prior.to(score.dtype)
            if rank is not None:  # Where scores saturate, the nearest of equal ones.
                rank = lexsort([rank, score.detach()]).argsort().to(rank.dtype)
        if pairs.excluded is not None:  # They keep their noise, as in a block.
            score = score.masked_fill(edges[0] == edges[1], -torch.inf)
        most = short.most
        listed = CandidateList(
            given=given,
            plan=list_plan(given, most),
            options=draw_options(given, most),
            edge_index=edges,
            score=score,
            sizes=sizes,
            num_targets=num_targets,
            most=most,
            null=pairs.null,
            rank=rank,
        )
        parts.append(listed)
    if bool(is_raced.any()):
        target = is_raced.nonzero().squeeze(1)
        start, size, source = candidates
        own = pairs.take(target, Candidates(start[target], size[target], source))
        most = own.most
        plan, options = choose_plan(given, target.numel(), most, is_own=True)
        raced = OwnCandidates(
            given=given,
            plan=plan,
            options=options,
            scores=own,
            target=target,
            num_targets=num_targets,
            most=most,
        )
        parts.append(raced)
    return parts


def _blocks(
    pairs: PairScores,
    sizes: list[tuple[int, int]],
    forms: list[str],
    given: CallOptions,
) -> list[Part]:
    """Return one part for each graph of which all pairs are looked at."""
    parts: list[Part] = []
    first_source = first_target = 0
    # Split, not sliced: the gradient of each slice would be one of all nodes.
    sources = pairs.src.split([num_src for num_src, _ in sizes])
    targets = pairs.split([num_dst for _, num_dst in sizes])
    for src, own, form in zip(sources, targets, forms, strict=True):
        # A lone node that is no candidate of its own has none.
        if form == 'pairs' and src.size(0) > int(not given.loop):
            graph = own._replace(src=src)
            parts.append(all_pairs(graph, given, None, first_source, first_target))
        first_source += src.size(0)
        first_target += own.dst.size(0)
    return parts
