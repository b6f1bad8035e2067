"""Two-layer networks on a graph, and their self-supervised losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset

from reproduction.self_supervision.functional import (
    check_words,
    drop_edges,
    grouped_nt_xent,
    hide_channels,
    list_sources,
    mask_features,
    pair_of_probabilities,
    restoration_loss,
)
from torch_geometric_gsl._checks import (
    at_least,
    check_count,
    check_flag,
    check_number,
    check_positive,
    check_probability,
)
from torch_geometric_gsl.nn.linear import apply_linear, plain_linear
from torch_geometric_gsl.ops.edges import Edges, list_by_row, merge_edges
from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.ops.runtime import full_precision
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
        num_anchored = int(self.edge_index[1, -1]) + 1
        if num_anchored != num_nodes:
            raise ValueError(
                f"'x' must hold the {num_anchored} nodes of the anchor graph, until "
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
        """Compute the output only at the listed channels of each node."""
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
    """Denoising autoencoder that computes its output at hidden features only.

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
        """Compute the loss of the restored features."""
        if self.binary:
            check_words(x)
        negative_ratio = self.negative_ratio if self.binary else None
        masked = mask_features(x, self.mask_ratio, negative_ratio, generator=generator)
        edges = self.drop(edges, generator)
        features = x if self.sees_hidden else masked.x
        h = self.hidden(features, edges, generator)
        places = list_by_row(masked.row, masked.column, (x.size(0), x.size(1)))
        out = self.last.at(h, edges, places)
        return restoration_loss(out, masked.target, binary=self.binary)


class Contrast(TwoLayers):
    """Encoder with a two-layer projection, and an anchor graph."""

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
        self.project_first = Linear(out_channels, projected_channels)
        self.project_last = Linear(projected_channels, projected_channels)
        self.anchor = anchor

    def forward(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None = None
    ) -> Tensor:
        """Contrast the views along both graphs, then update the anchor graph."""
        num_nodes = x.size(0)
        edge_index, weight = self.anchor.graph(num_nodes, x.dtype)
        graphs = Edges(list_sources(edge_index, num_nodes), weight), edges
        anchor_view, learned_view = (
            self.embed(hide_channels(x, rate, generator), graph, generator)
            for graph, rate in zip(graphs, self.mask_rate, strict=True)
        )
        if self.training:
            self.anchor.update(edges, num_nodes)
        return grouped_nt_xent(
            anchor_view, learned_view, self.temperature, self.batch_size
        )

    def embed(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        """Embed the nodes along a graph and project them."""
        edges = self.drop(edges, generator)
        h = self.last(self.hidden(x, edges, generator), edges)
        projected: Tensor = self.project_last(self.project_first(h).relu())
        return projected
