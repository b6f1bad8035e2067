"""Learned graphs in linear time, by factors of their weights.

Cosines of rows that are not negative are not negative either, and a threshold of zero
changes nothing: the weights are products of thin matrices, and so are their gradients.
None of them needs to be formed.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from torch_geometric_gsl.baselines.idgl.graph import Graph, divided, penalty
from torch_geometric_gsl.baselines.idgl.pairs import DensePairs, Pairs, some_blocks


class Factored(Graph):
    """A learned graph of all nodes, by factors of its weights.

    Args:
        pairs (DensePairs): The rows whose products are the weights.
        features (DensePairs, SparsePairs or None): The features, if the penalty needs
            them.
    """

    def __init__(self, pairs: DensePairs, features: Pairs | None) -> None:
        self.pairs = pairs
        self.own, self.sources = pairs.inputs[0], pairs.inputs[-1]
        self.features = features
        self.total = self.own @ self.sources.sum(dim=0)
        own, sources = self.own.detach(), self.sources.detach()
        self.size = ((own.t() @ own) * (sources.t() @ sources)).sum()

    def _means(self, h: Tensor) -> Tensor:
        return divided(self.own @ (self.sources.t() @ h), self.total)

    def penalty(self, square: Tensor, factors: tuple[float, float, float]) -> Tensor:
        size, energy = (self.own.t() @ self.own).square().sum(), square.new_zeros(())
        if self.features is not None:
            energy = self.features.column_sums(self.own).square().sum()
        return penalty(self.total, size, energy, square, factors)

    def change(self, last: Graph) -> Tensor:
        return last.distance(self.pairs)

    def distance(self, pairs: DensePairs) -> Tensor:
        # No difference of large numbers: of a matrix [v, w] only R is needed.
        values = zip(self.pairs.inputs, pairs.inputs, strict=True)
        factors = [torch.cat(value, dim=1).detach() for value in values]
        triangles = [torch.linalg.qr(factor, mode='r').R for factor in factors]
        width = self.own.size(1)
        first, last = triangles[0].clone(), triangles[-1]
        first[:, width:] *= -1
        distance: Tensor = (first @ last.t()).square().sum()
        return distance

    def rows(self) -> Iterable[Tensor]:
        bytes_per_row = self.sources.size(0) * self.own.element_size()
        sources = self.sources.t()
        blocks = some_blocks(self.own.size(0), bytes_per_row)
        return (self.own[rows] @ sources for rows in blocks)


class FactoredAnchors(Factored):
    """A learned graph of nodes and anchors: messages run to the anchors and back.

    Args:
        pairs (DensePairs): The rows whose products are the weights.
        products (torch.Tensor or None): The products of the features of anchors.
    """

    def __init__(self, pairs: DensePairs, products: Tensor | None) -> None:
        super().__init__(pairs, None)
        self._products = products
        self._of_anchors = self.sources @ self.own.sum(dim=0)

    def _means(self, h: Tensor) -> Tensor:
        at_anchors = self.sources @ (self.own.t() @ h)
        return super()._means(divided(at_anchors, self._of_anchors))

    def penalty(self, square: Tensor, factors: tuple[float, float, float]) -> Tensor:
        # The weights of steps from anchor to anchor: products of the sources and this.
        inside = self.own.t() @ divided(self.own, self.total)
        gram = self.sources.t() @ self.sources
        total = self.sources @ (inside @ self.sources.sum(dim=0))
        once = inside @ gram
        size, energy = (once * once.t()).sum(), once.new_zeros(())
        if self._products is not None:
            energy = (inside * (self.sources.t() @ self._products @ self.sources)).sum()
        return penalty(total, size, energy, square, factors)
