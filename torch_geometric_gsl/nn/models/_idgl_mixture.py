"""Messages of IDGL along the graph to start from and the learned ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import cumsum, sort_edge_index

from torch_geometric_gsl.nn.models._idgl_graph import Graph
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import full_precision


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
        full = full_precision(h)
        weight = self.weight.to(full.dtype)
        return neighbour_sum(full, weight, self.neighbours).to(h.dtype)


class Mixture:
    """Messages along the prior graph, the first learned one and the present one.

    Args:
        prior (Prior or None): The graph to start from.
        first (Graph): The first learned graph.
        start (torch.Tensor): What the first layer sends in each iteration.
        skip_weight (float): The share of the prior graph.
        update_weight (float): The share of the present one among the learned ones.
    """

    def __init__(
        self,
        prior: Prior | None,
        first: Graph,
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

    def first_layer(self, present: Graph) -> Tensor:
        """The messages of the first layer; what no iteration changes is known."""
        return self._mixed(self.start, present, *self._fixed)

    def propagate(self, h: Tensor, present: Graph) -> Tensor:
        """The messages of a later layer."""
        return self._mixed(h, present, *self._without(h))

    def _without(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """The messages that do not depend on the present graph."""
        before = None if self.prior is None else self.prior.propagate(h)
        return self.first.propagate(h), before

    def _mixed(
        self, h: Tensor, present: Graph, learned: Tensor, before: Tensor | None
    ) -> Tensor:
        if present is not self.first:
            learned = torch.lerp(learned, present.propagate(h), self.update_weight)
        if before is None:
            return learned
        return torch.lerp(learned, before, self.skip_weight)
