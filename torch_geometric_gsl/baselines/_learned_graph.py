"""The adjacency matrix that IDGL learns."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.ops.edges import Edges, list_sources
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.ops.sparse_rows import SparseRows, unit_entries
from torch_geometric_gsl.typing import SampledGraph

# Keeps the logarithm of an isolated node's degree finite.
_TINY = 1e-12


class Factors(NamedTuple):
    """Dense or sparse rows [n, m], and the transposed rows [m, s] of the sources."""

    own: Any
    source: Tensor

    def product(self) -> Tensor:
        """Return the inner products of rows and sources."""
        product: Tensor = self.own @ self.source
        return product


def compared_rows(x: Tensor, metric: CosineSimilarity | None = None) -> list[Any]:
    """Return dense rows, or the sparse rows of each head, in full precision.

    The sum of their inner products is the metric's similarity, or that of the features.
    """
    if x.layout == torch.strided:
        return [full_precision(x if metric is None else metric.encode(x))]
    words, value = entries_by_row(x), full_precision(x.values())
    if metric is None:
        return [SparseRows(value, words)]
    weight = full_precision(metric.weight)
    heads = value.to(weight.dtype) * weight[:, x.col_indices()]
    root = math.sqrt(metric.heads)
    return [SparseRows(unit_entries(head, words) / root, words) for head in heads]


def factors_of(rows: Any, anchors: Tensor | None = None) -> Factors:
    """Pair rows with all of them, or with those of the anchors."""
    own = rows if anchors is None else rows[anchors]
    if isinstance(own, Tensor):
        return Factors(rows, own.t())
    place = own.words.source.long(), own.words.target.long()
    source = own.new_zeros(own.size(1), own.size(0)).index_put(place, own.value)
    return Factors(rows, source)


class Features(NamedTuple):
    """The features of the sources, transposed: their squared norms and products."""

    source: Tensor
    squares: Tensor
    products: Tensor


def source_features(x: Tensor, anchors: Tensor | None) -> Features:
    """Return the features that the smoothness of a graph depends on."""
    (rows,) = compared_rows(x)
    factors = factors_of(rows if anchors is None else rows[anchors])
    squares = factors.source.square().sum(dim=0)
    return Features(factors.source, squares, factors.product())


class LearnedGraph:
    r"""A learned graph, whose rows are targets and whose columns are sources.

    It has dense weights, or, where no similarity is negative and none is removed, the
    factors of these: sums along it then take linear time and memory.
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
        pairs = [factors_of(rows, anchors) for rows in compared_rows(h, metric)]
        self.factors = pairs[0] if epsilon is None and batch is None else None
        self._dense: Any = None
        if self.factors is None:
            first, *others = (pair.product() for pair in pairs)
            self._dense = sum(others, first)
        if epsilon is not None:
            self._dense = F.threshold(self._dense, epsilon, 0.0)
        if batch is not None:
            sources = batch if anchors is None else batch[anchors]
            self._dense = self._dense.masked_fill(batch.unsqueeze(1) != sources, 0)
        source = pairs[0].source
        self.total = self._sum(source.new_ones(source.size(1), 1)).squeeze(1)

    @property
    def weights(self) -> Tensor:
        """Return the dense weights."""
        if self.factors is None:
            weights: Tensor = self._dense
            return weights
        with torch.autocast(self.total.device.type, enabled=False):
            return self.factors.product()

    @property
    def size(self) -> Tensor:
        """Return the squared norm."""
        if self.factors is None:
            return self.weights.square().sum()
        return _inner(self.factors, self.factors).to(self.total.dtype)

    def propagate(self, h: Tensor) -> Tensor:
        """Return weighted means of messages from the sources; of none, zero."""
        with torch.autocast(h.device.type, enabled=False):
            sent = h.to(self.total.dtype)
            if self.anchors is not None:
                total = self._sum_back(torch.ones_like(sent[:, :1])).squeeze(1)
                sent = divided(self._sum_back(sent), total)
            return divided(self._sum(sent), self.total).to(h.dtype)

    def penalty(
        self, features: Features | None, factors: tuple[float, float, float]
    ) -> Tensor:
        """Return the regularizer, given the features of the sources if it is smooth."""
        smoothness, degree, sparsity = factors
        total, size, steps = self.total, self.size, None
        if self.anchors is not None:  # The graph of the anchors.
            steps = self._steps()
            total, size = steps.sum(dim=1), steps.square().sum()
        count = total.numel()
        loss = sparsity / count**2 * size
        loss = loss - degree / count * (total + _TINY).log().sum()
        if features is None:
            return loss
        if steps is None and self.factors is not None:
            energy: Tensor = (features.source @ self.factors.own).square().sum()
        else:
            weights = self._dense if steps is None else steps
            energy = (weights * features.products).sum()
        loss = loss + smoothness / count**2 * (total @ features.squares - energy)
        return loss

    @torch.no_grad()
    def change(self, last: LearnedGraph) -> Tensor:
        """Return the squared distance from the graph before."""
        if self.factors is None or last.factors is None:
            return (self.weights - last.weights).square().sum()
        one, two = self.factors, last.factors
        return _inner(one, one) - 2 * _inner(one, two) + _inner(two, two)

    def edges(self, dtype: torch.dtype) -> SampledGraph:
        """Return the positive weights, divided by the sum of their target."""
        weights = self.weights
        target, source = (weights.detach() > 0).nonzero(as_tuple=True)
        shares = weights[target, source] / self.total[target]
        source = source if self.anchors is None else self.anchors[source]
        return SampledGraph(torch.stack([source, target]), shares.to(dtype))

    def _steps(self) -> Tensor:
        """Return the weights of the steps from anchor to anchor."""
        if self.factors is None:
            return self._sum_back(divided(self.weights, self.total))
        steps = self._sum_back(divided(self.factors.own, self.total))
        return steps @ self.factors.source

    def _sum(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the sources."""
        if self.factors is None:
            return self.weights @ h
        out: Tensor = self.factors.own @ (self.factors.source @ h)
        return out

    def _sum_back(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the targets."""
        if self.factors is None:
            return self.weights.t() @ h
        out: Tensor = self.factors.source.t() @ (self.factors.own.t() @ h)
        return out


def _inner(one: Factors, two: Factors) -> Tensor:
    """Return the inner product of two matrices of factors, in double precision: a
    change is a small difference of large ones.
    """
    own: Tensor = one.own.double().t() @ two.own.double()
    return (own * (one.source.double() @ two.source.double().t())).sum()


def divided(value: Tensor, total: Tensor) -> Tensor:
    """Divide sums of weighted values by sums of weights, which may be zero."""
    return value / total.masked_fill(total == 0, 1).unsqueeze(1)


def normalized_prior(graph: SampledGraph, num_nodes: int) -> Edges:
    """Add self-loops to the graph to start from, and normalize it as in GCN."""
    edges, weight = gcn_norm(*graph, num_nodes)
    edges, weight = sort_edge_index(edges, weight, num_nodes, sort_by_row=False)
    return Edges(list_sources(edges, num_nodes), weight)
