"""Learned graphs of all nodes that are no products, by strips of their weights.

Unless they are kept the weights are computed anew wherever they are needed, which takes
about the time of reading them, and no memory. The uses of a graph share one gradient:
each leaves factors, whose product is formed once, by strips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.baselines.idgl.graph import Graph
from torch_geometric_gsl.baselines.idgl.pairs import (
    Pairs,
    inner,
    symmetric_sum,
    whole_columns,
)
from torch_geometric_gsl.ops.derivatives import once_differentiable

Kept = Sequence[Tensor]
Grads = Sequence[Tensor | None]


@dataclass(eq=False)
class Weights:
    """The weights of a graph of all nodes, which is symmetric.

    Weights and products that are not given are computed. Messages and their sums are
    transposed, :math:`[w, n]`.
    """

    pairs: Pairs
    features: Pairs | None
    blocks: list[slice]
    to_edges: Callable[[Tensor, slice], Tensor]
    # The messages, in the order of the slots that take what their sums leave.
    sent: list[Tensor] = field(default_factory=list)

    def strips(self, kept: Kept = ()) -> Iterator[Tensor]:
        """Return the weights by strips, without gradient."""
        if kept:
            return iter(kept)
        return (self.to_edges(self.pairs.strip(rows), rows) for rows in self.blocks)

    def measure(self, kept: Kept, products: Kept) -> tuple[Tensor, ...]:
        """Return the squared norm, the sums of rows, and the inner product of the
        weights and the products of features.
        """
        square, energy = self.pairs.input.new_zeros(2)
        total = self.pairs.input.new_zeros(self.blocks[-1].stop)
        parts = self._with_products(kept, products)
        for rows, (part, own) in zip(self.blocks, parts, strict=True):
            total[rows.start :] += part.sum(dim=0)
            total[rows] += part[:, part.size(0) :].sum(dim=1)
            square += inner(part, part)
            if own is not None:
                energy += inner(part, own)
        return square, total, energy

    def send(self, h: Tensor, kept: Kept) -> Tensor:
        """Return the weighted sums of messages."""
        return symmetric_sum(h, zip(self.blocks, self.strips(kept), strict=True))

    def gradients(
        self, kept: Kept, products: Kept, grads: Grads, of_slots: Grads
    ) -> list[Tensor]:
        """Return the gradients of what is compared, and of features that need one,
        from those of the measures and what the uses of the graph left in slots.
        """
        of_square, of_total, of_energy = grads
        ones = self.pairs.input.new_ones(1, self.blocks[-1].stop)
        used = [(0 * ones if of_total is None else of_total.view_as(ones), ones)]
        # Later slots may have had no use.
        for grad, h in zip(of_slots, self.sent, strict=False):
            if grad is not None:
                used.append((grad.t(), h))
        left, right = (torch.cat(part) for part in zip(*used, strict=True))
        both = torch.cat([left, right]), torch.cat([right, left])

        def strips() -> Iterator[tuple[slice, Tensor]]:
            parts = self._with_products(kept, products)
            for rows, (weight, own) in zip(self.blocks, parts, strict=True):
                grad = both[0][:, rows].t() @ both[1][:, rows.start :]
                if own is not None and of_energy is not None:
                    grad.addcmul_(own, 2 * of_energy)
                if of_square is not None:
                    grad.addcmul_(weight, 4 * of_square)
                # The gradient of a pair that is no edge is zero.
                yield rows, _threshold_backward(grad, weight)

        found, features = [self.pairs.gradient(strips())], self.features
        if of_energy is None or features is None or not features.input.requires_grad:
            return found
        parts = zip(self.blocks, self.strips(kept), strict=True)
        energy = ((rows, 2 * of_energy * part) for rows, part in parts)
        return [*found, features.gradient(energy)]

    def _with_products(
        self, kept: Kept, products: Kept
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the weights by strips, and the products of features."""
        own: Iterable[Tensor | None] = products or [None] * len(self.blocks)
        if self.features is not None and not products:
            own = map(self.features.strip, self.blocks)
        return zip(self.strips(kept), own, strict=True)


def _threshold_backward(grad: Tensor, weight: Tensor) -> Tensor:
    backward: Any = torch.ops.aten.threshold_backward.grad_input
    out: Tensor = backward(grad, weight, 0, grad_input=grad)
    return out


class LearnedGraph(Graph):
    """A learned graph of all nodes, by its weights, for messages of these widths."""

    is_symmetric = True

    def __init__(self, weights: Weights, widths: list[int], products: Kept) -> None:
        self._of = weights
        self._kept: Kept = [*weights.strips()] if weights.pairs.is_costly else ()
        inputs = [pairs.input for pairs in (weights.pairs, weights.features) if pairs]
        measure: Any = _Measure.apply
        measures = measure(weights, self._kept, products, widths, *inputs)
        self.size, self.total, self._energy, *slots = measures
        self._slots = iter(slots)

    def _measures(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.total, self.size, self._energy

    def strips(self) -> Iterator[Tensor]:
        return self._of.strips(self._kept)

    def weights(self) -> Iterator[Tensor]:
        if not torch.is_grad_enabled():
            strips = zip(self._of.blocks, self.strips(), strict=True)
            return (columns.t() for _, columns in whole_columns(strips))
        pairs: Any = self._of.pairs
        return iter([self._of.to_edges(pairs.products(pairs), slice(None))])

    def _send(self, h: Tensor) -> Tensor:
        function: Any = _Send.apply
        out: Tensor = function(next(self._slots), h, self._of, self._kept)
        return out


class _Measure(torch.autograd.Function):
    """Measures of the weights, and slots for the gradients that their uses leave."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Weights,
        kept: Kept,
        products: Kept,
        widths: list[int],
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.weights, ctx.sizes = weights, (len(kept), len(products), len(inputs))
        ctx.save_for_backward(*kept, *products, *inputs)
        square, total, energy = weights.measure(kept, products)
        slot = total.new_empty(1, 1)
        slots = [slot.expand(total.numel(), width) for width in widths]
        return square, total, energy, *slots

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        kept, products, inputs = ([*islice(saved, size)] for size in ctx.sizes)
        found = ctx.weights.gradients(kept, products, grads[:3], grads[3:])
        missing = len(inputs) - len(found)
        return None, None, None, None, *found, *[None] * missing


class _Send(torch.autograd.Function):
    """Weighted sums of messages."""

    @staticmethod
    def forward(
        ctx: Any, slot: Tensor, h: Tensor, weights: Weights, kept: Kept
    ) -> Tensor:
        ctx.save_for_backward(slot, h, *kept)
        ctx.weights = weights
        long = h.t().contiguous()
        if ctx.needs_input_grad[0]:
            weights.sent.append(long)
        # Dropout draws in the order in which messages are stored.
        return weights.send(long, kept).t().contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        of_h = None
        if ctx.needs_input_grad[1]:
            _, _, *kept = ctx.saved_tensors
            of_h = ctx.weights.send(grad.t().contiguous(), kept).t()
        return grad, of_h, None, None
