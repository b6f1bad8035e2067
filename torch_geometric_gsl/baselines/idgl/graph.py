"""The graphs of IDGL: messages along them, and the regularizer of learned ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl.baselines.idgl.pairs import Pairs, inner
from torch_geometric_gsl.ops.edges import Edges, list_sources
from torch_geometric_gsl.typing import SampledGraph

# Keeps the logarithm of an isolated node's degree finite.
_TINY = 1e-12


class Graph(ABC):
    """A learned graph; rows are targets, columns sources."""

    #: The sums of the weights of targets, and the squared norm.
    total: Tensor
    size: Tensor
    #: Whether strips of the weights leave out mirror images.
    is_symmetric = False

    def propagate(self, h: Tensor) -> Tensor:
        """Return weighted means of messages from the sources; of none, zero."""
        with torch.autocast(h.device.type, enabled=False):
            return self._means(h.to(self.total.dtype)).to(h.dtype)

    def _means(self, h: Tensor) -> Tensor:
        return divided(self._send(h), self.total)

    @abstractmethod
    def _send(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the sources."""

    def penalty(self, square: Tensor, factors: tuple[float, float, float]) -> Tensor:
        """Return the regularizer, given the squared norms of features of sources."""
        total, size, energy = self._measures()
        num_nodes = total.numel()
        smoothness, degree, sparsity = factors
        return (
            smoothness / num_nodes**2 * (total @ square - energy)
            - degree / num_nodes * (total + _TINY).log().sum()
            + sparsity / num_nodes**2 * size
        )

    @abstractmethod
    def _measures(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sums of the weights of each source, their squared norm, and their
        inner product with the products of features, for autograd.
        """

    @torch.no_grad()
    def change(self, last: Graph) -> Tensor:
        """Return the squared distance from the graph before."""
        strips = zip(self.strips(), last.strips(), strict=True)
        parts = (own - old for own, old in strips)
        if self.is_symmetric:
            return torch.stack([inner(part, part) for part in parts]).sum()
        return torch.stack([part.square().sum() for part in parts]).sum()

    @abstractmethod
    def strips(self) -> Iterator[Tensor]:
        """Yield the weights by strips of rows, each pair of a symmetric graph once."""

    @abstractmethod
    def weights(self) -> Iterator[Tensor]:
        """Yield the weights by strips of rows."""

    def edges(self, anchors: Tensor | None, dtype: torch.dtype) -> SampledGraph:
        """Return the positive weights, divided by the sum of their target."""
        ends, shares, first = [], [], 0
        with torch.autocast(self.total.device.type, enabled=False):
            for part in self.weights():
                target, source = (part.detach() > 0).nonzero(as_tuple=True)
                shares.append(part[target, source] / part.sum(dim=1)[target])
                source = source if anchors is None else anchors[source]
                ends.append(torch.stack([source, target + first]))
                first += part.size(0)
        return SampledGraph(torch.cat(ends, dim=1), torch.cat(shares).to(dtype))


class ThroughAnchors(Graph):
    """A learned graph of nodes and anchors: messages run to the anchors and back."""

    #: The sums of the weights of anchors, and the products of their features, if the
    #: penalty needs them.
    of_anchors: Tensor
    products: Tensor | None
    is_symmetric = False

    def _means(self, h: Tensor) -> Tensor:
        return super()._means(divided(self._send_back(h), self.of_anchors))

    def _measures(self) -> tuple[Tensor, Tensor, Tensor]:
        steps = self._steps()
        energy = steps.new_zeros(())
        if self.products is not None:
            energy = (steps * self.products).sum()
        return steps.sum(dim=1), steps.square().sum(), energy

    @abstractmethod
    def _send_back(self, h: Tensor) -> Tensor:
        """Return weighted sums of the messages of the targets."""

    @abstractmethod
    def _steps(self) -> Tensor:
        """Return the weights of the steps from anchor to anchor."""


class AnchorGraph(ThroughAnchors):
    """A learned graph of nodes and anchors, by its weights."""

    def __init__(self, weights: Tensor, products: Tensor | None) -> None:
        self._weights = weights
        self.products = products
        self.total, self.of_anchors = weights.sum(dim=1), weights.sum(dim=0)
        self.size = weights.detach().square().sum()

    def strips(self) -> Iterator[Tensor]:
        yield self._weights

    weights = strips

    def _send(self, h: Tensor) -> Tensor:
        return self._weights @ h

    def _send_back(self, h: Tensor) -> Tensor:
        return self._weights.t() @ h

    def _steps(self) -> Tensor:
        return self._weights.t() @ divided(self._weights, self.total)


class Factored(Graph):
    """A learned graph of all nodes in linear time, by factors of its weights.

    Cosines of rows that are not negative are not negative either, and a threshold of
    zero changes nothing: the weights are products of thin matrices, and so are their
    gradients. None of them needs to be formed.
    """

    is_symmetric = True

    def __init__(
        self,
        own: Tensor,
        sources: Tensor,
        features: Pairs | None,
        blocks: list[slice],
    ) -> None:
        self.own, self.sources = own, sources
        self.features = features
        self.blocks = blocks
        self.total = own @ sources.sum(dim=0)
        own, sources = own.detach(), sources.detach()
        self.size = ((own.t() @ own) * (sources.t() @ sources)).sum()

    def _measures(self) -> tuple[Tensor, Tensor, Tensor]:
        size, energy = (self.own.t() @ self.own).square().sum(), self.own.new_zeros(())
        if self.features is not None:
            energy = self.features.column_sums(self.own).square().sum()
        return self.total, size, energy

    @torch.no_grad()
    def change(self, last: Graph) -> Tensor:
        if not isinstance(last, Factored):
            return super().change(last)
        # No difference of large numbers: of a matrix [v, w] only R is needed.
        own = torch.cat([self.own, -last.own], dim=1)
        sources = torch.cat([self.sources, last.sources], dim=1)
        first, second = (torch.linalg.qr(f, mode='r').R for f in (own, sources))
        distance: Tensor = (first @ second.t()).square().sum()
        return distance

    def strips(self) -> Iterator[Tensor]:
        sources = self.sources.t()
        return (self.own[rows] @ sources[:, rows.start :] for rows in self.blocks)

    def weights(self) -> Iterator[Tensor]:
        return (self.own[rows] @ self.sources.t() for rows in self.blocks)

    def _send(self, h: Tensor) -> Tensor:
        return self.own @ (self.sources.t() @ h)


class FactoredAnchors(ThroughAnchors, Factored):
    """A learned graph of nodes and anchors in linear time, by such factors."""

    def __init__(self, own: Tensor, sources: Tensor, products: Tensor | None) -> None:
        super().__init__(own, sources, None, [slice(None)])
        self.products = products
        self.of_anchors = sources @ own.sum(dim=0)

    def _send_back(self, h: Tensor) -> Tensor:
        return self.sources @ (self.own.t() @ h)

    def _steps(self) -> Tensor:
        inside = self.own.t() @ divided(self.own, self.total)
        return self.sources @ inside @ self.sources.t()


def divided(value: Tensor, total: Tensor) -> Tensor:
    """Divide sums of weighted values by sums of weights, which may be zero."""
    return value / total.masked_fill(total == 0, 1).unsqueeze(1)


def normalized_prior(graph: SampledGraph, num_nodes: int) -> Edges:
    """Add self-loops to the graph to start from, and normalize it as in GCN."""
    edge_index, weight = gcn_norm(*graph, num_nodes)
    edge_index, weight = sort_edge_index(
        edge_index, weight, num_nodes, sort_by_row=False
    )
    return Edges(list_sources(edge_index, num_nodes), weight)


@dataclass(eq=False)
class Mixture:
    """Messages along the prior graph, the first learned one and the present one.

    The first layer sends :obj:`start` in each iteration.
    """

    prior: Edges | None
    first: Graph
    start: Tensor
    skip_weight: float
    update_weight: float

    def propagate(self, h: Tensor, present: Graph) -> Tensor:
        """Mix the messages of a layer."""
        is_start = h is self.start
        learned, before = self._of_start if is_start else self._without_present(h)
        if present is not self.first:
            learned = torch.lerp(learned, present.propagate(h), self.update_weight)
        if before is None:
            return learned
        return torch.lerp(learned, before, self.skip_weight)

    @cached_property
    def _of_start(self) -> tuple[Tensor, Tensor | None]:
        return self._without_present(self.start)

    def _without_present(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        before = None if self.prior is None else self.prior.sum(h)
        return self.first.propagate(h), before
