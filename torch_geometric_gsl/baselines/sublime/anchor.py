"""The anchor graph of SUBLIME, which follows the learned one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import coalesce

from torch_geometric_gsl._checks import check_count, check_number
from torch_geometric_gsl.baselines._edges import Edges, list_sources
from torch_geometric_gsl.typing import SampledGraph


class Anchor(torch.nn.Module):
    r"""A running mean of graphs, :math:`\mathbf{A} \leftarrow \tau \mathbf{A} +
    (1 - \tau) \mathbf{S}` at every :obj:`interval`-th call, which begins as the
    identity.

    As statistics of a normalisation layer do, it stands in the state of the module. It
    holds no edges as long as it is the identity.
    """

    edge_index: Tensor
    edge_weight: Tensor
    num_steps: Tensor

    def __init__(self, tau: float, interval: int) -> None:
        super().__init__()
        check_number(tau, 'tau')
        if not 0 <= tau <= 1:
            raise ValueError(f"'tau' must lie in [0, 1] (got {tau})")
        check_count(interval, 'anchor_interval')
        self.tau = tau
        self.interval = interval
        for name in ('edge_index', 'edge_weight', 'num_steps'):
            self.register_buffer(name, None)

    def reset_parameters(self) -> None:
        device = None if self.edge_weight is None else self.edge_weight.device
        dtype = None if self.edge_weight is None else self.edge_weight.dtype
        self.edge_index = torch.empty(2, 0, dtype=torch.long, device=device)
        self.edge_weight = torch.empty(0, dtype=dtype, device=device)
        self.num_steps = torch.zeros((), dtype=torch.long, device=device)

    def graph(self, num_nodes: int, like: Tensor) -> SampledGraph:
        """Return the graph, sorted by target; raise if it is one of other nodes."""
        if self.edge_weight.numel() == 0:
            loops = torch.arange(num_nodes, device=like.device).repeat(2, 1)
            weight = torch.ones(num_nodes, dtype=like.dtype, device=like.device)
            return SampledGraph(loops, weight)
        # It holds the loop of each node, and targets ascend.
        known = int(self.edge_index[1, -1]) + 1
        if known != num_nodes:
            raise ValueError(
                f"'x' must hold the {known} nodes of the anchor graph, until "
                f'reset_parameters() (got {num_nodes} nodes)'
            )
        return SampledGraph(self.edge_index, self.edge_weight.to(like.dtype))

    def edges(self, num_nodes: int, like: Tensor) -> Edges:
        """Return the graph in the order in which layers sum along it."""
        edge_index, weight = self.graph(num_nodes, like)
        return Edges(list_sources(edge_index, num_nodes), weight)

    @torch.no_grad()
    def update(self, learned: SampledGraph, num_nodes: int) -> None:
        """Move towards a learned graph, if it is the turn of this call."""
        if self.tau == 1 or num_nodes == 0:
            return
        self.num_steps = self.num_steps + 1
        if int(self.num_steps) % self.interval:
            return
        own = self.graph(num_nodes, self.edge_weight)
        new = learned.edge_weight.to(own.edge_weight.dtype)
        merged: tuple[Tensor, Tensor] = coalesce(
            torch.cat([own.edge_index, learned.edge_index], dim=1),
            torch.cat([self.tau * own.edge_weight, (1 - self.tau) * new]),
            num_nodes=num_nodes,
            sort_by_row=False,
        )
        self.edge_index, self.edge_weight = merged

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # The number of edges is that of what is loaded.
        for name in ('edge_index', 'edge_weight'):
            value = state_dict.get(f'{prefix}{name}')
            if value is not None:
                own = getattr(self, name)
                setattr(self, name, own.new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f'tau={self.tau}, interval={self.interval}'
