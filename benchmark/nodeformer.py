"""A peer that learns a graph in linear time, from the recipe of its paper.

NodeFormer (Wu et al., NeurIPS 2022, arXiv 2306.08385) averages K draws of attention
with one Gumbel variable per key, and sums over all keys in O(n) through positive
orthogonal random features. Without a given graph it has neither a relational bias nor
an edge loss.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl.nn.linear import apply_linear


def orthogonal_features(num_features: int, channels: int) -> Tensor:
    """Gaussian directions [m, d], orthogonal within blocks of d of them."""
    blocks = [
        torch.linalg.qr(torch.randn(channels, channels)).Q
        for _ in range(math.ceil(num_features / channels))
    ]
    length = torch.randn(num_features, channels).norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:num_features] * length


def positive_features(x: Tensor, directions: Tensor, dim: tuple[int, ...]) -> Tensor:
    """Features whose inner products estimate exp(x . y), up to one factor.

    The largest exponent along :obj:`dim` is taken out, a factor that cancels: over the
    features of each query, or over those of all keys of a head.
    """
    exponent = x @ directions.t() - x.square().sum(-1, keepdim=True) / 2
    return torch.exp(exponent - exponent.detach().amax(dim, keepdim=True))


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, noise: Tensor | None
) -> Tensor:
    """Attention of each draw through sums over the keys, averaged over the draws.

    Args:
        query (torch.Tensor): Features of the queries [n, H, m].
        key (torch.Tensor): Features of the keys [n, H, m].
        value (torch.Tensor): Values [n, H, d].
        noise (torch.Tensor, optional): Factors of the keys [n, H, K].
    """
    if noise is None:
        noise = key.new_ones(*key.shape[:2], 1)
    key = key.unsqueeze(2) * noise.unsqueeze(3)
    total = torch.einsum('nhkm,nhd->hkmd', key, value)
    above = torch.einsum('nhm,hkmd->nhkd', query, total)
    below = torch.einsum('nhm,hkm->nhk', query, key.sum(dim=0))
    return (above / below.unsqueeze(-1)).mean(dim=2)


class NodeFormerConv(torch.nn.Module):
    """One layer: every head is as wide as the layer."""

    def __init__(
        self, channels: int, heads: int, *, k: int, tau: float, num_features: int
    ) -> None:
        super().__init__()
        self.heads, self.k, self.tau = heads, k, tau
        self.query = torch.nn.Linear(channels, heads * channels)
        self.key = torch.nn.Linear(channels, heads * channels)
        self.value = torch.nn.Linear(channels, heads * channels)
        self.out = torch.nn.Linear(heads * channels, channels)
        directions = orthogonal_features(num_features, channels)
        self.directions: Tensor
        self.register_buffer('directions', directions)

    def forward(self, x: Tensor) -> Tensor:
        shape = (x.size(0), self.heads, x.size(1))
        scale = 1 / (math.sqrt(self.tau) * x.size(1) ** 0.25)
        query = scale * self.query(x).view(shape)
        key = scale * self.key(x).view(shape)
        noise = None
        if self.training:
            self.directions = orthogonal_features(*self.directions.shape)
            noise = self.gumbel_factors(*shape[:2])
        out = linear_attention(
            positive_features(query, self.directions, dim=(-1,)),
            positive_features(key, self.directions, dim=(0, -1)),
            self.value(x).view(shape),
            noise,
        )
        return self.out(out.flatten(1))

    def gumbel_factors(self, num_nodes: int, heads: int) -> Tensor:
        """Factors exp(g / tau) of the keys; the largest of each draw is 1."""
        gumbel = -torch.empty(num_nodes, heads, self.k).exponential_().log()
        return torch.exp((gumbel - gumbel.amax(dim=0)) / self.tau)


class NodeFormer(torch.nn.Module):
    """Layers of linear attention with residuals, on dense or sparse CSR features."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        heads: int,
        k: int = 10,
        tau: float = 0.25,
        num_features: int = 30,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lin_in = Linear(in_channels, hidden_channels)
        self.convs = torch.nn.ModuleList(
            NodeFormerConv(
                hidden_channels, heads, k=k, tau=tau, num_features=num_features
            )
            for _ in range(num_layers)
        )
        self.norms = torch.nn.ModuleList(
            torch.nn.LayerNorm(hidden_channels) for _ in range(num_layers + 1)
        )
        self.lin_out = Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        h = F.elu(self.norms[0](apply_linear(self.lin_in, x)))
        h = F.dropout(h, self.dropout, self.training)
        for conv, norm in zip(self.convs, self.norms[1:], strict=True):
            h = F.dropout(norm(conv(h) + h), self.dropout, self.training)
        return self.lin_out(h)
