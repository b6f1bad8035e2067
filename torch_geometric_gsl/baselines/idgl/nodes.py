"""The nodes from which IDGL learns graphs: their similarity to all, or to anchors."""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from torch_geometric_gsl.baselines.idgl.factors import Factored, FactoredAnchors
from torch_geometric_gsl.baselines.idgl.graph import Graph, Learned, LearnedAnchors
from torch_geometric_gsl.baselines.idgl.pairs import (
    DensePairs,
    Pairs,
    SparsePairs,
    Tile,
    make_tiles,
    unit_heads,
)
from torch_geometric_gsl.baselines.idgl.weights import AnchorWeights, Kept, Weights
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.ops.runtime import full_precision


class _Products(NamedTuple):
    """The products of features in one state of theirs, by tiles."""

    version: int
    tiles: list[Tile]
    parts: Kept


# The products of features that stay as they are, for as long as these exist.
_PRODUCTS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_LOCK = Lock()


class Nodes:
    """The nodes of one forward pass.

    Args:
        x (torch.Tensor): Their features, dense or sparse CSR.
        batch (torch.Tensor or None): Their graphs.
        anchors (torch.Tensor or None): The nodes that are sources; all if
            :obj:`None`.
        epsilon (float): Similarities up to this one are no edges.
        is_smooth (bool): Whether the penalty of a graph needs the products of features.
        cached (bool): Whether these serve later passes.
    """

    def __init__(
        self,
        x: Tensor,
        batch: Tensor | None,
        anchors: Tensor | None,
        epsilon: float,
        *,
        is_smooth: bool,
        cached: bool,
    ) -> None:
        self.x = x
        self.batch = batch
        self.anchors = anchors
        self.epsilon = epsilon
        self.is_smooth = is_smooth
        self.cached = cached
        like = x if x.layout == torch.strided else x.values()
        num_anchors = None if anchors is None else anchors.numel()
        self._tiles = make_tiles(x.size(0), num_anchors, full_precision(like[:0]))

    def learn(self, metric: CosineSimilarity, h: Tensor, widths: list[int]) -> Graph:
        """Return the graph whose weights are the similarities above the threshold.

        Args:
            metric (CosineSimilarity): The similarity.
            h (torch.Tensor): What is compared.
            widths (list): The widths of the messages that will be sent.
        """
        pairs: Pairs
        with torch.autocast(h.device.type, enabled=False):
            if h.layout != torch.strided:
                pairs = SparsePairs(h, unit_heads(h, metric.weight), self.anchors)
                return self._learned(pairs, widths)
            pairs = DensePairs(full_precision(metric.encode(h)), self.anchors)
            if not self._is_product(h, pairs.inputs[0].size(1)):
                return self._learned(pairs, widths)
            if self.anchors is None:
                return Factored(pairs, self._features if self.is_smooth else None)
            return FactoredAnchors(pairs, self._of_anchors)

    def _is_product(self, h: Tensor, width: int) -> bool:
        """Return whether the weights are products of thin matrices, none negative."""
        if self.epsilon > 0 or self.batch is not None:
            return False
        if h is not self.x:  # It is what a ReLU returned.
            return True
        # By zeros of features the gradient of a product is not that of a threshold.
        is_thin = width < self._tiles[-1].columns.stop and not h.requires_grad
        return is_thin and bool((h >= 0).all())

    def _learned(self, pairs: Pairs, widths: list[int]) -> Learned:
        batch = None
        if self.batch is not None:
            sources = slice(None) if self.anchors is None else self.anchors
            batch = self.batch, self.batch[sources]
        args = pairs, self._tiles, self.epsilon, batch
        if self.anchors is not None:
            return LearnedAnchors(AnchorWeights(*args, None), widths, self._of_anchors)
        weights = Weights(*args, self._features if self.is_smooth else None)
        return Learned(weights, widths, self._products)

    @cached_property
    def square(self) -> Tensor:
        """The squared norms of the features of the sources."""
        return self._features.squares()

    @cached_property
    def _features(self) -> Pairs:
        if self.x.layout == torch.strided:
            return DensePairs(full_precision(self.x), self.anchors)
        values = full_precision(self.x.values()).unsqueeze(0)
        return SparsePairs(self.x, values, self.anchors)

    @cached_property
    def _of_anchors(self) -> Tensor | None:
        """The products of the features of anchors, for autograd."""
        return self._features.among_sources() if self.is_smooth else None

    @cached_property
    def _products(self) -> Kept:
        """The products of the features of all nodes by tiles, if they are kept."""
        if not self.is_smooth or not self._features.is_costly:
            return ()
        if not self.cached:
            return [*map(self._features.products, self._tiles)]
        with _LOCK:
            # It counts changes in place, which inference tensors do not tell.
            version = -1 if self.x.is_inference() else self.x._version
            found = _PRODUCTS.get(self.x)
            if found is None or found[:2] != (version, self._tiles):
                parts = [*map(self._features.products, self._tiles)]
                found = _PRODUCTS[self.x] = _Products(version, self._tiles, parts)
            products: Kept = found.parts
            return products
