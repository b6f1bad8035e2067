"""The adjacency matrix that IDGL learns."""

from __future__ import annotations

import math
from functools import reduce
from operator import matmul
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import sort_edge_index

from reproduction.self_supervision.functional import list_sources
from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.nn.similarity.linear_similarity import CosineSimilarity
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.ops.sparse_rows import SparseRows, unit_entries
from torch_geometric_gsl.typing import SampledGraph

# Keeps the logarithm of an isolated node's degree finite.
_TINY = 1e-12


def compared_rows(x: Tensor, metric: CosineSimilarity | None = None) -> list[Any]:
    """Return rows, or sparse rows by heads, whose products add up to similarities."""
    if x.layout == torch.strided:
        return [full_precision(x if metric is None else metric.encode(x))]
    words, value = entries_by_row(x), full_precision(x.values())
    if metric is None:
        return [SparseRows(value, words)]
    weight = full_precision(metric.weight)
    heads = value.to(weight.dtype) * weight[:, x.col_indices()]
    root = math.sqrt(metric.heads)
    return [SparseRows(unit_entries(head, words) / root, words) for head in heads]


def transposed(rows: Any) -> Tensor:
    """Return dense or sparse rows as the columns of a dense matrix."""
    if isinstance(rows, Tensor):
        return rows.t()
    position = rows.words.source.long(), rows.words.target.long()
    empty: Tensor = rows.new_zeros(rows.size(1), rows.size(0))
    return empty.index_put(position, rows.value)


class Features(NamedTuple):
    """The features of the sources, transposed: their squared norms and products."""

    source: Tensor
    squares: Tensor
    products: Tensor


def source_features(x: Tensor, anchors: Tensor | None) -> Features:
    """Return the features that the smoothness of a graph depends on."""
    (rows,) = compared_rows(x)
    rows = rows if anchors is None else rows[anchors]
    source = transposed(rows)
    return Features(source, source.square().sum(dim=0), rows @ source)


class LearnedGraph:
    """A learned graph; its rows are targets, its columns are sources.

    Its weights are a dense matrix, or, without :obj:`epsilon`, the product of two thin
    factors, for dense rows with non-negative similarities.
    """

    def __init__(
        self,
        metric: CosineSimilarity,
        h: Tensor,
        anchors: Tensor | None,
        batch: Tensor | None,
        epsilon: float | None,
    ) -> None:
        self.anchors = anchors
        heads = [
            (rows, transposed(rows if anchors is None else rows[anchors]))
            for rows in compared_rows(h, metric)
        ]
        self.factors: list[Tensor]
        if epsilon is None:
            ((target, source),) = heads
            self.factors = [target, source]
        else:
            weights = reduce(torch.add, (target @ source for target, source in heads))
            weights = F.threshold(weights, epsilon, 0.0)
            if batch is not None:
                sources = batch if anchors is None else batch[anchors]
                weights = weights.masked_fill(batch.unsqueeze(1) != sources, 0)
            self.factors = [weights]
        last = self.factors[-1]
        self.total = self._sum(last.new_ones(last.size(1), 1)).squeeze(1)

    @property
    def weights(self) -> Tensor:
        """Return the dense weights."""
        return reduce(matmul, self.factors)

    @property
    def size(self) -> Tensor:
        """Return the squared norm."""
        if len(self.factors) == 1:
            return self.factors[0].square().sum()
        return _inner(self.factors, self.factors).to(self.total.dtype)

    def propagate(self, h: Tensor) -> Tensor:
        """Return weighted means of messages from the sources; zero without sources."""
        sent = h.to(self.total.dtype)
        if self.anchors is not None:
            total = self._sum_back(torch.ones_like(sent[:, :1])).squeeze(1)
            sent = divided(self._sum_back(sent), total)
        return divided(self._sum(sent), self.total).to(h.dtype)

    def penalty(
        self, features: Features | None, factors: tuple[float, float, float]
    ) -> Tensor:
        """Compute the regularizer; smoothness requires the features of the sources."""
        smoothness, degree, sparsity = factors
        total = self.total
        size = self.size
        steps = None
        if self.anchors is not None:  # The graph of the anchors.
            target_factor, *source_factors = self.factors
            back = self._sum_back(divided(target_factor, total))
            steps = reduce(matmul, source_factors, back)
            total = steps.sum(dim=1)
            size = steps.square().sum()
        count = total.numel()
        loss = sparsity / count**2 * size
        loss = loss - degree / count * (total + _TINY).log().sum()
        if features is None:
            return loss
        if steps is None and len(self.factors) > 1:
            energy: Tensor = (features.source @ self.factors[0]).square().sum()
        else:
            weights = self.factors[0] if steps is None else steps
            energy = (weights * features.products).sum()
        loss = loss + smoothness / count**2 * (total @ features.squares - energy)
        return loss

    @torch.no_grad()
    def change(self, last: LearnedGraph) -> Tensor:
        """Return the squared distance from the previous graph."""
        if len(self.factors) != len(last.factors) or len(self.factors) == 1:
            return (self.weights - last.weights).square().sum()
        both = _inner(self.factors, last.factors)
        squares = _inner(self.factors, self.factors), _inner(last.factors, last.factors)
        return squares[0] - 2 * both + squares[1]

    def edges(self, dtype: torch.dtype) -> SampledGraph:
        """Return the positive weights, divided by their sum per target."""
        weights = self.weights
        target, source = (weights.detach() > 0).nonzero(as_tuple=True)
        shares = weights[target, source] / self.total[target]
        source = source if self.anchors is None else self.anchors[source]
        return SampledGraph(torch.stack([source, target]), shares.to(dtype))

    def _sum(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the sources."""
        for factor in reversed(self.factors):
            h = factor @ h
        return h

    def _sum_back(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the targets."""
        for factor in self.factors:
            h = factor.t() @ h
        return h


def _inner(factors: list[Tensor], other_factors: list[Tensor]) -> Tensor:
    """Return the inner product of two products of factors."""
    # In double precision: a change is a small difference of large products.
    left, right = (factor.double() for factor in factors)
    other_left, other_right = (factor.double() for factor in other_factors)
    return ((left.t() @ other_left) * (right @ other_right.t())).sum()


def divided(value: Tensor, total: Tensor) -> Tensor:
    """Divide sums of weighted values by sums of weights, which may be zero."""
    return value / total.masked_fill(total == 0, 1).unsqueeze(1)


def normalized_prior(graph: SampledGraph, num_nodes: int) -> Edges:
    """Add self-loops to the initial graph, and normalize it as in GCN."""
    edges, weight = gcn_norm(*graph, num_nodes)
    edges, weight = sort_edge_index(edges, weight, num_nodes, sort_by_row=False)
    return Edges(list_sources(edges, num_nodes), weight)
