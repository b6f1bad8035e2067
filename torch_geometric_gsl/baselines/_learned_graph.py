"""The adjacency matrix that IDGL learns, by blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.ops.edges import Edges, list_sources
from torch_geometric_gsl.ops.runtime import full_precision, row_blocks
from torch_geometric_gsl.ops.sparse_rows import SparseRows, unit_entries
from torch_geometric_gsl.typing import SampledGraph

# Keeps the logarithm of an isolated node's degree finite.
_TINY = 1e-12
# Bytes of a block of weights: those of 8,192 nodes in single precision.
_BLOCK = 2**28
#: Dense rows, or sparse rows of each head.
Rows = list[Tensor] | list[SparseRows]


class Products:
    """Inner products of rows with all of them, or with those of anchors."""

    def __init__(self, rows: Rows, anchors: Tensor | None = None) -> None:
        self.rows = rows
        own = rows if anchors is None else [part[anchors] for part in rows]
        self.sources = [_transposed(part) for part in own]

    def block(self, rows: slice) -> Tensor:
        """Compute the products of a block of rows."""
        # All sparse rows, unlike a part of them, know their entries by column.
        is_all = rows == slice(0, self.rows[0].size(0))
        parts = self.rows if is_all else [part[rows] for part in self.rows]
        pairs: Any = zip(parts, self.sources, strict=True)
        products = [part @ source for part, source in pairs]
        return torch.stack(products).sum(dim=0) if len(products) > 1 else products[0]

    @cached_property
    def whole(self) -> Tensor:
        """Compute the products of all rows, once."""
        return self.block(slice(0, self.rows[0].size(0)))

    @cached_property
    def squares(self) -> Tensor:
        """Compute the squared norms of the sources."""
        return torch.stack([part.square().sum(dim=0) for part in self.sources]).sum(0)


def _transposed(rows: Tensor | SparseRows) -> Tensor:
    if isinstance(rows, Tensor):
        return rows.t()
    place = rows.words.source.long(), rows.words.target.long()
    return rows.new_zeros(rows.size(1), rows.size(0)).index_put(place, rows.value)


def source_features(x: Tensor, anchors: Tensor | None) -> Products:
    """Return the products of the features of the sources, in full precision."""
    rows: Any
    if x.layout == torch.strided:
        rows = full_precision(x)
    else:
        rows = SparseRows(full_precision(x.values()), entries_by_row(x))
    return Products([rows if anchors is None else rows[anchors]])


def embedded_rows(metric: CosineSimilarity, x: Tensor) -> Rows:
    """Return rows whose inner products are the metric's similarities."""
    if x.layout == torch.strided:
        return [full_precision(metric.encode(x))]
    words, weight = entries_by_row(x), full_precision(metric.weight)
    heads = x.values().to(weight.dtype) * weight[:, x.col_indices()]
    root = math.sqrt(metric.heads)
    return [SparseRows(unit_entries(value, words) / root, words) for value in heads]


class LearnedGraph:
    r"""A learned graph, whose rows are targets and whose columns are sources.

    One block of rows is stored; several are computed again wherever they are needed,
    also in the backward pass. Without a threshold the weights are products of thin
    matrices, and sums along them take linear time and memory: :obj:`epsilon` is
    :obj:`None` where no similarity is negative.
    """

    def __init__(
        self,
        products: Products,
        anchors: Tensor | None,
        batch: Tensor | None,
        epsilon: float | None,
    ) -> None:
        self.products, self.anchors = products, anchors
        self.batch, self.epsilon = batch, epsilon
        self.is_product = epsilon is None and batch is None
        self._own = cast(Tensor, products.rows[0])
        self._source = products.sources[0]
        count = self._source.size(1)
        bytes_per_row = count * self._source.element_size()
        blocks = row_blocks(self._own.size(0), bytes_per_row, _BLOCK)
        # Of no nodes there is one block, which is empty.
        self.blocks = list(blocks) or [slice(0, 0)]
        self.total = self._sum(self._source.new_ones(count, 1)).squeeze(1)

    @cached_property
    def size(self) -> Tensor:
        """Return the squared norm."""
        if self.is_product:
            return self._inner(self).to(self.total.dtype)
        parts = self._map(lambda part, _: part.square().sum())
        return torch.stack(parts).sum()

    def propagate(self, h: Tensor) -> Tensor:
        """Return weighted means of messages from the sources; of none, zero."""
        with torch.autocast(h.device.type, enabled=False):
            sent = h.to(self.total.dtype)
            if self.anchors is not None:
                total = self._sum_back(torch.ones_like(sent[:, :1])).squeeze(1)
                sent = divided(self._sum_back(sent), total)
            return divided(self._sum(sent), self.total).to(h.dtype)

    def penalty(
        self, features: Products, factors: tuple[float, float, float]
    ) -> Tensor:
        """Return the regularizer, given the features of the sources."""
        smoothness, degree, sparsity = factors
        if self.anchors is None:
            total, size = self.total, self.size
        else:  # The graph of the anchors.
            parts = self._map(lambda w, rows: w.t() @ divided(w, self.total[rows]))
            steps = torch.stack(parts).sum(dim=0)
            total, size = steps.sum(dim=1), steps.square().sum()
        count = total.numel()
        loss = sparsity / count**2 * size
        loss = loss - degree / count * (total + _TINY).log().sum()
        if smoothness == 0:
            return loss
        if self.anchors is not None:
            energy = (steps * features.whole).sum()
        elif self.is_product:
            energy = (features.sources[0] @ self._own).square().sum()
        else:
            parts = self._map(lambda w, rows: (w * features.block(rows)).sum())
            energy = torch.stack(parts).sum()
        return loss + smoothness / count**2 * (total @ features.squares - energy)

    @torch.no_grad()
    def change(self, last: LearnedGraph) -> Tensor:
        """Return the squared distance from the graph before."""
        if self.is_product and last.is_product:
            return self._inner(self) - 2 * self._inner(last) + last._inner(last)
        parts = [self.weights(rows) - last.weights(rows) for rows in self.blocks]
        return torch.stack([part.square().sum() for part in parts]).sum()

    def edges(self, dtype: torch.dtype) -> SampledGraph:
        """Return the positive weights, divided by the sum of their target."""
        ends, shares = [], []
        for rows in self.blocks:
            part = self.weights(rows)
            target, source = (part.detach() > 0).nonzero(as_tuple=True)
            shares.append(part[target, source] / self.total[rows][target])
            source = source if self.anchors is None else self.anchors[source]
            ends.append(torch.stack([source, target + rows.start]))
        return SampledGraph(torch.cat(ends, dim=1), torch.cat(shares).to(dtype))

    def _inner(self, other: LearnedGraph) -> Tensor:
        """Return the inner product of two graphs, both products of thin matrices.

        In double precision: the change is a small difference of large ones.
        """
        one, two = ((g._own.double(), g._source.double()) for g in (self, other))
        return ((one[0].t() @ two[0]) * (one[1] @ two[1].t())).sum()

    def weights(self, rows: slice) -> Tensor:
        """Return the weights of a block of rows."""
        return self._whole if len(self.blocks) == 1 else self._weights(rows)

    def _sum(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the sources."""
        if self.is_product:
            return self._own @ (self._source @ h)
        return torch.cat(self._map(lambda part, _: part @ h))

    def _sum_back(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the targets."""
        if self.is_product:
            return self._source.t() @ (self._own.t() @ h)
        parts = self._map(lambda part, rows: part.t() @ h[rows])
        return torch.stack(parts).sum(dim=0)

    def _map(self, function: Callable[[Tensor, slice], Any]) -> list[Any]:
        """Evaluate a function of the weights of each block of rows."""
        if len(self.blocks) == 1:
            return [function(self._whole, self.blocks[0])]
        keep: Any = {'use_reentrant': False, 'preserve_rng_state': False}

        def run(rows: slice) -> Any:
            return function(self._weights(rows), rows)

        return [checkpoint(run, rows, **keep) for rows in self.blocks]

    @cached_property
    def _whole(self) -> Tensor:
        return self._weights(self.blocks[0])

    def _weights(self, rows: slice) -> Tensor:
        with torch.autocast(self._source.device.type, enabled=False):
            part = self.products.block(rows)
        if self.epsilon is not None:
            part = F.threshold(part, self.epsilon, 0.0)
        if self.batch is None:
            return part
        sources = self.batch if self.anchors is None else self.batch[self.anchors]
        return part.masked_fill(self.batch[rows].unsqueeze(1) != sources, 0)


def divided(value: Tensor, total: Tensor) -> Tensor:
    """Divide sums of weighted values by sums of weights, which may be zero."""
    return value / total.masked_fill(total == 0, 1).unsqueeze(1)


def normalized_prior(graph: SampledGraph, num_nodes: int) -> Edges:
    """Add self-loops to the graph to start from, and normalize it as in GCN."""
    edges, weight = gcn_norm(*graph, num_nodes)
    edges, weight = sort_edge_index(edges, weight, num_nodes, sort_by_row=False)
    return Edges(list_sources(edges, num_nodes), weight)
