"""Running mean of graphs, the anchor of a contrastive loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.pool.select.topk import topk
from torch_geometric.utils import scatter
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import check_count, check_graph, check_number
from torch_geometric_gsl.ops.edges import Edges, merge_edges
from torch_geometric_gsl.typing import SampledGraph


class Anchor(torch.nn.Module):
    """Running mean of graphs, initially the identity or given edges.

    Its buffers have no edges before the first update. With :obj:`max_neighbours` it
    keeps the heaviest edges of each target.
    """

    edge_index: Tensor
    edge_weight: Tensor
    first_index: Tensor
    first_weight: Tensor

    def __init__(
        self, tau: float, first: Any = None, max_neighbours: int | None = None
    ) -> None:
        super().__init__()
        check_number(tau, 'tau')
        if not 0 <= tau <= 1:
            raise ValueError(f"'tau' must lie in [0, 1] (got {tau})")
        if max_neighbours is not None:
            check_count(max_neighbours, 'max_anchor_neighbours')
        self.tau = tau
        self.max_neighbours = max_neighbours
        none = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
        self.register_buffer('edge_index', none[0])
        self.register_buffer('edge_weight', none[1])
        # A constructor argument, not part of the state.
        edge_index, weight = none if first is None else _mean_graph(first)
        self.register_buffer('first_index', edge_index, persistent=False)
        self.register_buffer('first_weight', weight, persistent=False)

    def reset_parameters(self) -> None:
        self.edge_index = self.edge_index.new_empty(2, 0)
        self.edge_weight = self.edge_weight.new_empty(0)

    def graph(self, num_nodes: int, dtype: torch.dtype) -> SampledGraph:
        """Return the graph on the given number of nodes, sorted by target."""
        if self.edge_weight.numel() == 0:
            return self._first(num_nodes, dtype)
        # Each node is a target, in ascending order.
        known = int(self.edge_index[1, -1]) + 1
        if known != num_nodes:
            raise ValueError(
                f"'x' must hold the {known} nodes of the anchor graph, until "
                f'reset_parameters() (got {num_nodes} nodes)'
            )
        return SampledGraph(self.edge_index, self.edge_weight.to(dtype))

    def _first(self, num_nodes: int, dtype: torch.dtype) -> SampledGraph:
        """Return the initial graph, with self-loops for nodes without edges."""
        known = maybe_num_nodes(self.first_index)
        if known > num_nodes:
            raise ValueError(
                f"'anchor' must join nodes of 'x' (got node {known - 1} for "
                f'{num_nodes} nodes)'
            )
        lonely = torch.bincount(self.first_index[1], minlength=num_nodes) == 0
        loops = lonely.nonzero().t().expand(2, -1)
        weight = self.first_weight.to(dtype)
        weight = torch.cat([weight, weight.new_ones(loops.size(1))])
        edge_index = torch.cat([self.first_index, loops], dim=1)
        return merge_edges(edge_index, weight, num_nodes)

    @torch.no_grad()
    def update(self, learned: Edges, num_nodes: int) -> None:
        """Average with a learned graph."""
        if self.tau == 1 or num_nodes == 0:
            return
        edge_index, weight = self.graph(num_nodes, self.edge_weight.dtype)
        places = learned.neighbours
        new_index = torch.stack([places.source.flatten(), places.target]).long()
        new = learned.weight.to(weight.dtype)
        merged = merge_edges(
            torch.cat([edge_index, new_index], dim=1),
            torch.cat([self.tau * weight, (1 - self.tau) * new]),
            num_nodes,
        )
        if self.max_neighbours is not None:
            merged = _heaviest(merged, self.max_neighbours)
        self.edge_index, self.edge_weight = merged

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # Resize the buffers to the number of loaded edges.
        for name in ('edge_index', 'edge_weight'):
            value = state_dict.get(f'{prefix}{name}')
            if value is not None:
                setattr(self, name, getattr(self, name).new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _mean_graph(given: Any) -> SampledGraph:
    """Check edges, and normalise their weights to sum to 1 per target."""
    if isinstance(given, Tensor):
        given = given, torch.ones(given.shape[-1:], device=given.device)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(
            "'anchor' must be a torch.Tensor of edges or a pair (edge_index, "
            f'edge_weight) (got {type(given).__name__})'
        )
    edge_index, weight = merge_edges(*check_graph(given).prune())
    return SampledGraph(edge_index, weight / _totals(edge_index, weight))


def _heaviest(graph: SampledGraph, count: int) -> SampledGraph:
    """Keep the heaviest edges of each target and rescale them to the old total."""
    edge_index, weight = graph
    kept = topk(weight, count, edge_index[1]).sort().values
    if kept.numel() == weight.numel():
        return graph
    before, after = _totals(edge_index, weight)[kept], weight[kept]
    edge_index = edge_index[:, kept]
    least = torch.finfo(weight.dtype).tiny  # All weights may be zero.
    scale = before / _totals(edge_index, after).clamp(min=least)
    return SampledGraph(edge_index, after * scale)


def _totals(edge_index: Tensor, weight: Tensor) -> Tensor:
    """Return for each edge the total weight of its target's edges."""
    return scatter(weight, edge_index[1])[edge_index[1]]
