"""The nodes from which IDGL learns graphs: their similarity to all, or to anchors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from torch_geometric_gsl.baselines.idgl.graph import (
    AnchorGraph,
    Factored,
    FactoredAnchors,
    Graph,
)
from torch_geometric_gsl.baselines.idgl.learned import Kept, LearnedGraph, Weights
from torch_geometric_gsl.baselines.idgl.pairs import (
    DensePairs,
    Pairs,
    SparsePairs,
    unit_heads,
)
from torch_geometric_gsl.nn.linear import entries_by_row
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, full_precision, row_blocks

#: Bytes of a strip on a CPU, for each thread: it stays in the cache of the processor.
STRIP = 2**20


# The products of features by strips, for as long as these exist and stay as they are.
_PRODUCTS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_LOCK = Lock()


@dataclass(eq=False)
class Nodes:
    """The nodes of one forward pass; all are sources where there are no anchors."""

    x: Tensor
    batch: Tensor | None
    anchors: Tensor | None
    epsilon: float
    # Whether the penalty of a graph needs the products of features, and whether these
    # serve later passes.
    is_smooth: bool
    cached: bool

    def __post_init__(self) -> None:
        x, anchors = self.x, self.anchors
        self._num_sources = x.size(0) if anchors is None else anchors.numel()
        is_cpu = x.device.type == 'cpu'
        budget = STRIP * torch.get_num_threads() if is_cpu else MEMORY_BUDGET
        bytes_per_row = self._num_sources * x.element_size()
        # Of no nodes there is one strip, which is empty.
        blocks = list(row_blocks(x.size(0), bytes_per_row, budget))
        self._blocks = blocks or [slice(0, 0)]

    def learn(self, metric: CosineSimilarity, h: Tensor, widths: list[int]) -> Graph:
        """Return the graph of similarities, for messages of these widths."""
        with torch.autocast(h.device.type, enabled=False):
            if h.layout != torch.strided:
                return self._learned(unit_heads(h, metric.weight), widths)
            z = full_precision(metric.encode(h))
            if not self._is_product(h, z.size(1)):
                return self._learned(DensePairs(z), widths)
            if self.anchors is None:
                return Factored(z, z, self._penalized, self._blocks)
            return FactoredAnchors(z, z[self.anchors], self._of_anchors)

    def _is_product(self, h: Tensor, width: int) -> bool:
        """Return whether the weights are products of thin matrices, none negative."""
        if self.epsilon > 0 or self.batch is not None:
            return False
        if h is not self.x:  # It is what a ReLU returned.
            return True
        # By zeros of features the gradient of a product is not that of a threshold.
        is_thin = width < self._num_sources and not h.requires_grad
        return is_thin and bool((h >= 0).all())

    def _learned(self, pairs: Any, widths: list[int]) -> Graph:
        if self.anchors is None:
            weights = Weights(pairs, self._penalized, self._blocks, self._to_edges)
            return LearnedGraph(weights, widths, self._products)
        similarities = pairs.products(pairs.at(self.anchors))
        edges = self._to_edges(similarities, slice(None))
        return AnchorGraph(edges, self._of_anchors)

    def _to_edges(self, part: Tensor, rows: slice) -> Tensor:
        """Set similarities of some rows to zero that are no edges."""
        part = F.threshold(part, self.epsilon, 0.0, inplace=not part.requires_grad)
        if self.batch is None:
            return part
        sources = self.batch if self.anchors is None else self.batch[self.anchors]
        return part.masked_fill(self.batch[rows].unsqueeze(1) != sources, 0)

    @cached_property
    def square(self) -> Tensor:
        """Return the squared norms of the features of the sources."""
        return self._features.squares()

    @cached_property
    def _features(self) -> Pairs:
        """Return the features of the sources."""
        pairs: Pairs
        if self.x.layout == torch.strided:
            pairs = DensePairs(full_precision(self.x))
        else:
            values = full_precision(self.x.values()).unsqueeze(0)
            pairs = SparsePairs(entries_by_row(self.x), values)
        return pairs if self.anchors is None else pairs.at(self.anchors)

    @property
    def _penalized(self) -> Pairs | None:
        return self._features if self.is_smooth else None

    @cached_property
    def _of_anchors(self) -> Tensor | None:
        """Return the products of the features of anchors, for autograd."""
        features: Any = self._features
        return features.products(features) if self.is_smooth else None

    @cached_property
    def _products(self) -> Kept:
        """Return the products of all features by strips, if they are kept."""
        if not self.is_smooth or not self._features.is_costly:
            return ()
        if not self.cached:
            return [*map(self._features.strip, self._blocks)]
        products: Kept
        with _LOCK:
            # It counts changes in place, which inference tensors do not tell.
            version = -1 if self.x.is_inference() else self.x._version
            *state, products = _PRODUCTS.get(self.x, [None])
            if state != [version, self._blocks]:
                products = [*map(self._features.strip, self._blocks)]
                _PRODUCTS[self.x] = version, self._blocks, products
            return products
