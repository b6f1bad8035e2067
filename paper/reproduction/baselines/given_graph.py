"""Nets on a given graph, with layers that project sparse features."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATv2Conv, GCNConv, Linear, SimpleConv

from torch_geometric_gsl.nn.linear import apply_linear


class SparseLinear(Linear):
    """A projection that multiplies sparse features without a dense copy of them."""

    def forward(self, x: Tensor) -> Tensor:
        is_sparse = x.layout == torch.sparse_csr
        out: Tensor = apply_linear(self, x) if is_sparse else super().forward(x)
        return out


def sparse_linear(in_channels: int, out_channels: int, **kwargs: Any) -> SparseLinear:
    return SparseLinear(
        in_channels, out_channels, weight_initializer='glorot', **kwargs
    )


class MeanConv(torch.nn.Module):
    """The mean over neighbours of their projected features."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        # SAGEConv projects after averaging: the same sums, but of wider rows.
        self.lin = sparse_linear(in_channels, out_channels)
        self.mean = SimpleConv(aggr='mean')  # type: ignore[abstract]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.mean(self.lin(x), edge_index)
        return out


def gcn(in_channels: int, out_channels: int, heads: int) -> Any:
    conv: Any = GCNConv(  # type: ignore[abstract]
        in_channels, out_channels, cached=True
    )
    conv.lin = sparse_linear(in_channels, out_channels, bias=False)
    return conv


def gat(in_channels: int, out_channels: int, heads: int) -> Any:
    """Build a layer that concatenates its heads if they fit, else averages them."""
    concat = out_channels % heads == 0
    width = out_channels // heads if concat else out_channels
    options: dict[str, Any] = {'heads': heads, 'concat': concat}
    conv: Any = GATv2Conv(in_channels, width, **options)  # type: ignore[abstract]
    conv.lin_l = sparse_linear(in_channels, heads * width)
    conv.lin_r = sparse_linear(in_channels, heads * width)
    return conv


def mean(in_channels: int, out_channels: int, heads: int) -> Any:
    return MeanConv(in_channels, out_channels)


class GivenGraphNet(torch.nn.Module):
    """Layers on the given graph, with or without a root weight."""

    def __init__(
        self,
        conv: Callable[[int, int, int], torch.nn.Module],
        sizes: list[int],
        *,
        heads: int,
        has_root: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        pairs = list(itertools.pairwise(sizes))
        self.convs = torch.nn.ModuleList(conv(*pair, heads) for pair in pairs)
        self.roots = torch.nn.ModuleList(
            sparse_linear(*pair, bias=False) for pair in pairs if has_root
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer, conv in enumerate(self.convs):
            if layer:
                x = F.dropout(F.elu(x), self.dropout, self.training)
            out = conv(x, edge_index)
            x = out + self.roots[layer](x) if len(self.roots) else out
        return x


class NoGraphNet(torch.nn.Module):
    """Wrapper that calls a model without a graph like those on a given graph."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.model(x)
        return out

    def loss(self, x: Tensor, y: Tensor, mask: Tensor, **_: Any) -> Tensor:
        """Return the model's own loss."""
        out: Tensor = self.model.loss(x, y, mask)
        return out
