"""The graphs that IDGL learns: messages along them, and their regularizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.baselines.idgl.pairs import DensePairs
from torch_geometric_gsl.baselines.idgl.weights import AnchorWeights, Kept, Weights
from torch_geometric_gsl.ops.derivatives import once_differentiable
from torch_geometric_gsl.typing import SampledGraph

# Keeps the logarithm of an isolated node's degree finite.
_TINY = 1e-12


class Graph(ABC):
    """A learned graph; rows are targets, columns sources."""

    #: The sums of the weights of targets, and the squared norm.
    total: Tensor
    size: Tensor

    def propagate(self, h: Tensor) -> Tensor:
        """Return weighted means of messages from the sources; of none, zero."""
        with torch.autocast(h.device.type, enabled=False):
            return self._means(h.to(self.total.dtype)).to(h.dtype)

    @abstractmethod
    def _means(self, h: Tensor) -> Tensor:
        """Return weighted means of messages in full precision."""

    @abstractmethod
    def penalty(self, square: Tensor, factors: tuple[float, float, float]) -> Tensor:
        """Return the regularizer of the graph.

        Args:
            square (torch.Tensor): The squared norms of the features of the sources.
            factors (tuple): Those of smoothness, degrees, and sparsity.
        """

    @abstractmethod
    def change(self, last: Any) -> Tensor:
        """Return the squared distance from the graph before."""

    @abstractmethod
    def distance(self, pairs: DensePairs) -> Tensor:
        """Return the squared distance from the graph of these products."""

    @abstractmethod
    def rows(self) -> Iterable[Tensor]:
        """Return the weights by blocks of rows, for autograd."""

    def edges(self, anchors: Tensor | None, dtype: torch.dtype) -> SampledGraph:
        """Return the positive weights, divided by the sum of their target."""
        ends, weights, first = [], [], 0
        with torch.autocast(self.total.device.type, enabled=False):
            for part in self.rows():
                target, source = (part.detach() > 0).nonzero(as_tuple=True)
                weights.append(part[target, source] / part.sum(dim=1)[target])
                source = source if anchors is None else anchors[source]
                ends.append(torch.stack([source, target + first]))
                first += part.size(0)
        return SampledGraph(torch.cat(ends, dim=1), torch.cat(weights).to(dtype))


class Learned(Graph):
    """A learned graph of all nodes, by its weights.

    Args:
        weights (Weights): Its weights.
        widths (list): The widths of the messages that will be sent along it.
        products (list): The products of features by tiles, if they are kept.
    """

    def __init__(self, weights: Weights, widths: list[int], products: Kept) -> None:
        self.weights = weights
        self.kept: Kept = ()
        if weights.pairs.is_costly:
            self.kept = [part for _, part in weights.parts()]
        inputs = [*weights.pairs.inputs]
        if weights.features is not None:
            inputs += weights.features.inputs
        measure: Any = _Measure.apply
        shapes = weights.slots(widths)
        measures = measure(weights, self.kept, products, shapes, *inputs)
        self.size, self.total, self._other, *slots = measures
        self._slots = iter(slots)

    def _means(self, h: Tensor) -> Tensor:
        return divided(self._send(h, is_back=False), self.total)

    def penalty(self, square: Tensor, factors: tuple[float, float, float]) -> Tensor:
        return penalty(self.total, self.size, self._other, square, factors)

    def change(self, last: Learned) -> Tensor:
        return self.weights.distance(self.kept, last.weights.parts(last.kept))

    def distance(self, pairs: DensePairs) -> Tensor:
        others = ((tile, pairs.products(tile)) for tile in self.weights.tiles)
        return self.weights.distance(self.kept, others)

    def rows(self) -> Iterable[Tensor]:
        return self.weights.rows()

    def _send(self, h: Tensor, is_back: bool) -> Tensor:
        function: Any = _Send.apply
        out: Tensor = function(next(self._slots), h, self.weights, self.kept, is_back)
        return out


class LearnedAnchors(Learned):
    """A learned graph of nodes and anchors: messages run to the anchors and back.

    Args:
        weights (AnchorWeights): Its weights.
        widths (list): The widths of the messages that will be sent along it.
        products (torch.Tensor or None): The products of the features of anchors.
    """

    def __init__(
        self, weights: AnchorWeights, widths: list[int], products: Tensor | None
    ) -> None:
        super().__init__(weights, widths, ())
        self._products = products
        self._of_steps = next(self._slots)

    def _means(self, h: Tensor) -> Tensor:
        return super()._means(divided(self._send(h, is_back=True), self._other))

    def penalty(self, square: Tensor, factors: tuple[float, float, float]) -> Tensor:
        function: Any = _Steps.apply
        steps: Tensor = function(self._of_steps, self.weights, self.kept)
        size, energy = steps.square().sum(), steps.new_zeros(())
        if self._products is not None:
            energy = (steps * self._products).sum()
        return penalty(steps.sum(dim=1), size, energy, square, factors)


def penalty(
    total: Tensor,
    size: Tensor,
    energy: Tensor,
    square: Tensor,
    factors: tuple[float, float, float],
) -> Tensor:
    """Return the regularizer of a symmetric graph.

    Args:
        total (torch.Tensor): The sums of the weights of each node.
        size (torch.Tensor): The squared norm of the weights.
        energy (torch.Tensor): The inner product of weights and products of features.
        square (torch.Tensor): The squared norms of the features.
        factors (tuple): Those of smoothness, degrees, and sparsity.
    """
    num_nodes = total.numel()
    smoothness, degree, sparsity = factors
    return (
        smoothness / num_nodes**2 * (total @ square - energy)
        - degree / num_nodes * (total + _TINY).log().sum()
        + sparsity / num_nodes**2 * size
    )


def divided(value: Tensor, total: Tensor) -> Tensor:
    """Divide sums of weighted values by sums of weights, which may be zero."""
    return value / total.masked_fill(total == 0, 1).unsqueeze(1)


class _Measure(torch.autograd.Function):
    """Measures of the weights, and slots for the gradients that their uses leave."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Weights,
        kept: Kept,
        products: Kept,
        shapes: list[tuple[int, int]],
        *inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.weights, ctx.sizes = weights, (len(kept), len(products), len(inputs))
        ctx.save_for_backward(*kept, *products, *inputs)
        measures = weights.measure(kept, products)
        slots = [measures[0].new_empty(1, 1).expand(shape) for shape in shapes]
        return *measures, *slots

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        kept, products, inputs = ([*islice(saved, size)] for size in ctx.sizes)
        found = ctx.weights.gradient(kept, products, grads[:3], grads[3:])
        missing = len(inputs) - len(found)
        return None, None, None, None, *found, *[None] * missing


class _Send(torch.autograd.Function):
    """Weighted sums of messages; back along the graph, the messages of the targets."""

    @staticmethod
    def forward(
        ctx: Any, slot: Tensor, h: Tensor, weights: Weights, kept: Kept, is_back: bool
    ) -> Tensor:
        ctx.save_for_backward(slot, h, *kept)
        ctx.weights, ctx.is_back = weights, is_back
        long = h.t().contiguous()
        if ctx.needs_input_grad[0]:
            weights.sent.append(long)
        send = weights.send_back if is_back else weights.send
        # Dropout draws in the order in which messages are stored.
        return send(long, kept).t().contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        of_h = None
        if ctx.needs_input_grad[1]:
            send = ctx.weights.send if ctx.is_back else ctx.weights.send_back
            of_h = send(grad.t().contiguous(), ctx.saved_tensors[2:]).t()
        return grad, of_h, None, None, None


class _Steps(torch.autograd.Function):
    """The weights of the steps from anchor to anchor, which are symmetric."""

    @staticmethod
    def forward(ctx: Any, slot: Tensor, weights: AnchorWeights, kept: Kept) -> Tensor:
        ctx.save_for_backward(slot)
        return weights.steps(kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad + grad.t(), None, None
