"""Parts of the table network: residual blocks, and the sum over neighbours."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_gsl._checks import (
    Ends,
    check_absent,
    check_batch,
    check_count,
    check_probability,
    check_value,
    check_vector,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.dense import relaxed_weights
from torch_geometric_gsl.ops.edges import empty_graph
from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.noise_free import noise_free_weights
from torch_geometric_gsl.ops.pair_scores import (
    PairScores,
    Sources,
    distances_as_dots,
    is_distance,
    with_null,
)
from torch_geometric_gsl.ops.pool import pool_softmax, pool_sum
from torch_geometric_gsl.ops.runtime import full_precision, is_exporting, row_blocks
from torch_geometric_gsl.ops.search import best_sources
from torch_geometric_gsl.typing import Features, SampledGraph

# Bytes of one block of a ranking.
_RANKING_BUDGET = 2**27
# Logarithm of the largest weight over the smallest that is not zero.
_LOG_RANGE = 30.0


class ResidualBlock(torch.nn.Module):
    r"""Add two linear maps of normalised hidden units to these.

    .. math::
        \mathbf{h} + \mathbf{W}_2 \, \sigma(\mathbf{W}_1 \, \mathrm{norm}(\mathbf{h}))
    """

    def __init__(self, channels: int, act: str, dropout: float) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(channels)
        self.lin1 = torch.nn.Linear(channels, 2 * channels)
        self.act = activation_resolver(act)
        self.lin2 = torch.nn.Linear(2 * channels, channels)
        self.dropout = dropout

    def forward(self, h: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Compute the hidden units of the next block."""
        hidden = self.act(self.lin1(self.norm(h)))
        hidden = dropout(hidden, self.dropout, self.training, generator)
        out: Tensor = h + self.lin2(hidden)
        return out


class RowMask(NamedTuple):
    """The rows that a row of the same tensor does not see: itself, and some others."""

    batch: Tensor | None = None  # Sorted; rows see those of the same number.
    group: Tensor | None = None  # Rows of the same number do not see each other.
    order: Tensor | None = None  # Rows see those of a lower number.

    def check(self, x: Tensor) -> None:
        """Raise unless each vector has one number per row."""
        if self.batch is not None:
            check_batch(self.batch, x)
        for name, value in (('group', self.group), ('order', self.order)):
            if value is not None:
                check_vector(value, name, x)
                # NaN is neither equal to itself nor ordered.
                check_value(~value.isnan().any(), f"'{name}' must not contain NaN")

    def blocks(self, num_rows: int) -> list[range]:
        """Return the rows of each number of the batch."""
        if self.batch is None:
            return [range(num_rows)]
        _, sizes = self.batch.unique_consecutive(return_counts=True)
        stops = sizes.cumsum(0).tolist()
        return [range(*bounds) for bounds in pairwise([0, *stops])]

    def mask(self, block: range, rows: slice, device: torch.device) -> Tensor:
        """Return which rows of a block are hidden from some of them."""
        start, stop, _ = rows.indices(len(block))
        index = torch.arange(block.start, block.stop, device=device)
        mask = index[start:stop].unsqueeze(1) == index
        if self.group is not None:
            group = self.group[block.start : block.stop]
            mask = group[start:stop].unsqueeze(1) == group
        if self.order is not None:
            order = self.order[block.start : block.stop]
            mask = mask | (order[start:stop].unsqueeze(1) <= order)
        return mask


class PreparedSources(NamedTuple):
    """Indexed keys, their embeddings, and these in single precision."""

    key: Tensor
    embedding: Tensor
    single: Sources


class TableNeighbours(torch.nn.Module):
    r"""Sum the messages of neighbours, weighted by a softmax of their scores.

    .. math::
        \sum_{j \neq i} \mathrm{softmax}_j(\lambda \, \phi(z_i, z_j)) \, m_j

    In training mode the sum runs over all sources, with dropout, or over relaxed draws
    with :math:`\tau = 1`; in evaluation mode over the :obj:`eval_k` nearest. The
    arguments are those of :class:`~torch_geometric_gsl.nn.TableNet`; the scale
    :math:`\lambda` is learned.
    """

    def __init__(
        self,
        similarity: Similarity,
        *,
        draws: int | None = None,
        graph_dropout: float = 0.2,
        eval_k: int = 96,
        initial_scale: float = 1.0,
        null_score: float | None = None,
    ) -> None:
        super().__init__()
        if draws is not None:
            check_count(draws, 'draws')
        check_probability(graph_dropout, 'graph_dropout')
        self.draws = draws
        self.graph_dropout = graph_dropout
        self.sampler = GumbelKNNSampler(
            similarity,
            draws or 1,
            1.0,
            scale=initial_scale,
            train_scale=True,
            loop=False,
            eval_k=eval_k,
            null_score=null_score,
        )
        self._prepared: PreparedSources | None = None

    def forward(
        self,
        z: Features,
        message: Tensor,
        *,
        row_mask: RowMask | None = None,
        generator: torch.Generator | None = None,
        return_graph: bool = False,
    ) -> tuple[Tensor, SampledGraph | None]:
        """Compute the sums of the targets, and optionally their graph.

        With one tensor of keys no row is its own neighbour, nor are those that
        :obj:`row_mask` hides from it.
        """
        num_sources, num_targets = (x.size(0) for x in Ends.of(z)[:2])
        available = num_sources - int(isinstance(z, Tensor))
        is_drawn = self.training and self.draws is not None and row_mask is None
        has_null = self.sampler.null_score is not None
        is_exported = is_exporting()
        if is_exported:
            check_absent(row_mask, 'batch, group or order', "by 'torch.export'")
        if is_exported and has_null and not self.training and not return_graph:
            score = self._pairs(z, in_double=True).rows()
            return self._weights(score, None).to(message.dtype) @ message, None
        if is_exported or (is_drawn and available > 0):
            out: Any = self.sampler.propagate(
                z, message, generator=generator, return_graph=return_graph
            )
            return out if return_graph else (out, None)
        if available <= 0:
            total = message.new_zeros(num_targets, message.size(1))
            return total, empty_graph(total) if return_graph else None
        k = available if self.training else self.sampler.num_nearest or available
        if isinstance(z, Tensor) and (row_mask is not None or has_null):
            row_mask = row_mask or RowMask()
            return self._sum_blocks(z, message, row_mask, generator, return_graph)
        if k < available:
            return self._sum_nearest(*self._nearest(z, k), message, return_graph)
        if has_null:
            return self._sum_blocks(z, message, None, generator, return_graph)
        return self._sum_all(z, message, generator, return_graph)

    def _sum_blocks(
        self,
        z: Features,
        message: Tensor,
        row_mask: RowMask | None,
        generator: torch.Generator | None,
        return_graph: bool,
    ) -> tuple[Tensor, SampledGraph | None]:
        """Sum over the rows that each row sees, or all of a pair, by dense products."""
        # Keys of lower precision would not tell near rows apart.
        if isinstance(z, Tensor):
            z = full_precision(z)
        else:
            z = full_precision(z[0]), full_precision(z[1])
        similarity = self.sampler.similarity
        # Single precision would not rank near rows.
        score_pairs = (
            similarity.pair_scores if self.training else similarity.exact_scores
        )
        with torch.autocast(message.device.type, enabled=False):
            pairs = score_pairs(z, self.sampler.factor)
            if is_distance(pairs) and self.sampler.null_score is None:
                pairs = distances_as_dots(pairs)
        blocks = [range(pairs.dst.size(0))]
        if row_mask is not None:
            blocks = row_mask.blocks(pairs.dst.size(0))
        sizes = [len(block) for block in blocks]
        src_sizes = [message.size(0)] if row_mask is None else sizes
        splits = pairs.split(sizes), pairs.src.split(src_sizes)
        messages = message.split(src_sizes)
        totals = []
        graphs = []
        for block, block_pairs, src, h in zip(blocks, *splits, messages, strict=True):
            block_pairs = block_pairs._replace(src=src)
            rows_of_block = row_blocks(len(block), 16 * len(src), _RANKING_BUDGET)
            if row_mask is None and not rows_of_block:
                rows_of_block = [slice(0, 0)]  # Without targets, sums have a gradient.
            for rows in rows_of_block:
                with torch.autocast(h.device.type, enabled=False):
                    score = block_pairs.rows(rows)
                    if row_mask is not None:
                        mask = row_mask.mask(block, rows, score.device)
                        score = score.masked_fill(mask, -torch.inf)
                    weight = self._weights(score, generator)
                totals.append(weight.to(h.dtype) @ h)
                if return_graph:
                    edges = weight.nonzero().t().flip(0) + block.start
                    edges[1] += rows.start
                    listed = weight[weight != 0].to(Ends.of(z).src.dtype)
                    graphs.append(SampledGraph(edges, listed))
        total = torch.cat(totals)
        if not return_graph:
            return total, None
        edge_index = torch.cat([graph.edge_index for graph in graphs], dim=1)
        edge_weight = torch.cat([graph.edge_weight for graph in graphs])
        return total, SampledGraph(edge_index, edge_weight)

    def _weights(self, score: Tensor, generator: torch.Generator | None) -> Tensor:
        """Turn scores of all sources into weights; zero where they are hidden."""
        num_sources = score.size(1)
        k = self.sampler.num_nearest or num_sources
        if not self.training and k < num_sources:
            best = score.topk(k, dim=1)
            score = torch.full_like(score, -torch.inf)
            score = score.scatter(1, best.indices, best.values)
        score = with_null(score, self.sampler.null_score)
        # Weights that round to zero would be denormal numbers, which are slow.
        largest = score.detach().amax(dim=1, keepdim=True)
        has_none = largest == -torch.inf
        score = score.masked_fill(score < largest - _LOG_RANGE, -torch.inf)
        score = score.masked_fill(has_none, 0.0)
        if self.training and self.draws is not None:
            tau = self.sampler.tau
            weight = relaxed_weights(score, self.draws, tau, generator=generator)
        else:
            weight = score.softmax(dim=1)
            weight = dropout(weight, self.graph_dropout, self.training, generator)
        return weight[:, :num_sources].masked_fill(has_none, 0.0)

    def _sum_all(
        self,
        z: Features,
        message: Tensor,
        generator: torch.Generator | None,
        return_graph: bool,
    ) -> tuple[Tensor, SampledGraph | None]:
        """Sum over all sources that are not negligible, by sparse products."""
        pairs = self._pairs(z)
        if is_distance(pairs):
            pairs = distances_as_dots(pairs)
        p = self.graph_dropout if self.training else 0.0
        weigh = partial(pool_softmax, p=p, generator=generator)
        if not return_graph:
            return pool_sum(message, pairs, weigh), None
        neighbours, weight = weigh(pairs)
        total = neighbour_sum(message, weight.to(message.dtype), neighbours)
        edges = torch.stack([neighbours.source, neighbours.target]).long()
        return total, SampledGraph(edges[:, weight > 0], weight[weight > 0])

    def _sum_nearest(
        self, source: Tensor, score: Tensor, message: Tensor, return_graph: bool = False
    ) -> tuple[Tensor, SampledGraph | None]:
        """Sum over the nearest sources of each target, given their scores."""
        # Not by the sampler: it prepares no sources, so that it takes six times as long
        # for a few rows, and weighs a null neighbour relative to all sources.
        weight = noise_free_weights(score, 1.0, self.sampler.null_score)
        neighbours = Neighbours(source, message.size(0))
        total = neighbour_sum(message, weight.to(message.dtype), neighbours)
        graph = neighbour_graph(source, weight, weight > 0) if return_graph else None
        return total, graph

    def distance(self, z: Features) -> Tensor:
        """Return the negative of the best score of each target."""
        _, score = self._nearest(z, 1)
        return -score.squeeze(1)

    def sum_and_distance(
        self, z: tuple[Tensor, Tensor], message: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return both for targets in evaluation mode, by one search if it is long."""
        k = self.sampler.num_nearest
        if k is None or k >= message.size(0):
            return self(z, message)[0], self.distance(z)
        source, score = self._nearest(z, k)
        return self._sum_nearest(source, score, message)[0], -score[:, 0]

    def prepare(self, key: Tensor | None) -> None:
        """Prepare sources for many searches; drop the previous ones."""
        self._prepared = None
        similarity = self.sampler.similarity
        # Parameters may change, or be loaded later.
        is_fixed = next(similarity.parameters(), None) is None
        if key is not None and not key.requires_grad and is_fixed:
            pairs = similarity.pair_scores((key, key[:0]))
            if is_distance(pairs):
                single = Sources.of(pairs.src).single()
                self._prepared = PreparedSources(key, pairs.src, single)

    def _pairs(self, z: Features, *, in_double: bool = False) -> PairScores:
        """Return the scores of all pairs on demand; no row is its own source."""
        similarity = self.sampler.similarity
        score_pairs = similarity.exact_scores if in_double else similarity.pair_scores
        pairs = score_pairs(z, self.sampler.factor)
        if not isinstance(z, Tensor):
            return pairs
        return pairs._replace(excluded=torch.arange(z.size(0), device=z.device))

    def _nearest(self, z: Features, k: int) -> tuple[Tensor, Tensor]:
        """Return the best sources of each target, and their scores."""
        prepared = self._prepared
        single: Sources | None = None
        is_pair = not isinstance(z, Tensor)
        if prepared is not None and is_pair and z[0] is prepared.key:
            # The keys are checked already.
            pairs = self._pairs((z[1][:0], z[1]))._replace(src=prepared.embedding)
            single = prepared.single
        else:
            pairs = self._pairs(z)
        with torch.autocast(pairs.src.device.type, enabled=False):
            ranks = pairs.detach()
            if not is_distance(ranks):
                # Single precision would not tell the cosines of near rows apart.
                ranks = self._pairs(z, in_double=True)
            ranks = ranks._replace(memory=_RANKING_BUDGET)
            source = best_sources(ranks, k, single)
            return source, pairs.listed(source)
