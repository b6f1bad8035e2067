"""Assign the candidates of a call to parts with separate draws."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import lexsort

from torch_geometric_gsl._checks import (
    check_absent,
    check_batch,
    check_candidate_count,
    check_count,
    check_edge_index,
    check_edge_weight,
    check_one_graph,
    check_two,
    check_value,
)
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.nn.sampler.bounds_cache import BoundsCache
from torch_geometric_gsl.nn.sampler.evaluation import exclude_loops
from torch_geometric_gsl.nn.sampler.methods import Draw, choose, plan_draw
from torch_geometric_gsl.nn.sampler.parts import Block, Listed, Parts
from torch_geometric_gsl.nn.sampler.plan import RACE_FACTOR, Settings, make_call
from torch_geometric_gsl.ops.edges import (
    Candidates,
    list_candidates,
    sort_candidates,
    weighted_candidates,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import disable_compile

# Graphs with fewer pairs are listed together rather than drawn one by one.
_LISTED_PAIRS = 64**2
# The graph of each source and of each target, numbered from zero.
GraphIds = tuple[Tensor, Tensor]


def assign(
    pairs: PairScores,
    settings: Settings,
    bounds: BoundsCache,
    edge_index: Any,
    edge_weight: Any,
    batch: Any,
    rows: Any = None,
) -> Parts:
    """Check the candidates of a call, and assign each target to a part."""
    if edge_weight is not None:
        check_edge_weight(edge_weight, edge_index, pairs.src)
    num_targets = pairs.dst.size(0)
    if rows is not None:
        _check_rows(rows, num_targets)
        check_absent(edge_index, 'edge_index', "with 'rows'")
        check_absent(batch, 'batch', "with 'rows'")
    call = _Assignment(pairs, settings, bounds)
    ids = None
    if batch is not None:
        ids = _number_graphs(batch, pairs, settings.is_pair)
    if edge_index is not None:
        return call.of_edges(edge_index, edge_weight, ids)
    if ids is not None:
        return call.of_graphs(ids)
    if num_targets == 0:
        return Parts(pairs, settings, [])
    available = pairs.src.size(0) - int(not settings.loop)
    if not settings.replace:  # With replacement, draws may repeat candidates.
        check_candidate_count(settings.k, available)
    is_training = settings.is_noisy and torch.is_grad_enabled()
    if is_training and available < min(num_targets, 2):
        _warn_of_no_choice(available)
    if available <= 0:
        return Parts(pairs, settings, [])
    block = call.block(pairs)
    return Parts(pairs, settings, [block if rows is None else block.take(*rows)])


def _check_rows(rows: Any, num_targets: int) -> None:
    """Raise unless :obj:`rows` is a valid range of targets."""
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise TypeError(f"'rows' must be a pair of integers (got {rows!r})")
    for number in rows:
        check_count(number, 'rows', 0)
    if not rows[0] <= rows[1] <= num_targets:
        raise ValueError(
            f"'rows' must lie between 0 and the number of targets, {num_targets} "
            f'(got {tuple(rows)})'
        )


@disable_compile
def _warn_of_no_choice(available: int) -> None:
    number = 'one candidate' if available > 0 else 'no candidate'
    warn_caller(
        f'each target has {number}, so there is no choice to learn: does a mask or '
        f'a batch leave too few nodes?',
        UserWarning,
    )


class _Assignment(NamedTuple):
    """The scores and the options of a call, and cached bounds."""

    pairs: PairScores
    settings: Settings
    bounds: BoundsCache

    def block(
        self, pairs: PairScores, first_source: int = 0, first_target: int = 0
    ) -> Block:
        """Create the block of one graph, given the indices of its first nodes."""
        settings, sizes = self.settings, (pairs.dst.size(0), pairs.src.size(0))
        pairs = pairs if settings.loop else exclude_loops(pairs)
        call = make_call(settings, *sizes)
        plan, envelope = plan_draw(call, pairs, self.bounds)
        draw = Draw(pairs, call.options, plan, envelope)
        return Block(settings, draw, *sizes, first_source, first_target)

    @disable_compile
    def of_edges(
        self, edge_index: Any, edge_weight: Tensor | None, ids: GraphIds | None
    ) -> Parts:
        """Assign targets with given candidates: race if there are many, else list."""
        pairs, settings = self.pairs, self.settings
        check_edge_index(edge_index, pairs.src, pairs.dst)
        if ids is not None:
            check_one_graph(edge_index, ids)
        prior: Tensor | None = None
        if edge_weight is None:
            source, target = sort_candidates(edge_index, loop=settings.loop)
        else:
            (source, target), prior = weighted_candidates(
                edge_index, edge_weight, loop=settings.loop
            )
        size = torch.bincount(target, minlength=pairs.dst.size(0))
        if not settings.replace and size.numel() > 0:
            check_value(
                size.min() >= settings.k,
                "'k' must not exceed the candidates of any target if replace=False",
                got=lambda: (
                    f'k={settings.k}, but target {int(size.argmin())} has '
                    f'{int(size.min())}'
                ),
            )
        candidates = Candidates(size.cumsum(0) - size, size, source)
        is_raced = torch.zeros_like(size, dtype=torch.bool)
        listed_by = 'edge_index' if prior is None else 'edge_weight'
        call = make_call(settings, 1, max(1, candidates.most), listed_by)
        if settings.is_noisy and choose(call).method == 'race':
            # Pays only with many candidates.
            gathered = max(call.num_proposals, call.options.num_tail)
            is_raced = size > (RACE_FACTOR * gathered if call.is_auto else 0)
        with torch.autocast(pairs.src.device.type, enabled=False):
            parts = self._short_and_long(candidates, is_raced, listed_by, prior)
            return Parts(pairs, settings, parts)

    @disable_compile
    def of_graphs(self, ids: GraphIds) -> Parts:
        """Assign the graphs of a batch: list small ones, race in large ones."""
        pairs, settings = self.pairs, self.settings
        num_graphs = 1 + max((int(i[-1]) for i in ids if i.numel()), default=-1)
        counts = [torch.bincount(i, minlength=num_graphs) for i in ids]
        sizes = list(zip(*(count.tolist() for count in counts), strict=True))
        if not settings.replace:  # With replacement, draws may repeat neighbours.
            for graph, (num_src, num_dst) in enumerate(sizes):
                if num_dst > 0:
                    available = num_src - int(not settings.loop)
                    check_candidate_count(settings.k, available, f' of graph {graph}')
        forms = _forms_of_graphs(sizes, settings)
        device = ids[1].device
        is_long, is_block = (
            torch.tensor([f == name for f in forms], dtype=torch.bool, device=device)
            for name in ('long', 'block')
        )
        size, owner = counts[0], ids[1]
        start, listed = size.cumsum(0) - size, size * ~is_block
        candidates = Candidates(start[owner], listed[owner])
        apart = pairs if settings.loop else exclude_loops(pairs)
        with torch.autocast(pairs.src.device.type, enabled=False):
            call = self._replace(pairs=apart)
            parts = call._short_and_long(candidates, is_long[owner], 'batch')
            return Parts(pairs, settings, parts + self._blocks(sizes, forms))

    def _short_and_long(
        self,
        candidates: Candidates,
        is_raced: Tensor,
        listed_by: str,
        prior: Tensor | None = None,
    ) -> list[Block | Listed]:
        """List the candidates of targets with few; race for the other targets."""
        pairs, settings, bounds = self
        parts: list[Block | Listed] = []
        short = candidates._replace(size=candidates.size * ~is_raced)
        blocks = list(list_candidates(short, _max_pairs(settings)))
        if blocks:
            # At once: the gradient of each block would have the size of all nodes.
            edges, sizes = torch.cat(blocks, dim=1), [block.size(1) for block in blocks]
            value = bounds.compare_edges(pairs, edges)
            score, rank = _score_edges(pairs, edges, value, settings, prior)
            call = make_call(settings, 1, short.most, listed_by)
            plan = call.describe('dense', 'all candidates are listed')
            if settings.is_noisy and call.is_auto:
                is_dense = choose(call).method == 'dense'
                plan = choose(call) if is_dense else plan
            cost = call.options.num_races * edges.size(1) / RACE_FACTOR
            plan = plan._replace(num_arrivals=None, num_tail=0, cost=cost)
            part = settings, plan, call.options, edges, score, rank, sizes
            parts.append(Listed(*part, pairs.dst.size(0), short.most, pairs.null))
        if bool(is_raced.any()):
            target = is_raced.nonzero().squeeze(1)
            start, size, source = candidates
            own = pairs.take(target, Candidates(start[target], size[target], source))
            call = make_call(settings, target.numel(), own.most, listed_by)
            draw = Draw(own, call.options, choose(call))
            num_targets = pairs.dst.size(0)
            parts.append(Block(settings, draw, num_targets, own.most, targets=target))
        return parts

    def _blocks(
        self, sizes: list[tuple[int, int]], forms: list[str]
    ) -> list[Block | Listed]:
        """Create one block for each graph that is sampled over all pairs."""
        parts: list[Block | Listed] = []
        first_source = first_target = 0
        # Split, not sliced: the gradient of a slice would have the size of all nodes.
        sources = self.pairs.src.split([num_src for num_src, _ in sizes])
        targets = self.pairs.split([num_dst for _, num_dst in sizes])
        for src, own, form in zip(sources, targets, forms, strict=True):
            # A single node without a self-loop has no candidate.
            if form == 'block' and src.size(0) > int(not self.settings.loop):
                call = self._replace(bounds=BoundsCache())
                first = first_source, first_target
                parts.append(call.block(own._replace(src=src), *first))
            first_source += src.size(0)
            first_target += own.dst.size(0)
        return parts


def _forms_of_graphs(sizes: list[tuple[int, int]], settings: Settings) -> list[str]:
    """Return the form of each graph: listed, in long lists that race, or a block."""
    total = sum(num_src * num_dst for num_src, num_dst in sizes)
    method = settings.method

    @cache
    def form(num_src: int, num_dst: int) -> str:
        if num_src <= int(not settings.loop) or num_dst == 0:
            return 'list'
        if method == 'dense':
            return 'list' if total <= _max_pairs(settings) else 'block'
        if settings.is_noisy and method != 'stream':
            call = make_call(settings, num_dst, num_src, 'batch')
            if choose(call).method == 'race':
                return 'long'
        is_small = num_src * num_dst < _LISTED_PAIRS
        is_small &= make_call(settings, num_dst, num_src).fits_dense
        is_listed = method == 'auto' and is_small
        return 'list' if is_listed else 'block'

    return [form(*size) for size in sizes]


def _max_pairs(settings: Settings) -> int:
    """Return the number of listed pairs whose draws fit the memory budget."""
    # A listed pair takes about eight numbers of eight bytes per draw.
    return max(1, settings.budget.memory // (64 * settings.k))


def _number_graphs(batch: Any, pairs: PairScores, is_pair: bool) -> GraphIds:
    """Check graph ids and number the graphs without gaps."""
    if not is_pair:
        check_batch(batch, pairs.src)
        # Ids are labels: their maximum does not give the number of graphs.
        _, number = torch.unique_consecutive(batch, return_inverse=True)
        return number, number
    check_two(batch, 'batch', "a pair (batch_src, batch_dst) if 'x' is a pair")
    check_batch(batch[0], pairs.src, 'batch_src')
    check_batch(batch[1], pairs.dst, 'batch_dst')
    _, number = torch.cat([batch[0], batch[1]]).unique(return_inverse=True)
    src, dst = number.split([batch[0].numel(), batch[1].numel()])
    return src, dst


def _score_edges(
    pairs: PairScores,
    edges: Tensor,
    value: Tensor,
    settings: Settings,
    prior: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the scores of listed candidates, and their noise-free ranking."""
    score = pairs.edges(edges, value)
    rank = None
    if not settings.is_noisy and settings.num_nearest is not None:
        rank = pairs.ranking.edges(edges, value.detach())
    if prior is not None:
        score = score + prior.to(score.dtype)
        if rank is not None:  # Break ties of saturated scores by nearness.
            rank = lexsort([rank, score.detach()]).argsort().to(rank.dtype)
    if pairs.excluded is not None:  # They keep their noise, as in a block.
        score = score.masked_fill(edges[0] == edges[1], -torch.inf)
    return score, score if rank is None else rank
