"""The candidates of a call, in parts that are drawn apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import lexsort, sort_edge_index

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_index,
    check_one_graph,
    check_value,
)
from torch_geometric_gsl.nn.sampler.bounds_cache import BoundsCache
from torch_geometric_gsl.nn.sampler.evaluation import evaluated_sum, noise_free_graph
from torch_geometric_gsl.nn.sampler.methods import BY_NAME, Draw, choose, plan_draw
from torch_geometric_gsl.nn.sampler.plan import (
    SHARE,
    SamplingPlan,
    Settings,
    make_call,
)
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.ops.candidates import (
    Candidates,
    list_candidates,
    sort_candidates,
    weighted_candidates,
)
from torch_geometric_gsl.ops.listed import candidate_graph, nearest_candidates
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.relax import DrawOptions
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.ops.tail import group_size
from torch_geometric_gsl.typing import SampledGraph

# A graph of fewer pairs is listed with others rather than drawn on its own.
_LISTED_PAIRS = 64**2
# The graph of each source and of each target, counted from zero.
GraphIds = tuple[Tensor, Tensor]
Generator = torch.Generator | None


class Block(NamedTuple):
    """Targets that are drawn by a method: those of one graph, or of long lists."""

    settings: Settings
    draw: Draw
    num_targets: int  # Of the graph.
    most: int  # The number of candidates of the target with the most.
    # Where the nodes of the graph begin among all nodes, or all targets of the block.
    first_source: int = 0
    targets: int | Tensor = 0
    kept: slice = slice(None)  # The targets of the block that are returned.

    @property
    def plan(self) -> SamplingPlan:
        """Return the plan of the draw."""
        return self.draw.plan

    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph, sorted by target."""
        if self.settings.is_noisy:
            graph = BY_NAME[self.plan.method].graph(self.draw, generator)
        else:
            graph = noise_free_graph(self.draw.scores, self.settings, self.num_targets)
        (source, target), weight = graph
        if self.kept != slice(None):
            keep = (target >= self.kept.start) & (target < self.kept.stop)
            source, target, weight = source[keep], target[keep], weight[keep]
        if isinstance(self.targets, Tensor):
            target = self.targets[target]
        else:
            source, target = source + self.first_source, target + self.targets
        return SampledGraph(torch.stack([source, target]), weight)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over the graph."""
        if isinstance(self.targets, Tensor):
            return weighted_sum(h, *self.graph(generator), self.num_targets)
        if self.settings.is_noisy:
            out = BY_NAME[self.draw.plan.method].sum(self.draw, h, generator)
        else:
            out = evaluated_sum(h, self.draw.scores, self.settings, self.num_targets)
        return out if self.kept == slice(None) else out[self.kept]

    def take(self, start: int, stop: int) -> Block:
        """Restrict the block to a range of targets without changing their draws."""
        draw = self.draw
        if self.settings.is_noisy and self.plan.method == 'dense':
            # The definition draws the noise of all pairs in their order.
            return self._replace(kept=slice(start, stop))
        # Whole groups that share a tail, and at least one target: noise is drawn for
        # none as well, so that what is drawn next is what it would be.
        first = min(start, self.num_targets - 1)
        first -= first % group_size(draw.options)
        rows = slice(first, max(stop, first + 1))
        envelope = draw.envelope
        if envelope is not None and envelope.head is not None:
            envelope = envelope._replace(head=envelope.head.take(rows))
        return self._replace(
            draw=draw._replace(scores=draw.scores.block(rows), envelope=envelope),
            targets=rows.start,
            kept=slice(start - first, stop - first),
        )


class Listed(NamedTuple):
    """Candidates that are listed one by one, sorted by target, with their scores."""

    settings: Settings
    plan: SamplingPlan
    options: DrawOptions
    edge_index: Tensor
    score: Tensor  # Negative infinity excludes.
    rank: Tensor  # What orders candidates without noise.
    sizes: list[int]  # The numbers of edges of blocks of whole targets.
    num_targets: int
    most: int
    null: Tensor | None

    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph, sorted by target."""
        graphs = []
        columns = (x.split(self.sizes, -1) for x in (self.edge_index, *self[4:6]))
        for edge_index, score, rank in zip(*columns, strict=True):
            # Targets count from the first of the block: no tensor is one of them all.
            first, last = edge_index[1, [0, -1]].tolist()
            shift = edge_index.new_tensor([[0], [first]])
            args = score, edge_index - shift, last - first + 1
            if self.settings.is_noisy:
                graph = candidate_graph(
                    *args, self.options, generator=generator, null=self.null
                )
            else:
                options = self.options.tau, self.null, rank
                k = self.settings.num_nearest
                graph = nearest_candidates(*args, k, *options)
            graphs.append(SampledGraph(graph.edge_index + shift, graph.edge_weight))
        return _join(graphs)

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over that graph."""
        return weighted_sum(h, *self.graph(generator), self.num_targets)


class Parts(NamedTuple):
    """The parts of a call; each of its targets is in one of them at the most."""

    pairs: PairScores
    settings: Settings
    parts: list[Block | Listed]

    def plan(self) -> SamplingPlan:
        """Return the plan of the target with the most candidates."""
        if self.parts:
            return max(self.parts, key=lambda part: part.most).plan
        method = 'dense' if self.settings.method == 'auto' else self.settings.method
        return SamplingPlan(method, 'there is nothing to draw', None, None, 0)

    def graph(self, generator: Generator) -> SampledGraph:
        """Return the graph of all parts, sorted by target."""
        if not self.parts:
            none = self.pairs.src.new_empty(2, 0)
            return SampledGraph(none.long(), none[0])
        graph = _join([part.graph(generator) for part in self.parts])
        if len({_form(part) for part in self.parts}) == 1:
            return graph
        return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))

    def sum(self, h: Tensor, generator: Generator) -> Tensor:
        """Sum messages over that graph."""
        num_targets = self.pairs.dst.size(0)
        if len(self.parts) == 1 and self.parts[0].num_targets == num_targets:
            return self.parts[0].sum(h, generator)
        # In the order of the graph, so that one seed gives its weights.
        sums = [part.sum(h, generator) for part in self.parts if _form(part) != 'graph']
        graphs = [part for part in self.parts if _form(part) == 'graph']
        if graphs or not sums:
            sums.append(_sum_of_graphs(graphs, h, num_targets, generator))
        return sum(sums[1:], start=sums[0])


def _form(part: Block | Listed) -> str:
    if isinstance(part, Listed):
        return 'list'
    return 'long lists' if isinstance(part.targets, Tensor) else 'graph'


def _sum_of_graphs(
    parts: list[Any], h: Tensor, num_targets: int, generator: Generator
) -> Tensor:
    """Sum over each of several graphs, with zeros for the targets between them."""
    source, target = [], []
    for part in parts:
        num_sources = part.draw.scores.src.size(0)
        source.append((part.first_source, part.first_source + num_sources))
        target.append((part.targets, part.targets + part.num_targets))
    messages = _split(h, source)[1::2]
    sums = _split(h.new_zeros(num_targets, h.size(1)), target)
    sums[1::2] = [
        part.sum(own, generator) for part, own in zip(parts, messages, strict=True)
    ]
    return torch.cat(sums)


def _split(rows: Tensor, spans: list[tuple[int, int]]) -> list[Tensor]:
    """Split rows into those before a span, a span, those up to the next and so on."""
    ends = [0, *chain.from_iterable(spans), rows.size(0)]
    # Split, not sliced: the gradient of each slice would be one of all rows.
    return list(rows.split([stop - start for start, stop in pairwise(ends)]))


def _join(graphs: Sequence[SampledGraph]) -> SampledGraph:
    """Join graphs in their order."""
    if len(graphs) == 1:
        return graphs[0]
    edge_index, weight = (torch.cat(x, dim=-1) for x in zip(*graphs, strict=True))
    return SampledGraph(edge_index, weight)


def whole_graph(
    pairs: PairScores,
    settings: Settings,
    bounds: BoundsCache,
    first_source: int = 0,
    first_target: int = 0,
) -> Block:
    """Return the block of one graph, whose first nodes have these places."""
    num_targets, num_sources = pairs.dst.size(0), pairs.src.size(0)
    pairs = pairs if settings.loop else exclude_loops(pairs)
    call = make_call(settings, num_targets, num_sources)
    plan, envelope = plan_draw(call, pairs, bounds)
    draw = Draw(pairs, call.options, plan, settings.budget.memory, envelope)
    return Block(settings, draw, num_targets, num_sources, first_source, first_target)


def exclude_loops(pairs: PairScores) -> PairScores:
    """Return the scores of nodes that are not their own candidates."""
    every = torch.arange(pairs.dst.size(0), device=pairs.dst.device)
    return pairs._replace(excluded=every)


@disable_compile
def parts_of_edges(
    pairs: PairScores,
    settings: Settings,
    edge_index: Any,
    edge_weight: Tensor | None,
    ids: GraphIds | None,
    bounds: BoundsCache,
) -> Parts:
    """Assign targets with given candidates: those with many of them race."""
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
            "'k' must not exceed the candidates of any target where 'replace' is False",
            got=lambda: (
                f'k={settings.k}, but target {int(size.argmin())} has {int(size.min())}'
            ),
        )
    candidates = Candidates(size.cumsum(0) - size, size, source)
    is_raced = torch.zeros_like(size, dtype=torch.bool)
    listed_by = 'edge_index' if prior is None else 'edge_weight'
    call = make_call(settings, 1, max(1, candidates.most), listed_by)
    if settings.is_noisy and choose(call).method == 'race':
        # Which pays only where candidates are many.
        gathered = max(call.num_proposals, call.options.num_tail)
        is_raced = size > (SHARE * gathered if call.is_auto else 0)
    with torch.autocast(pairs.src.device.type, enabled=False):
        return Parts(
            pairs,
            settings,
            _short_and_long(
                pairs, candidates, is_raced, settings, bounds, listed_by, prior
            ),
        )


@disable_compile
def parts_of_graphs(
    pairs: PairScores, settings: Settings, ids: GraphIds, bounds: BoundsCache
) -> Parts:
    """Assign the graphs of a batch: small ones are listed, large ones race."""
    num_graphs = 1 + max((int(i[-1]) for i in ids if i.numel()), default=-1)
    counts = [torch.bincount(i, minlength=num_graphs) for i in ids]
    sizes = list(zip(*(count.tolist() for count in counts), strict=True))
    if not settings.replace:  # With replacement a small graph repeats its neighbours.
        for graph, (num_src, num_dst) in enumerate(sizes):
            if num_dst > 0:
                available = num_src - int(not settings.loop)
                check_candidate_count(settings.k, available, f' of graph {graph}')
    forms = _forms_of_graphs(sizes, settings)
    is_long, is_block = (
        torch.tensor([f == name for f in forms], dtype=torch.bool, device=ids[1].device)
        for name in ('long', 'block')
    )
    size, owner = counts[0], ids[1]
    start, listed = size.cumsum(0) - size, size * ~is_block
    candidates = Candidates(start[owner], listed[owner])
    with torch.autocast(pairs.src.device.type, enabled=False):
        apart = pairs if settings.loop else exclude_loops(pairs)
        given = apart, candidates, is_long[owner], settings, bounds
        parts = _short_and_long(*given, 'batch')
        return Parts(pairs, settings, parts + _blocks(pairs, sizes, forms, settings))


def _forms_of_graphs(sizes: list[tuple[int, int]], settings: Settings) -> list[str]:
    """Return whether each graph is listed, races by long lists, or is drawn alone."""
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
        is_few = make_call(settings, num_dst, num_src).is_few
        is_listed = method == 'auto' and is_few and num_src * num_dst < _LISTED_PAIRS
        return 'list' if is_listed else 'block'

    return [form(*size) for size in sizes]


def _max_pairs(settings: Settings) -> int:
    """Return the number of listed pairs whose draws fit into the memory budget."""
    # A listed pair takes about eight numbers of eight bytes a draw.
    return max(1, settings.budget.memory // (64 * settings.k))


def number_graphs(batch: Any, pairs: PairScores, is_pair: bool) -> GraphIds:
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


def _short_and_long(
    pairs: PairScores,
    candidates: Candidates,
    is_raced: Tensor,
    settings: Settings,
    bounds: BoundsCache,
    listed_by: str,
    prior: Tensor | None = None,
) -> list[Block | Listed]:
    """List the candidates of targets with few, and let those of others race."""
    parts: list[Block | Listed] = []
    short = candidates._replace(size=candidates.size * ~is_raced)
    blocks = list(list_candidates(short, _max_pairs(settings)))
    if blocks:
        # Scored in one go: each block's gradient would be one of all nodes.
        edges, sizes = torch.cat(blocks, dim=1), [block.size(1) for block in blocks]
        value = bounds.compare_edges(pairs, edges, settings.budget.memory)
        score, rank = _score_edges(pairs, edges, value, settings, prior)
        call = make_call(settings, 1, short.most, listed_by)
        plan = call.describe('dense', 'all candidates are listed')
        if settings.is_noisy and call.is_auto:
            is_dense = choose(call).method == 'dense'
            plan = choose(call) if is_dense else plan
        plan = plan._replace(num_arrivals=None, num_tail=0)
        part = settings, plan, call.options, edges, score, rank, sizes
        parts.append(Listed(*part, pairs.dst.size(0), short.most, pairs.null))
    if bool(is_raced.any()):
        target = is_raced.nonzero().squeeze(1)
        start, size, source = candidates
        own = pairs.take(target, Candidates(start[target], size[target], source))
        call = make_call(settings, target.numel(), own.most, listed_by)
        draw = Draw(own, call.options, choose(call), settings.budget.memory)
        num_targets = pairs.dst.size(0)
        parts.append(Block(settings, draw, num_targets, own.most, targets=target))
    return parts


def _score_edges(
    pairs: PairScores,
    edges: Tensor,
    value: Tensor,
    settings: Settings,
    prior: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the scores of listed candidates, and what orders them without noise."""
    score = pairs.edges(edges, value)
    rank = None
    if not settings.is_noisy and settings.num_nearest is not None:
        rank = pairs.ranking.edges(edges, value.detach())
    if prior is not None:
        score = score + prior.to(score.dtype)
        if rank is not None:  # Where scores saturate, the nearest of equal ones.
            rank = lexsort([rank, score.detach()]).argsort().to(rank.dtype)
    if pairs.excluded is not None:  # They keep their noise, as in a block.
        score = score.masked_fill(edges[0] == edges[1], -torch.inf)
    return score, score if rank is None else rank


def _blocks(
    pairs: PairScores,
    sizes: list[tuple[int, int]],
    forms: list[str],
    settings: Settings,
) -> list[Block | Listed]:
    """Return one block for each graph of which all pairs are looked at."""
    parts: list[Block | Listed] = []
    first_source = first_target = 0
    # Split, not sliced: the gradient of each slice would be one of all nodes.
    sources = pairs.src.split([num_src for num_src, _ in sizes])
    targets = pairs.split([num_dst for _, num_dst in sizes])
    for src, own, form in zip(sources, targets, forms, strict=True):
        # A lone node that is not its own candidate has none.
        if form == 'block' and src.size(0) > int(not settings.loop):
            graph = own._replace(src=src)
            first = first_source, first_target
            parts.append(whole_graph(graph, settings, BoundsCache(), *first))
        first_source += src.size(0)
        first_target += own.dst.size(0)
    return parts
