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

    The first layer sends :obj:`start` in each iteration.
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
        self._of_start = self._without_present(start)

    def propagate(self, h: Tensor, present: Graph) -> Tensor:
        """Mix the messages of a layer."""
        is_start = h is self.start
        learned, before = self._of_start if is_start else self._without_present(h)
        if present is not self.first:
            learned = torch.lerp(learned, present.propagate(h), self.update_weight)
        if before is None:
            return learned
        return torch.lerp(learned, before, self.skip_weight)

    def _without_present(self, h: Tensor) -> tuple[Tensor, Tensor | None]:
        before = None if self.prior is None else self.prior.sum(h)
        return self.first.propagate(h), before
