"""Validate batches and given candidates, and assign their targets to parts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_index,
    check_value,
)
from torch_geometric_gsl.nn.sampler._parts import (
    AllPairs,
    CandidateList,
    OwnCandidates,
    Part,
)
from torch_geometric_gsl.nn.sampler.plan import (
    LISTED,
    CallOptions,
    SamplingPlan,
    choose_plan,
    draw_options,
    largest_list,
    list_plan,
)
from torch_geometric_gsl.ops.candidates import (
    Candidates,
    list_candidates,
    sort_candidates,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.typing import Batch

# The graph of each source and of each target, counted from zero.
GraphIds = tuple[Tensor, Tensor]


@disable_compile
def assign_parts(
    pairs: PairScores,
    is_pair: bool,
    edge_index: Tensor | None,
    batch: Batch | None,
    given: CallOptions,
) -> list[Part]:
    """Check given candidates and graph ids, and assign a part to each target.

    Args:
        pairs (PairScores): The scores; nothing is excluded.
        is_pair (bool): Whether sources and targets are two sets of nodes.
        edge_index (torch.Tensor or None): Candidate edges.
        batch (torch.Tensor or tuple or None): Graph ids of the nodes.
        given (CallOptions): The options.
    """
    ids = None if batch is None else graph_ids(batch, pairs, is_pair)
    if edge_index is None:
        return [] if ids is None else parts_of_graphs(pairs, ids, given)
    candidates = given_candidates(edge_index, pairs, ids, given.loop)
    check_degrees(candidates, given.k, given.replace)
    return parts_of_edges(pairs, candidates, given)


def graph_ids(batch: Batch, pairs: PairScores, is_pair: bool) -> GraphIds:
    """Check graph ids, and number the graphs without gaps.

    Args:
        batch (torch.Tensor or tuple): Graph ids of the nodes.
        pairs (PairScores): The scores of the nodes.
        is_pair (bool): Whether sources and targets are two sets of nodes.
    """
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


def graph_sizes(ids: GraphIds) -> list[tuple[int, int]]:
    """Return the numbers of sources and targets of each graph."""
    num_graphs = 1 + max((int(i[-1]) for i in ids if i.numel()), default=-1)
    counts = [torch.bincount(i, minlength=num_graphs).tolist() for i in ids]
    return list(zip(*counts, strict=True))


def graph_candidates(ids: GraphIds, sizes: Iterable[tuple[int, int]]) -> Candidates:
    """Return the sources of each target's graph as its candidates."""
    counts = [num_src for num_src, _ in sizes]
    size = torch.tensor(counts, dtype=torch.long, device=ids[1].device)
    start = size.cumsum(0) - size
    return Candidates(start[ids[1]], size[ids[1]])


def given_candidates(
    edge_index: Tensor, pairs: PairScores, ids: GraphIds | None, has_loops: bool
) -> Candidates:
    """Check candidate edges, and sort them by target."""
    check_edge_index(edge_index, pairs.src, pairs.dst)
    if ids is not None:
        crosses = ids[0][edge_index[0]] != ids[1][edge_index[1]]
        check_value(
            ~crosses.any(),
            "'edge_index' joins two graphs of 'batch'",
            got=lambda: f'edge {edge_index[:, crosses][:, 0].tolist()}',
        )
    source, target = sort_candidates(edge_index, loop=has_loops)
    size = torch.bincount(target, minlength=pairs.dst.size(0))
    return Candidates(size.cumsum(0) - size, size, source)


def check_sizes(sizes: Iterable[tuple[int, int]], given: CallOptions) -> None:
    """Raise if a graph of a batch has fewer candidates than distinct neighbours.

    With replacement a small graph repeats its neighbours.
    """
    if given.replace:
        return
    for graph, (num_src, num_dst) in enumerate(sizes):
        if num_dst > 0:
            available = num_src - int(not given.loop)
            check_candidate_count(given.k, available, f' of graph {graph}')


def check_degrees(candidates: Candidates, k: int, replace: bool) -> None:
    """Raise if a target has fewer candidates than distinct neighbours."""
    degree = candidates.size
    if replace or degree.numel() == 0:
        return
    check_value(
        degree.min() >= k,
        "'k' must not exceed the candidates of any target where 'replace' is False",
        got=lambda: f'k={k}, but target {int(degree.argmin())} has {int(degree.min())}',
    )


def parts_of_edges(
    pairs: PairScores,
    candidates: Candidates,
    given: CallOptions,
) -> list[Part]:
    """Assign targets with given candidates: those with many of them race.

    Args:
        pairs (PairScores): The scores; nothing is excluded.
        candidates (Candidates): The candidates of each target.
        given (CallOptions): The options.

    Raises:
        ValueError: If the method that is asked for cannot serve.
    """
    is_raced = torch.zeros_like(candidates.size, dtype=torch.bool)
    if given.is_noisy and given.method == 'stream':
        raise ValueError(
            "'method' cannot be 'stream' where 'edge_index' is given: candidates are "
            "listed ('dense') or race ('race', 'auto')"
        )
    if given.is_noisy and given.method != 'dense' and candidates.most > 0:
        size = candidates.size
        if given.method == 'race':  # Which raises if it cannot serve the smallest.
            choose_plan(given, 1, int(size[size > 0].min()), is_own=True)
        plan, _ = choose_plan(given, 1, candidates.most, is_own=True)
        if plan.method == 'race':
            is_raced = size > largest_list(given)
    return _short_and_long(pairs, candidates, given, is_raced)


def parts_of_graphs(
    pairs: PairScores,
    ids: GraphIds,
    given: CallOptions,
) -> list[Part]:
    """Assign the graphs of a batch: small ones are listed, large ones race.

    Args:
        pairs (PairScores): The scores; nothing is excluded.
        ids (tuple): The graph of each source and target.
        given (CallOptions): The options.

    Raises:
        ValueError: If the method that is asked for cannot serve.
    """
    sizes = graph_sizes(ids)
    check_sizes(sizes, given)
    total = sum(num_src * num_dst for num_src, num_dst in sizes)

    @cache
    def form(num_src: int, num_dst: int) -> str:
        if num_src == 0 or num_dst == 0:
            return 'list'
        if given.method == 'dense' or (given.method == 'stream' and not given.is_noisy):
            return 'list' if total <= given.max_pairs else 'pairs'
        if given.is_noisy and given.method != 'stream':
            plan, _ = choose_plan(given, num_dst, num_src, is_own=True)
            if plan.method == 'race':
                return 'own'
        plan, _ = choose_plan(given, num_dst, num_src)
        return 'list' if plan.method == 'dense' else 'pairs'

    forms = [form(*size) for size in sizes]
    candidates = graph_candidates(ids, sizes)
    is_own, is_block = (
        torch.tensor([f == name for f in forms], dtype=torch.bool, device=ids[1].device)
        for name in ('own', 'pairs')
    )
    candidates = candidates._replace(size=candidates.size * ~is_block[ids[1]])
    excluded = None
    if not given.loop:
        excluded = torch.arange(pairs.dst.size(0), device=pairs.dst.device)
    apart = pairs._replace(excluded=excluded)
    parts = _short_and_long(apart, candidates, given, is_own[ids[1]])
    return parts + _blocks(pairs, sizes, forms, given)


def _short_and_long(
    pairs: PairScores,
    candidates: Candidates,
    given: CallOptions,
    is_raced: Tensor,
) -> list[Part]:
    """List the candidates of targets with few, and let those of others race."""
    parts: list[Part] = []
    num_targets = pairs.dst.size(0)
    short = candidates._replace(size=candidates.size * ~is_raced)
    blocks = list(list_candidates(short, given.max_pairs))
    if blocks:
        # Scored in one go: each block's gradient would be one of all nodes.
        edges, sizes = torch.cat(blocks, dim=1), [block.size(1) for block in blocks]
        score = pairs.edges(edges, memory_budget=given.memory_budget)
        if pairs.excluded is not None:  # They keep their noise, as in a block.
            score = score.masked_fill(edges[0] == edges[1], -torch.inf)
        options, plan = (
            draw_options(given, short.most),
            _plan_of_lists(given, short.most),
        )
        parts.append(CandidateList(edges, score, sizes, num_targets, plan, options))
    if bool(is_raced.any()):
        target = is_raced.nonzero().squeeze(1)
        start, size, source = candidates
        own = pairs.take(target, Candidates(start[target], size[target], source))
        plan, options = choose_plan(given, target.numel(), own.most, is_own=True)
        parts.append(OwnCandidates(own, target, num_targets, plan, options))
    return parts


def _plan_of_lists(given: CallOptions, most: int) -> SamplingPlan:
    """Return the plan of targets that list at most so many candidates."""
    if given.method != 'auto' or not given.is_noisy:
        return list_plan()
    plan, _ = choose_plan(given, 1, most, is_own=True)
    return list_plan(plan.reason if plan.method == 'dense' else LISTED)


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
        num_src, num_dst = src.size(0), own.dst.size(0)
        available = num_src - int(not given.loop)
        if form == 'pairs' and available > 0 and num_dst > 0:
            excluded = None
            if not given.loop:
                excluded = torch.arange(num_dst, device=src.device)
            scores = own._replace(src=src, excluded=excluded)
            plan, options = choose_plan(given, num_dst, num_src)
            parts.append(AllPairs(scores, plan, options, first_source, first_target))
        first_source, first_target = first_source + num_src, first_target + num_dst
    return parts
