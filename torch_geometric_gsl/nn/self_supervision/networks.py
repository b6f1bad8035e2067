"""Two-layer networks on a graph, their self-supervised losses, and the running mean of
graphs used as a contrast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset
from torch_geometric.nn.pool.select.topk import topk
from torch_geometric.utils import coalesce, scatter
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_flag,
    check_graph,
    check_number,
    check_positive,
    check_probability,
    pair_of_probabilities,
)
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.ops.edges import Edges, drop_edges, list_by_row, list_sources
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.ops.self_supervised import (
    check_words,
    grouped_nt_xent,
    hide_channels,
    mask_features,
    restoration_loss,
)
from torch_geometric_gsl.typing import SampledGraph, plain_edges


class GraphLayer(torch.nn.Module):
    """A GCN layer for sparse features and sorted edges."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = plain_linear(in_channels, out_channels)
        self.bias = torch.nn.Parameter(torch.empty(out_channels))

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        return edges.sum(apply_linear(self.lin, x)) + self.bias

    def at(self, x: Tensor, edges: Edges, places: Neighbours) -> Tensor:
        """Compute the output at the listed channels of each node only."""
        h, weight = full_precision(edges.sum(x)), full_precision(self.lin.weight)
        bias = self.bias[places.source.long()]
        return pair_dots(h, weight, places).to(x.dtype) + bias


class TwoLayers(torch.nn.Module):
    """Two layers on one graph, with an activation and dropout in between."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        dropout: float,
        adjacency_dropout: float,
    ) -> None:
        super().__init__()
        check_probability(dropout, 'dropout')
        check_probability(adjacency_dropout, 'adjacency_dropout')
        self.dropout = dropout
        self.adjacency_dropout = adjacency_dropout
        self.first = GraphLayer(in_channels, hidden_channels)
        self.last = GraphLayer(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        for module in self.children():
            reset(module)

    def hidden(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        """Return the input of the last layer."""
        h: Tensor = self.first(x, edges).relu()
        return dropout(h, self.dropout, self.training, generator)

    def drop(self, edges: Edges, generator: torch.Generator | None) -> Edges:
        """Drop edges at random in training mode."""
        if not self.training:
            return edges
        return drop_edges(edges, self.adjacency_dropout, generator)


class Denoiser(TwoLayers):
    """A denoising autoencoder that computes its output at hidden features only.

    With :obj:`sees_hidden` the input keeps the hidden features.
    """

    def __init__(
        self,
        channels: int,
        hidden_channels: int,
        *,
        binary: bool,
        mask_ratio: float,
        negative_ratio: float,
        dropout: float,
        adjacency_dropout: float,
        sees_hidden: bool = False,
    ) -> None:
        super().__init__(
            channels, hidden_channels, channels, dropout, adjacency_dropout
        )
        check_flag(binary, 'binary')
        self.binary = binary
        self.mask_ratio = at_least(1, mask_ratio, 'mask_ratio')
        self.negative_ratio = at_least(0, negative_ratio, 'negative_ratio')
        self.sees_hidden = sees_hidden

    def forward(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the error of the restored features."""
        if self.binary:
            check_words(x)
        negative_ratio = self.negative_ratio if self.binary else None
        masked = mask_features(x, self.mask_ratio, negative_ratio, generator=generator)
        edges = self.drop(edges, generator)
        given = x if self.sees_hidden else masked.x
        h = self.hidden(given, edges, generator)
        places = list_by_row(masked.row, masked.column, (x.size(0), x.size(1)))
        out = self.last.at(h, edges, places)
        return restoration_loss(out, masked.target, binary=self.binary)


class Anchor(torch.nn.Module):
    """A running mean of graphs, initially the identity or given edges.

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
        return _merge(torch.cat([self.first_index, loops], dim=1), weight, num_nodes)

    @torch.no_grad()
    def update(self, learned: Edges, num_nodes: int) -> None:
        """Move towards a learned graph."""
        if self.tau == 1 or num_nodes == 0:
            return
        edge_index, weight = self.graph(num_nodes, self.edge_weight.dtype)
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
        # Resize the buffers to the number of loaded edges.
        for name in ('edge_index', 'edge_weight'):
            value = state_dict.get(f'{prefix}{name}')
            if value is not None:
                setattr(self, name, getattr(self, name).new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


class Contrast(TwoLayers):
    """An encoder with a projection of two layers, and an anchor graph.

    With :obj:`shuffle`, groups of :obj:`batch_size` nodes are random in training.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        projected_channels: int,
        anchor: Anchor,
        *,
        temperature: float,
        batch_size: int | None,
        mask_rate: float | tuple[float, float],
        dropout: float,
        adjacency_dropout: float,
        shuffle: bool = False,
    ) -> None:
        check_count(out_channels, 'embedding_channels')
        check_count(projected_channels, 'projected_channels')
        check_positive(temperature, 'temperature')
        if batch_size is not None:
            check_count(batch_size, 'contrast_batch_size', 2)
        super().__init__(
            in_channels, hidden_channels, out_channels, dropout, adjacency_dropout
        )
        self.temperature = temperature
        self.batch_size = batch_size
        self.mask_rate = pair_of_probabilities(mask_rate, 'mask_rate')
        self.shuffle = shuffle
        self.project_first = Linear(out_channels, projected_channels)
        self.project_last = Linear(projected_channels, projected_channels)
        self.anchor = anchor

    def forward(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None = None
    ) -> Tensor:
        """Contrast the views along both graphs, then update the anchor graph."""
        num_nodes, size = x.size(0), self.batch_size
        edge_index, weight = self.anchor.graph(num_nodes, x.dtype)
        graphs = Edges(list_sources(edge_index, num_nodes), weight), edges
        first, second = (
            self.embed(hide_channels(x, rate, generator), graph, generator)
            for graph, rate in zip(graphs, self.mask_rate, strict=True)
        )
        if self.training:
            self.anchor.update(edges, num_nodes)
            if self.shuffle and size is not None and size < num_nodes:
                order = torch.randperm(num_nodes, generator=generator, device=x.device)
                first, second = first[order], second[order]
        return grouped_nt_xent(first, second, self.temperature, size)

    def embed(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        """Embed the nodes along a graph and project them."""
        edges = self.drop(edges, generator)
        h = self.last(self.hidden(x, edges, generator), edges)
        projected: Tensor = self.project_last(self.project_first(h).relu())
        return projected


def _mean_graph(given: Any) -> SampledGraph:
    """Check given edges, and normalise their weights to sum to 1 per target."""
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
    """Sort edges by target, and add up the weights of duplicates."""
    return SampledGraph(*coalesce(edge_index, weight, num_nodes, sort_by_row=False))


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
