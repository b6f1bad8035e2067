"""Encoders of nodes, trained without labels by Deep Graph Infomax on a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn.models import DeepGraphInfomax
from torch_geometric.utils import softmax

from reproduction.baselines.given_graph import gcn, sparse_linear
from torch_geometric_gsl import (
    GumbelKNNSampler,
    LinearSimilarity,
    SampledGraph,
    UniformSimilarity,
)
from torch_geometric_gsl.ops.aggregate import weighted_sum
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours

#: Factor of the cosines that sample neighbours; `None` samples uniformly.
Scale = float | None
#: The weight of a node itself; its neighbours have the rest.
OWN_SHARE = 0.2
#: The number of draws.
DRAWS = 5


def encode(data: Data, seed: int, options: dict[str, Any]) -> Tensor:
    """Train a GCN layer on the nearest-neighbour graph, and return its embeddings."""
    seed_everything(seed)
    x = data['x']
    channels = options['channels']
    edge_index = nearest_neighbours(x, options['k']).edge_index
    encoder = _GCNEncoder(gcn(data.num_features, channels, 1), channels)
    _train(encoder, x, lambda: edge_index, options)
    return _rows(encoder, x, edge_index)


def encode_drawn(
    data: Data, seed: int, options: dict[str, Any], scale: Scale
) -> Tensor:
    """Train an encoder on graphs that each step samples, and return its embeddings.

    The embeddings use all candidates, weighted by their probabilities.
    """
    seed_everything(seed)
    x = data['x']
    edge_index = nearest_neighbours(x, options['k']).edge_index
    size = data.num_features
    similarity = UniformSimilarity(size) if scale is None else LinearSimilarity(size)
    sampler = GumbelKNNSampler.paper(
        similarity, k=DRAWS, tau=1.0, scale=1.0 if scale is None else scale, loop=False
    )
    encoder = _DrawnEncoder(size, options['channels'])
    _train(encoder, x, lambda: sampler(x, edge_index), options)
    score = sampler.scale * similarity(x, edge_index)
    weight = softmax(score, edge_index[1], num_nodes=x.size(0))
    return _rows(encoder, x, SampledGraph(edge_index, weight))


def _train(
    encoder: torch.nn.Module,
    x: Tensor,
    draw: Callable[[], Any],
    options: dict[str, Any],
) -> None:
    """Train to distinguish nodes from those of a graph with shuffled features."""

    def summary(z: Tensor, *_: Any) -> Tensor:
        return z.mean(dim=0).sigmoid()

    def corruption(x: Tensor, graph: Any) -> tuple[Tensor, Any]:
        return _shuffled(x), graph

    model = DeepGraphInfomax(options['channels'], encoder, summary, corruption)
    optimizer = torch.optim.Adam(model.parameters(), options['lr'])
    for _ in range(options['epochs']):
        optimizer.zero_grad()
        model.loss(*model(x, draw())).backward()
        optimizer.step()


@torch.no_grad()
def _rows(encoder: torch.nn.Module, x: Tensor, graph: Any) -> Tensor:
    return F.normalize(encoder(x, graph))


class _GCNEncoder(torch.nn.Module):
    def __init__(self, conv: torch.nn.Module, channels: int) -> None:
        super().__init__()
        self.conv, self.act = conv, torch.nn.PReLU(channels)

    def reset_parameters(self) -> None:
        self.conv.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.act(self.conv(x, edge_index))
        return out


class _DrawnEncoder(torch.nn.Module):
    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.lin = sparse_linear(in_channels, channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.act = torch.nn.PReLU(channels)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()  # type: ignore[no-untyped-call]
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, graph: SampledGraph) -> Tensor:
        h = self.lin(x)
        mean = weighted_sum(h, *graph, h.size(0))
        out: Tensor = self.act(OWN_SHARE * h + (1 - OWN_SHARE) * mean + self.bias)
        return out


def _shuffled(x: Tensor) -> Tensor:
    """Return the rows in a random order."""
    order = torch.randperm(x.size(0))
    if x.layout == torch.strided:
        return x[order]
    offsets, column, value = x.crow_indices(), x.col_indices(), x.values()
    size = offsets.diff()[order]
    start = torch.cat([size.new_zeros(1), size.cumsum(0)])
    position = torch.arange(int(start[-1])) - start[:-1].repeat_interleave(size)
    position += offsets[:-1][order].repeat_interleave(size)
    return torch.sparse_csr_tensor(
        start, column[position], value[position], x.shape, check_invariants=False
    )
