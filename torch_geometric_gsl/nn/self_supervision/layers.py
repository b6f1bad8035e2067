"""The networks of self-supervision: two layers on one graph, and what follows them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.ops.edges import Edges, drop_edges, list_by_row
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.masking import MaskedFeatures, hide_channels
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.ops.runtime import full_precision


class GraphLayer(torch.nn.Module):
    """A layer of a GCN, for sparse features and for edges that are already ordered."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = Linear(
            in_channels, out_channels, bias=False, weight_initializer='glorot'
        )
        self.bias = torch.nn.Parameter(torch.empty(out_channels))

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        return edges.sum(apply_linear(self.lin, x)) + self.bias

    def at(self, x: Tensor, edges: Edges, places: Neighbours) -> Tensor:
        """Compute the output at a few places only: channels that each node lists."""
        h, weight = full_precision(edges.sum(x)), full_precision(self.lin.weight)
        bias = self.bias[places.source.long()]
        return pair_dots(h, weight, places).to(x.dtype) + bias


class TwoLayers(torch.nn.Module):
    """Two layers on one graph, with an activation and dropout between them."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = GraphLayer(in_channels, hidden_channels)
        self.last = GraphLayer(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        self.last.reset_parameters()

    def hidden(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return what the last layer takes."""
        h: Tensor = self.first(x, edges).relu()
        return dropout(h, self.dropout, self.training, generator)


class Denoiser(TwoLayers):
    """An autoencoder, whose output is computed where features are hidden."""

    def __init__(self, channels: int, hidden_channels: int, dropout: float) -> None:
        super().__init__(channels, hidden_channels, channels, dropout)

    def forward(
        self,
        masked: MaskedFeatures,
        edges: Edges,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        h = self.hidden(masked.x, edges, generator)
        size = (masked.x.size(0), masked.x.size(1))
        places = list_by_row(masked.row, masked.column, size)
        return self.last.at(h, edges, places)


class ContrastEncoder(TwoLayers):
    """An encoder, and the two layers that project what is contrasted."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        projected_channels: int,
        dropout: float,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, dropout)
        self.project_first = Linear(out_channels, projected_channels)
        self.project_last = Linear(projected_channels, projected_channels)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.project_first.reset_parameters()
        self.project_last.reset_parameters()

    def forward(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None = None
    ) -> Tensor:
        h = self.last(self.hidden(x, edges, generator), edges)
        return apply_linear(
            self.project_last, apply_linear(self.project_first, h).relu()
        )

    def view(
        self,
        x: Tensor,
        edges: Edges,
        mask_rate: float,
        adjacency_dropout: float,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Return one view: features are hidden, and in training mode edges dropped."""
        hidden = hide_channels(x, mask_rate, generator)
        if self.training:
            edges = drop_edges(edges, adjacency_dropout, generator)
        projected: Tensor = self(hidden, edges, generator)
        return projected
