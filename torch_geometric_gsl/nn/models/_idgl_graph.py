"""The graphs of IDGL: messages along them, and their regularizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import cumsum, sort_edge_index

from torch_geometric_gsl.ops.pairs import Neighbours, neighbour_sum
from torch_geometric_gsl.typing import SampledGraph

# Keeps the logarithm of an isolated node's degree finite.
_TINY = 1e-12


class Learned:
    """A learned graph of all nodes; rows are targets, columns sources.

    Args:
        parts (list[torch.Tensor]): The weights, not negative, by blocks of rows.
    """

    def __init__(self, parts: list[Tensor]) -> None:
        self.parts = parts

    def mean(self, h: Tensor) -> Tensor:
        """The weighted mean of each target's sources; of no sources, zero."""
        with torch.autocast(h.device.type, enabled=False):
            full = _with_ones(h, self.parts[0].dtype)
            return _mean(torch.cat([part @ full for part in self.parts])).to(h.dtype)

    def propagate(self, h: Tensor) -> Tensor:
        """Messages along the graph."""
        return self.mean(h)

    def penalty(self, products: Tensor, factors: tuple[float, float, float]) -> Tensor:
        """The regularizer of the graph."""
        return _penalty(self.parts, products, factors)

    def change(self, other: Learned) -> Tensor:
        """The squared distance of two graphs."""
        pairs = zip(self.parts, other.parts, strict=True)
        parts = [(one.detach() - two.detach()).square().sum() for one, two in pairs]
        return torch.stack(parts).sum()

    def size(self) -> Tensor:
        """The squared norm."""
        parts = [part.detach().flatten() for part in self.parts]
        return torch.stack([part @ part for part in parts]).sum()

    def edges(self, anchors: Tensor | None, dtype: torch.dtype) -> SampledGraph:
        """The positive weights, divided by the sum of their target."""
        ends, weights, first = [], [], 0
        for part in self.parts:
            target, source = (part.detach() > 0).nonzero(as_tuple=True)
            weights.append(part[target, source] / part.sum(dim=1)[target])
            source = source if anchors is None else anchors[source]
            ends.append(torch.stack([source, target + first]))
            first += part.size(0)
        return SampledGraph(torch.cat(ends, dim=1), torch.cat(weights).to(dtype))


class LearnedAnchors(Learned):
    """A learned graph of nodes and anchors: messages run to the anchors and back."""

    def propagate(self, h: Tensor) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            full = _with_ones(h, self.parts[0].dtype)
            rows = full.split([part.size(0) for part in self.parts])
            pairs = zip(self.parts, rows, strict=True)
            total = torch.stack([part.t() @ own for part, own in pairs]).sum(dim=0)
            to_anchors = _mean(total).to(h.dtype)
        return self.mean(to_anchors)

    def penalty(self, products: Tensor, factors: tuple[float, float, float]) -> Tensor:
        steps = [_divided(part, part.sum(dim=1, keepdim=True)) for part in self.parts]
        pairs = zip(self.parts, steps, strict=True)
        adjacency = torch.stack([part.t() @ step for part, step in pairs]).sum(dim=0)
        return _penalty([adjacency], products, factors)


class Prior:
    """The graph to start from, with self-loops and normalized as in GCN.

    Args:
        edge_index (torch.Tensor): Its edges.
        edge_weight (torch.Tensor): Their weights.
        num_nodes (int): The number of nodes.
    """

    def __init__(self, edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> None:
        edge_index, weight = gcn_norm(edge_index, edge_weight, num_nodes)
        edge_index, weight = sort_edge_index(
            edge_index, weight, num_nodes, sort_by_row=False
        )
        offsets = cumsum(torch.bincount(edge_index[1], minlength=num_nodes))
        self.neighbours = Neighbours(edge_index[0], num_nodes, offsets)
        self.weight = weight

    def propagate(self, h: Tensor) -> Tensor:
        """Messages along the graph."""
        full = h.float() if h.dtype in (torch.float16, torch.bfloat16) else h
        weight = self.weight.to(full.dtype)
        return neighbour_sum(full, weight, self.neighbours).to(h.dtype)


class Mixture:
    """Messages along the prior graph, the first learned one and the present one.

    Args:
        prior (Prior or None): The graph to start from.
        first (Learned): The first learned graph.
        start (torch.Tensor): What the first layer sends in each iteration.
        skip_weight (float): The share of the prior graph.
        update_weight (float): The share of the present one among the learned ones.
    """

    def __init__(
        self,
        prior: Prior | None,
        first: Learned,
        start: Tensor,
        skip_weight: float,
        update_weight: float,
    ) -> None:
        self.prior = prior
        self.first = first
        self.start = start
        self.skip_weight = skip_weight
        self.update_weight = update_weight
        self._fixed = self._without(start)

    def first_layer(self, present: Learned) -> Tensor:
        """The messages of the first layer; what no iteration changes is known."""
        return self._mixed(self.start, present, *self._fixed)

    def propagate(self, h: Tensor, present: Learned) -> Tensor:
        """The messages of a later layer."""
        return self._mixed(h, present, *self._without(h))

    def _without(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """The messages that do not depend on the present graph."""
        before = None if self.prior is None else self.prior.propagate(h)
        return self.first.propagate(h), before

    def _mixed(
        self, h: Tensor, present: Learned, learned: Tensor, before: Tensor | None
    ) -> Tensor:
        if present is not self.first:
            learned = torch.lerp(learned, present.propagate(h), self.update_weight)
        if before is None:
            return learned
        return torch.lerp(learned, before, self.skip_weight)


def _penalty(
    parts: list[Tensor], products: Tensor, factors: tuple[float, float, float]
) -> Tensor:
    """The regularizer of a symmetric graph, given by blocks of rows."""
    size = products.size(0)
    smoothness, degree, sparsity = factors
    scaled = smoothness / size**2, degree / size, sparsity / size**2
    sizes = [part.size(0) for part in parts]
    square, rows = products.diagonal().split(sizes), products.split(sizes)
    function: Any = _Penalty.apply
    return torch.stack(
        [function(*args, *scaled) for args in zip(parts, rows, square, strict=True)]
    ).sum()


class _Penalty(torch.autograd.Function):
    """The regularizer of some rows of a graph.

    Its gradient is written by hand: one matrix, not one for each operation.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        weight: Tensor,
        products: Tensor,
        square: Tensor,
        smoothness: float,
        degree: float,
        sparsity: float,
    ) -> Tensor:
        total, flat = weight.sum(dim=1), weight.flatten()
        ctx.save_for_backward(weight, products, square, total)
        ctx.factors = smoothness, degree, sparsity  # type: ignore[attr-defined]
        energy = total @ square - flat @ products.flatten()
        barrier = (total + _TINY).log().sum()
        return smoothness * energy - degree * barrier + sparsity * (flat @ flat)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, products, square, total = ctx.saved_tensors  # type: ignore[attr-defined]
        smoothness, degree, sparsity = (
            factor * grad
            for factor in ctx.factors  # type: ignore[attr-defined]
        )
        of_row = smoothness * square - degree / (total + _TINY)
        out = (2 * sparsity) * weight
        out.addcmul_(products, -smoothness).add_(of_row.unsqueeze(1))
        needs_products = ctx.needs_input_grad[1]  # type: ignore[attr-defined]
        of_products = -smoothness * weight if needs_products else None
        return out, of_products, smoothness * total, None, None, None


def _with_ones(h: Tensor, dtype: torch.dtype) -> Tensor:
    """Messages and a column whose weighted sum is the sum of the weights."""
    return torch.cat([h, h.new_ones(h.size(0), 1)], dim=1).to(dtype)


def _mean(total: Tensor) -> Tensor:
    return _divided(total[:, :-1], total[:, -1:])


def _divided(value: Tensor, total: Tensor) -> Tensor:
    """Divides sums of weighted values by sums of weights, which may be zero."""
    return value / total.masked_fill(total == 0, 1)
