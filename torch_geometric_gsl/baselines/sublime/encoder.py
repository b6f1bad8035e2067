"""The encoder of both views of SUBLIME, and the features that a view hides."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import Linear

from torch_geometric_gsl.baselines._edges import Edges
from torch_geometric_gsl.baselines.slaps.layers import GraphLayer
from torch_geometric_gsl.baselines.slaps.masking import with_values
from torch_geometric_gsl.nn.linear import apply_linear


def hide_channels(
    x: Tensor, probability: float, generator: torch.Generator | None = None
) -> Tensor:
    r"""Set channels to zero, the same ones for all nodes.

    They are :math:`\lfloor p \, d \rfloor` of the :math:`d` channels, at random.
    """
    count = int(probability * x.size(1))
    if count == 0:
        return x
    order = torch.rand(x.size(1), device=x.device, generator=generator).argsort()
    keep = torch.ones(x.size(1), dtype=x.dtype, device=x.device)
    keep[order[:count]] = 0
    if x.layout == torch.strided:
        return x * keep
    return with_values(x, x.values() * keep[x.col_indices()])


class ContrastEncoder(torch.nn.Module):
    """Two layers on a graph, and the two that project what is contrasted."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        projected_channels: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = GraphLayer(in_channels, hidden_channels)
        self.last = GraphLayer(hidden_channels, out_channels)
        self.project_first = Linear(out_channels, projected_channels)
        self.project_last = Linear(projected_channels, projected_channels)

    def reset_parameters(self) -> None:
        for layer in (self.first, self.last, self.project_first, self.project_last):
            layer.reset_parameters()

    def embed(self, x: Tensor, edges: Edges) -> Tensor:
        """Return the embeddings of the nodes, before they are projected."""
        h = F.dropout(self.first(x, edges).relu(), self.dropout, self.training)
        out: Tensor = self.last(h, edges)
        return out

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        h = apply_linear(self.project_first, self.embed(x, edges)).relu()
        return apply_linear(self.project_last, h)
