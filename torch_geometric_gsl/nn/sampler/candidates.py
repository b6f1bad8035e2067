"""Split the targets of a call into groups, by their candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_candidate_count,
    check_count,
    check_edge_index,
    check_edge_weight,
    check_graph_ids,
    check_one_graph,
    check_value,
)
from torch_geometric_gsl.nn.sampler.options import Settings
from torch_geometric_gsl.nn.sampler.row_cache import RowCache
from torch_geometric_gsl.nn.sampler.targets import GraphTargets, TargetGroups, Targets
from torch_geometric_gsl.ops.edges import (
    Candidates,
    list_candidates,
    sort_candidates,
    weighted_candidates,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import disable_compile
from torch_geometric_gsl.typing import Features

# Graphs with fewer pairs are listed together rather than one by one.
LISTED_PAIRS = 64**2
# The graph of each source and of each target, numbered from zero.
GraphIds = tuple[Tensor, Tensor]


@dataclass(eq=False)
class Assignment(ABC):
    """Assign each target of a call to a group, in training or in evaluation."""

    pairs: PairScores
    settings: Settings
    cache: RowCache

    @property
    def num_required(self) -> int:
        """Return the number of candidates that a target needs without replacement."""
        return self.settings.k

    @abstractmethod
    def of_graph(
        self, pairs: PairScores, first_source: int = 0, first_target: int = 0
    ) -> GraphTargets:
        """Return the targets of one graph, given the indices of its first nodes."""

    @abstractmethod
    def of_lists(
        self,
        pairs: PairScores,
        candidates: Candidates,
        prior: Tensor | None = None,
    ) -> list[Targets]:
        """Return groups of targets with listed candidates."""

    @abstractmethod
    def are_listed(self, sizes: list[tuple[int, int]]) -> list[bool]:
        """Return for each graph of a batch whether its candidates are listed.

        Graphs are given by their numbers of sources and of targets.
        """

    def assign(
        self, edge_index: Any, edge_weight: Any, batch: Any, rows: Any = None
    ) -> Targets:
        """Check the candidates of a call, and assign each target to a group."""
        pairs = self.pairs
        num_targets = pairs.dst.size(0)
        if edge_index is not None:
            check_edge_index(edge_index, pairs.src, pairs.dst)
        if edge_weight is not None:
            check_edge_weight(edge_weight, edge_index, pairs.src)
        if rows is not None:
            _check_rows(rows, num_targets)
            check_absent(edge_index, 'edge_index', "with 'rows'")
            check_absent(batch, 'batch', "with 'rows'")
        ids = None
        if batch is not None:
            nodes = Ends(pairs.src, pairs.dst, self.settings.is_pair)
            ids = check_graph_ids(batch, nodes)
        if edge_index is not None:
            return self._of_edges(edge_index, edge_weight, ids)
        if ids is not None:
            return self._of_batch(ids)
        available = pairs.src.size(0) - int(not self.settings.loop)
        if num_targets > 0 and not self.settings.replace:
            # With replacement, draws may repeat candidates.
            check_candidate_count(self.num_required, available)
        if num_targets == 0 or available <= 0:
            if rows is not None:
                pairs = pairs.block(slice(*rows))
            return TargetGroups(pairs, [])
        targets = self.of_graph(pairs)
        if rows is not None:
            targets.restrict(*rows)
        return targets

    @disable_compile
    def _of_edges(
        self, edge_index: Any, edge_weight: Tensor | None, ids: GraphIds | None
    ) -> TargetGroups:
        """Assign targets with given candidates."""
        pairs = self.pairs
        settings = self.settings
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
                size.min() >= self.num_required,
                "'k' must not exceed the candidates of any target if replace=False",
                got=lambda: (
                    f'k={self.num_required}, but target {int(size.argmin())} has '
                    f'{int(size.min())}'
                ),
            )
        candidates = Candidates(size.cumsum(0) - size, size, source)
        with torch.autocast(pairs.src.device.type, enabled=False):
            return TargetGroups(pairs, self.of_lists(pairs, candidates, prior))

    @disable_compile
    def _of_batch(self, ids: GraphIds) -> TargetGroups:
        """Assign the graphs of a batch: list small ones, take large ones one by one."""
        pairs = self.pairs
        settings = self.settings
        num_graphs = 1 + max((int(i[-1]) for i in ids if i.numel()), default=-1)
        counts = [torch.bincount(i, minlength=num_graphs) for i in ids]
        sizes = list(zip(*(count.tolist() for count in counts), strict=True))
        if not settings.replace:  # With replacement, draws may repeat neighbours.
            for graph, (num_src, num_dst) in enumerate(sizes):
                if num_dst > 0:
                    available = num_src - int(not settings.loop)
                    where = f' of graph {graph}'
                    check_candidate_count(self.num_required, available, where)
        are_listed = self.are_listed(sizes)
        size = counts[0]
        graph_of_target = ids[1]
        start = size.cumsum(0) - size
        num_listed = size * size.new_tensor(are_listed)
        candidates = Candidates(start[graph_of_target], num_listed[graph_of_target])
        with torch.autocast(pairs.src.device.type, enabled=False):
            groups = self.of_lists(exclude_loops(pairs, settings), candidates)
            return TargetGroups(pairs, groups + self._of_graphs(sizes, are_listed))

    def _of_graphs(
        self, sizes: list[tuple[int, int]], are_listed: list[bool]
    ) -> list[Targets]:
        """Return one group for each graph that is not listed."""
        groups: list[Targets] = []
        first_source = first_target = 0
        # Split, not sliced: the gradient of a slice would have the size of all nodes.
        sources = self.pairs.src.split([num_src for num_src, _ in sizes])
        pairs_of_graphs = self.pairs.split([num_dst for _, num_dst in sizes])
        for src, pairs, is_listed in zip(
            sources, pairs_of_graphs, are_listed, strict=True
        ):
            if not is_listed:
                pairs = pairs._replace(src=src)
                groups.append(self.of_graph(pairs, first_source, first_target))
            first_source += src.size(0)
            first_target += pairs.dst.size(0)
        return groups

    def list_pairs(
        self, pairs: PairScores, candidates: Candidates, prior: Tensor | None
    ) -> tuple[Tensor, list[int], Tensor, Tensor] | None:
        """List candidates in blocks of targets; compare and score them.

        Returns the edges, the sizes of blocks, the compared values and the scores.
        """
        blocks = list(list_candidates(candidates, max_pairs(self.settings)))
        if not blocks:
            return None
        # At once: the gradient of each block would have the size of all nodes.
        edges, sizes = torch.cat(blocks, dim=1), [block.size(1) for block in blocks]
        value = self.cache.compare_edges(pairs, edges)
        score = pairs.edges(edges, value)
        if prior is not None:
            score = score + prior.to(score.dtype)
        if pairs.excluded is not None:  # They keep their noise, as in a block.
            score = score.masked_fill(edges[0] == edges[1], -torch.inf)
        return edges, sizes, value, score


def exclude_loops(pairs: PairScores, settings: Settings) -> PairScores:
    """Exclude each node from its own candidates, unless loops are allowed."""
    if settings.loop:
        return pairs
    every = torch.arange(pairs.dst.size(0), device=pairs.dst.device)
    return pairs._replace(excluded=every)


def max_pairs(settings: Settings) -> int:
    """Return the number of listed pairs whose draws fit the memory budget."""
    # A listed pair takes about eight numbers of eight bytes per draw.
    return max(1, settings.budget.memory // (64 * settings.k))


def _check_rows(rows: Any, num_targets: int) -> None:
    """Raise unless :obj:`rows` is a valid range of targets."""
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise TypeError(f"'rows' must be a pair of integers (got {rows!r})")
    for end in rows:
        check_count(end, 'rows', 0)
    if not rows[0] <= rows[1] <= num_targets:
        raise ValueError(
            f"'rows' must lie between 0 and the number of targets, {num_targets} "
            f'(got {tuple(rows)})'
        )


def gather_rows(
    x: Features | Ends,
    h: Tensor,
    rows: Any,
    gather: Callable[[Tensor], Tensor],
    depends_on_all_targets: Callable[[int, int], bool],
) -> tuple[Features | Ends, Tensor]:
    """Return compared rows and messages of all processes, given those of one.

    The sources of a pair are the same for all. Its targets are zero outside of
    :obj:`rows`, unless draws depend on them.
    """
    if rows is None:
        raise ValueError("'gather' needs 'rows' (got None)")
    ends = Ends.of(x)
    src, dst, is_pair = ends
    # Rows of width zero are counted, and no number is sent.
    gathered = gather(dst.new_empty(dst.size(0), 0) if is_pair else src)
    num_targets = gathered.size(0)
    _check_rows(rows, num_targets)
    start, stop = rows
    if dst.size(0) != stop - start:
        raise ValueError(
            f"'x' must hold the targets {start} to {stop} of 'rows' "
            f'(got {dst.size(0)} rows)'
        )
    if not is_pair:
        h = gathered if h is src else gather(h)
        ends = Ends(gathered, gathered, is_pair=False)
    else:
        if depends_on_all_targets(num_targets, src.size(0)):
            # The bounds of draws have no gradient.
            targets = gather(dst.detach())
            dst = torch.cat([targets[:start], dst, targets[stop:]])
        else:
            dst = F.pad(dst, (0, 0, start, num_targets - stop))
        ends = Ends(src, dst, is_pair=True)
    # All processes join the sum of gradients, even those that use no row.
    for compared in ends[:2]:
        if compared.requires_grad:
            h = h + compared[:0].sum()
    return (ends if isinstance(x, Ends) else ends.features), h
