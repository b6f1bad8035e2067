"""The weights of IDGL's graphs, by tiles.

Unless they are kept they are computed anew wherever they are needed, which takes about
the time of reading them, and no memory. The uses of a graph share one gradient: each
leaves factors, whose product is formed once, by tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_geometric_gsl.baselines.idgl.pairs import (
    Pairs,
    Parts,
    Tile,
    symmetric_sum,
)

Kept = Sequence[Tensor]
Grads = Sequence[Tensor | None]


class Weights:
    """The weights of a graph of all nodes, which is symmetric.

    Weights and products that are not given are computed. Messages and their sums are
    transposed, :math:`[w, n]`.

    Args:
        pairs (DensePairs or SparsePairs): The similarities.
        tiles (list): The tiles of the matrix.
        epsilon (float): Similarities up to this one are no edges.
        batch (tuple or None): The graphs of the nodes, and of the sources.
        features (DensePairs, SparsePairs or None): The features, if the penalty
            needs their products.
    """

    def __init__(
        self,
        pairs: Pairs,
        tiles: list[Tile],
        epsilon: float,
        batch: tuple[Tensor, Tensor] | None,
        features: Pairs | None,
    ) -> None:
        self.pairs = pairs
        self.tiles = tiles
        self.epsilon = epsilon
        self.batch = batch
        self.features = features
        self.like = pairs.inputs[0].detach()
        self.num_nodes = tiles[-1].rows.stop
        self.num_sources = tiles[-1].columns.stop
        # The messages, in the order of the slots that take what their sums leave.
        self.sent: list[Tensor] = []

    def slots(self, widths: list[int]) -> list[tuple[int, int]]:
        """Return the shapes of what uses of the graph leave for its gradient."""
        return [(self.num_nodes, width) for width in widths]

    def parts(self, kept: Kept = ()) -> Parts:
        """Return the weights by tiles, without gradient."""
        if kept:
            yield from zip(self.tiles, kept, strict=True)
            return
        for tile in self.tiles:
            part = self.pairs.products(tile)
            yield tile, self._edges(part, tile.rows, tile.columns)

    def rows(self) -> Iterator[Tensor]:
        """Return the weights by blocks of rows, for autograd."""
        ends = sorted({(tile.rows.start, tile.rows.stop) for tile in self.tiles})
        blocks = [slice(*end) for end in ends]
        for rows, part in zip(blocks, self.pairs.rows(blocks), strict=True):
            yield self._edges(part, rows, slice(0, self.num_sources))

    def _edges(self, part: Tensor, rows: slice, columns: slice) -> Tensor:
        """Return the similarities that are edges; zero stands for no edge."""
        part = F.threshold(part, self.epsilon, 0.0, inplace=not part.requires_grad)
        if self.batch is None:
            return part
        own, sources = self.batch
        return part.masked_fill(own[rows].unsqueeze(1) != sources[columns], 0)

    def measure(self, kept: Kept, products: Kept) -> tuple[Tensor, ...]:
        """Return the squared norm, the sums of rows, and the inner product of the
        weights and the products of features.
        """
        total = self.like.new_zeros(self.num_nodes)
        square, energy = self.like.new_zeros(2)
        for tile, part, own in self._with(kept, products):
            total[tile.columns] += part.sum(dim=0)
            if not tile.is_diagonal:
                total[tile.rows] += part.sum(dim=1)
            square += tile.times * _inner(part, part)
            if own is not None:
                energy += tile.times * _inner(part, own)
        return square, total, energy

    def distance(self, kept: Kept, others: Parts) -> Tensor:
        """Return the squared distance from other weights."""
        total = self.like.new_zeros(())
        for (tile, part), (_, other) in zip(self.parts(kept), others, strict=True):
            difference = part - other
            total += tile.times * _inner(difference, difference)
        return total

    def send(self, h: Tensor, kept: Kept) -> Tensor:
        """Return the weighted sums of messages."""
        return symmetric_sum(h, self.parts(kept))

    def send_back(self, h: Tensor, kept: Kept) -> Tensor:
        """Return the transposed of sending."""
        return self.send(h, kept)

    def gradient(
        self, kept: Kept, products: Kept, grads: Grads, of_slots: Grads
    ) -> list[Tensor]:
        """Return the gradients of the inputs of similarities and of features.

        Args:
            kept (list): The weights.
            products (list): The products of features.
            grads (list): Those of the measures.
            of_slots (list): What the uses of the graph left.
        """
        of_square, of_total, of_energy = grads
        ones = self.like.new_ones(1, self.num_nodes)
        left = torch.cat([_row(of_total, ones), *_long(of_slots)])
        right = torch.cat([ones, *_of(self.sent, of_slots)])
        both = torch.cat([left, right]), torch.cat([right, left])

        def parts() -> Parts:
            for tile, weight, own in self._with(kept, products):
                part = both[0][:, tile.rows].t() @ both[1][:, tile.columns]
                if own is not None and of_energy is not None:
                    part.addcmul_(own, 2 * of_energy)
                if of_square is not None:
                    part.addcmul_(weight, 4 * of_square)
                yield tile, _where_positive(part, weight)

        found = [*self.pairs.gradient(parts())]
        if of_energy is None or self.features is None:
            return found
        if self.features.inputs[0].requires_grad:
            energy = ((tile, 2 * of_energy * part) for tile, part in self.parts(kept))
            found += self.features.gradient(energy)
        return found

    def _with(
        self, kept: Kept, products: Kept
    ) -> Iterator[tuple[Tile, Tensor, Tensor | None]]:
        """Return the weights by tiles, and the products of features."""
        own: Iterable[Tensor | None] = products or repeat(None)
        if self.features is not None and not products:
            own = map(self.features.products, self.tiles)
        for (tile, part), known in zip(self.parts(kept), own, strict=False):
            yield tile, part, known


class AnchorWeights(Weights):
    """The weights of a graph of all nodes (rows) and anchors (columns)."""

    def slots(self, widths: list[int]) -> list[tuple[int, int]]:
        sizes = self.num_sources, self.num_nodes
        own = [(size, width) for width in widths for size in sizes]
        return [(self.num_sources, self.num_sources), *own]

    def measure(self, kept: Kept, products: Kept) -> tuple[Tensor, ...]:
        """Return the squared norm, and the sums of rows and of columns."""
        total = self.like.new_empty(self.num_nodes)
        of_anchors = self.like.new_zeros(self.num_sources)
        square = self.like.new_zeros(())
        for tile, part in self.parts(kept):
            total[tile.rows] = part.sum(dim=1)
            of_anchors += part.sum(dim=0)
            square += _inner(part, part)
        self._scale = 1 / total.masked_fill(total == 0, 1).unsqueeze(1)
        return square, total, of_anchors

    def send(self, h: Tensor, kept: Kept) -> Tensor:
        """Return the weighted sums of the messages of anchors."""
        sums = [h @ part.t() for _, part in self.parts(kept)]
        return torch.cat(sums, dim=1)

    def send_back(self, h: Tensor, kept: Kept) -> Tensor:
        """Return the weighted sums of messages to anchors."""
        out = h.new_zeros(h.size(0), self.num_sources)
        for tile, part in self.parts(kept):
            out.addmm_(h[:, tile.rows], part)
        return out

    def steps(self, kept: Kept) -> Tensor:
        """Return the weights of the steps from anchor to anchor."""
        out = self.like.new_zeros(self.num_sources, self.num_sources)
        for tile, part in self.parts(kept):
            out.addmm_(part.t(), part * self._scale[tile.rows])
        return out

    def gradient(
        self, kept: Kept, products: Kept, grads: Grads, of_slots: Grads
    ) -> list[Tensor]:
        _, of_total, of_anchors = grads
        of_steps, *of_sent = of_slots
        ones = self.like.new_ones(1, self.num_nodes)
        ones_of_anchors = self.like.new_ones(1, self.num_sources)
        to_anchors, from_anchors = of_sent[::2], of_sent[1::2]
        left = [_row(of_total, ones), ones]
        right = [ones_of_anchors, _row(of_anchors, ones_of_anchors)]
        left += _of(self.sent[::2], to_anchors) + _long(from_anchors)
        right += _long(to_anchors) + _of(self.sent[1::2], from_anchors)
        factors = torch.cat(left), torch.cat(right)

        def parts() -> Parts:
            for tile, weight in self.parts(kept):
                part = factors[0][:, tile.rows].t() @ factors[1]
                if of_steps is not None:
                    scale = self._scale[tile.rows]
                    step = (weight @ of_steps).mul_(scale)
                    part += step
                    inner = (step.mul_(weight)).sum(dim=1, keepdim=True)
                    part -= scale * inner / 2
                yield tile, _where_positive(part, weight)

        return [*self.pairs.gradient(parts())]


def _inner(one: Tensor, two: Tensor) -> Tensor:
    return one.flatten() @ two.flatten()


def _row(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad.view_as(like)


def _long(grads: Grads) -> list[Tensor]:
    return [grad.t() for grad in grads if grad is not None]


def _of(sent: list[Tensor], grads: Grads) -> list[Tensor]:
    """Return the messages whose sums left something."""
    # Later slots may have had no use.
    pairs = zip(sent, grads, strict=False)
    return [h for h, grad in pairs if grad is not None]


def _where_positive(part: Tensor, weight: Tensor) -> Tensor:
    """Return the gradients of edges; those of other pairs are zero."""
    torch.ops.aten.threshold_backward.grad_input(part, weight, 0, grad_input=part)
    return part
