"""Messages of IDGL along the graph to start from and the learned ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl.baselines._edges import Edges, list_sources
from torch_geometric_gsl.baselines.idgl.graph import Graph
from torch_geometric_gsl.typing import SampledGraph


def normalized_prior(graph: SampledGraph, num_nodes: int) -> Edges:
    """Add self-loops to the graph to start from, and normalize it as in GCN."""
    edge_index, weight = gcn_norm(*graph, num_nodes)
    edge_index, weight = sort_edge_index(
        edge_index, weight, num_nodes, sort_by_row=False
    )
    return Edges(list_sources(edge_index, num_nodes), weight)


class Mixture:
    """Messages along the prior graph, the first learned one and the present one.

    Args:
        prior (Edges or None): The graph to start from.
        first (Graph): The first learned graph.
        start (torch.Tensor): What the first layer sends in each iteration.
        skip_weight (float): The share of the prior graph.
        update_weight (float): The share of the present one among the learned ones.
    """

    def __init__(
        self,
        prior: Edges | None,
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
        # No iteration changes these messages of the first layer.
        self._fixed = self._without(start)

    def first_layer(self, present: Graph) -> Tensor:
        """Mix the messages of the first layer."""
        return self._mixed(self.start, present, *self._fixed)

    def propagate(self, h: Tensor, present: Graph) -> Tensor:
        """Mix the messages of a later layer."""
        return self._mixed(h, present, *self._without(h))

    def _without(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        """Send the messages that do not depend on the present graph."""
        before = None if self.prior is None else self.prior.sum(h)
        return self.first.propagate(h), before

    def _mixed(
        self, h: Tensor, present: Graph, learned: Tensor, before: Tensor | None
    ) -> Tensor:
        if present is not self.first:
            learned = torch.lerp(learned, present.propagate(h), self.update_weight)
        if before is None:
            return learned
        return torch.lerp(learned, before, self.skip_weight)
