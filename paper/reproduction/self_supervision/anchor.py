"""Running mean of graphs, the anchor of a contrastive loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_number
from torch_geometric_gsl.ops.edges import Edges, merge_edges
from torch_geometric_gsl.typing import SampledGraph


class Anchor(torch.nn.Module):
    """Running mean of graphs, initially the identity.

    Its buffers have no edges before the first update.
    """

    edge_index: Tensor
    edge_weight: Tensor

    def __init__(self, tau: float) -> None:
        super().__init__()
        check_number(tau, 'tau')
        if not 0 <= tau <= 1:
            raise ValueError(f"'tau' must lie in [0, 1] (got {tau})")
        self.tau = tau
        self.register_buffer('edge_index', torch.empty(2, 0, dtype=torch.long))
        self.register_buffer('edge_weight', torch.empty(0))

    def reset_parameters(self) -> None:
        self.edge_index = self.edge_index.new_empty(2, 0)
        self.edge_weight = self.edge_weight.new_empty(0)

    def graph(self, num_nodes: int, dtype: torch.dtype) -> SampledGraph:
        """Return the graph on the given number of nodes, sorted by target."""
        if self.edge_weight.numel() == 0:
            loops = torch.arange(num_nodes, device=self.edge_index.device)
            weight = self.edge_weight.new_ones(num_nodes, dtype=dtype)
            return SampledGraph(loops.repeat(2, 1), weight)
        # Each node is a target, in ascending order.
        known = int(self.edge_index[1, -1]) + 1
        if known != num_nodes:
            raise ValueError(
                f"'x' must hold the {known} nodes of the anchor graph, until "
                f'reset_parameters() (got {num_nodes} nodes)'
            )
        return SampledGraph(self.edge_index, self.edge_weight.to(dtype))

    @torch.no_grad()
    def update(self, learned: Edges, num_nodes: int) -> None:
        """Average with a learned graph."""
        if self.tau == 1 or num_nodes == 0:
            return
        edge_index, weight = self.graph(num_nodes, self.edge_weight.dtype)
        places = learned.neighbours
        new_index = torch.stack([places.source.flatten(), places.target]).long()
        new = learned.weight.to(weight.dtype)
        self.edge_index, self.edge_weight = merge_edges(
            torch.cat([edge_index, new_index], dim=1),
            torch.cat([self.tau * weight, (1 - self.tau) * new]),
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # Resize the buffers to the number of loaded edges.
        for name in ('edge_index', 'edge_weight'):
            value = state_dict.get(f'{prefix}{name}')
            if value is not None:
                setattr(self, name, getattr(self, name).new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)
