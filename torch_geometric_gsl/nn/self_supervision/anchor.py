"""Running mean of learned graphs, with which the present one is contrasted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.pool.select.topk import topk
from torch_geometric.utils import coalesce

from torch_geometric_gsl._checks import check_count, check_graph, check_number
from torch_geometric_gsl.ops.edges import Edges, list_sources
from torch_geometric_gsl.typing import SampledGraph, plain_edges


class Anchor(torch.nn.Module):
    r"""A running mean of graphs, :math:`\mathbf{A} \leftarrow \tau \mathbf{A} +
    (1 - \tau) \mathbf{S}` at every :obj:`interval`-th call, which begins as the
    identity or as given edges.

    It is part of the state of the module, as running statistics are, and has no edges
    before its first update. With :obj:`max_neighbours` it keeps the heaviest edges of
    each target and rescales them to the old total: sampled graphs would otherwise add
    up to one of all pairs.
    """

    edge_index: Tensor
    edge_weight: Tensor
    num_steps: Tensor
    first_index: Tensor | None
    first_weight: Tensor | None

    def __init__(
        self,
        tau: float,
        interval: int,
        first: Any = None,
        max_neighbours: int | None = None,
    ) -> None:
        super().__init__()
        check_number(tau, 'tau')
        if not 0 <= tau <= 1:
            raise ValueError(f"'tau' must lie in [0, 1] (got {tau})")
        check_count(interval, 'anchor_interval')
        self.tau = tau
        self.interval = interval
        self.max_neighbours = max_neighbours
        for name in ('edge_index', 'edge_weight', 'num_steps'):
            self.register_buffer(name, None)
        # What was given at construction is no part of the state.
        graph = (None, None) if first is None else _mean_graph(first)
        for name, value in zip(('first_index', 'first_weight'), graph, strict=True):
            self.register_buffer(name, value, persistent=False)

    def reset_parameters(self) -> None:
        device = None if self.edge_weight is None else self.edge_weight.device
        dtype = None if self.edge_weight is None else self.edge_weight.dtype
        self.edge_index = torch.empty(2, 0, dtype=torch.long, device=device)
        self.edge_weight = torch.empty(0, dtype=dtype, device=device)
        self.num_steps = torch.zeros((), dtype=torch.long, device=device)

    def graph(self, num_nodes: int, like: Tensor) -> SampledGraph:
        """Return the graph, sorted by target, of that number of nodes."""
        if self.edge_weight.numel() == 0:
            return self._first(num_nodes, like)
        # Each node is a target, and targets ascend.
        known = int(self.edge_index[1, -1]) + 1
        if known != num_nodes:
            raise ValueError(
                f"'x' must hold the {known} nodes of the anchor graph, until "
                f'reset_parameters() (got {num_nodes} nodes)'
            )
        return SampledGraph(self.edge_index, self.edge_weight.to(like.dtype))

    def _first(self, num_nodes: int, like: Tensor) -> SampledGraph:
        """Return the first graph, in which nodes without an edge have a loop."""
        node = torch.arange(num_nodes, device=like.device)
        one = torch.ones(num_nodes, dtype=like.dtype, device=like.device)
        if self.first_index is None or self.first_weight is None:
            return SampledGraph(node.repeat(2, 1), one)
        most = int(self.first_index.max()) if self.first_index.numel() else -1
        if most >= num_nodes:
            raise ValueError(
                f"'anchor' must join nodes of 'x' (got node {most} for {num_nodes} "
                'nodes)'
            )
        weight = self.first_weight.to(like.dtype)
        lonely = torch.bincount(self.first_index[1], minlength=num_nodes) == 0
        loops = node[lonely].repeat(2, 1)
        edges = torch.cat([self.first_index, loops], dim=1)
        return _merge(edges, torch.cat([weight, one[lonely]]), num_nodes)

    def edges(self, num_nodes: int, like: Tensor) -> Edges:
        """Return the graph in the order in which layers sum along it."""
        edge_index, weight = self.graph(num_nodes, like)
        return Edges(list_sources(edge_index, num_nodes), weight)

    @torch.no_grad()
    def update(self, learned: Edges, num_nodes: int) -> None:
        """Move towards a learned graph at every :obj:`interval`-th call."""
        if self.tau == 1 or num_nodes == 0:
            return
        self.num_steps = self.num_steps + 1
        if int(self.num_steps) % self.interval:
            return
        edge_index, weight = self.graph(num_nodes, self.edge_weight)
        places = learned.neighbours
        new_index = torch.stack([places.source.flatten(), places.target]).long()
        new = learned.weight.to(weight.dtype)
        merged = _merge(
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
        # The number of edges is that of what is loaded.
        for name in ('edge_index', 'edge_weight'):
            value = state_dict.get(f'{prefix}{name}')
            if value is not None:
                own = getattr(self, name)
                setattr(self, name, own.new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f'tau={self.tau}, interval={self.interval}'


def _mean_graph(given: Any) -> SampledGraph:
    """Check given edges, and scale their weights to a sum of 1 for each target."""
    if isinstance(given, Tensor):
        given = given, torch.ones(given.shape[-1:], device=given.device)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(
            "'anchor' must be a torch.Tensor of edges or a pair (edge_index, "
            f'edge_weight) (got {type(given).__name__})'
        )
    edge_index, weight = check_graph(given).prune()
    edge_index, weight = _merge(plain_edges(edge_index), weight)
    return SampledGraph(edge_index, weight / _totals(edge_index, weight))


def _merge(
    edge_index: Tensor, weight: Tensor, num_nodes: int | None = None
) -> SampledGraph:
    """Sort edges by target, and add up the weights of equal ones."""
    return SampledGraph(
        *coalesce(edge_index, weight, num_nodes=num_nodes, sort_by_row=False)
    )


def _heaviest(graph: SampledGraph, count: int) -> SampledGraph:
    """Keep the heaviest edges of each target and rescale them to the old total."""
    edge_index, weight = graph
    kept = topk(weight, count, edge_index[1]).sort().values
    if kept.numel() == weight.numel():
        return graph
    before, after = _totals(edge_index, weight)[kept], weight[kept]
    edge_index = edge_index[:, kept]
    least = torch.finfo(weight.dtype).tiny  # All may weigh nothing.
    scale = before / _totals(edge_index, after).clamp(min=least)
    return SampledGraph(edge_index, after * scale)


def _totals(edge_index: Tensor, weight: Tensor) -> Tensor:
    """Return for each edge the total weight of the edges of its target."""
    target = edge_index[1]
    size = int(target[-1]) + 1 if target.numel() else 0
    return weight.new_zeros(size).index_add(0, target, weight)[target]
