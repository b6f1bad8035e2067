"""What SLAPS consists of: generators of embeddings, their graph, and its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import Linear
from torch_geometric.utils import cumsum, to_undirected

from torch_geometric_gsl._checks import check_batch
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.models._neighbours import nearest_neighbours
from torch_geometric_gsl.ops.knn import unit_entries
from torch_geometric_gsl.ops.masking import MaskedFeatures
from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum, pair_dots
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, full_precision, row_blocks
from torch_geometric_gsl.ops.scores import unit_rows
from torch_geometric_gsl.ops.sparse_pairs import sparse_pair_dots
from torch_geometric_gsl.typing import SampledGraph

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    'tanh': torch.tanh,
    'relu': torch.relu,
}


class FullGenerator(torch.nn.Module):
    """Two square layers that begin as the identity."""

    def __init__(self, channels: int, act: str) -> None:
        super().__init__()
        self.act = ACTIVATIONS[act]
        self.first = Linear(channels, channels)
        self.second = Linear(channels, channels)

    def reset_parameters(self) -> None:
        for lin in (self.first, self.second):
            torch.nn.init.eye_(lin.weight)
            torch.nn.init.zeros_(lin.bias)

    def similarities(self, x: Tensor, k: int, batch: Tensor | None) -> SampledGraph:
        z = apply_linear(self.second, self.act(apply_linear(self.first, x)))
        return _dense_similarities(z, k, batch)


class DiagonalGenerator(torch.nn.Module):
    """Two layers that weight each feature; what is zero remains zero."""

    def __init__(self, channels: int, act: str) -> None:
        super().__init__()
        self.act = ACTIVATIONS[act]
        self.weight = torch.nn.Parameter(torch.empty(2, channels))

    def reset_parameters(self) -> None:
        torch.nn.init.ones_(self.weight)

    def similarities(self, x: Tensor, k: int, batch: Tensor | None) -> SampledGraph:
        first, second = self.weight
        if x.layout == torch.strided:
            return _dense_similarities(self.act(x * first) * second, k, batch)
        column = x.col_indices()
        value = self.act(x.values() * first[column]) * second[column]
        return _sparse_similarities(x, value, k, batch)


class Edges(NamedTuple):
    """A graph as its layers use it: ordered once, and summed along many times."""

    neighbours: Neighbours
    weight: Tensor

    def sum(self, h: Tensor) -> Tensor:
        full = full_precision(h)
        weight = self.weight.to(full.dtype)
        return neighbour_sum(full, weight, self.neighbours).to(h.dtype)

    def drop(self, probability: float, generator: torch.Generator | None) -> Edges:
        """Dropout of the weights; zero stands for no edge."""
        if probability == 0:
            return self
        noise = torch.empty_like(self.weight, dtype=torch.float32)
        keep = noise.bernoulli_(1 - probability, generator=generator)
        return self._replace(
            weight=self.weight * keep.to(self.weight.dtype) / (1 - probability)
        )


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
        """The output at a few places only, the channels that each node lists."""
        h, weight = full_precision(edges.sum(x)), full_precision(self.lin.weight)
        bias = self.bias[places.source.long()]
        return pair_dots(h, weight, places).to(x.dtype) + bias


class Denoiser(torch.nn.Module):
    """The autoencoder: two layers, whose output is computed where it is asked for."""

    def __init__(self, channels: int, hidden_channels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = GraphLayer(channels, hidden_channels)
        self.last = GraphLayer(hidden_channels, channels)

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        self.last.reset_parameters()

    def forward(self, masked: MaskedFeatures, edges: Edges) -> Tensor:
        h = self.first(masked.x, edges).relu()
        h = F.dropout(h, self.dropout, self.training)
        size = (masked.x.size(0), masked.x.size(1))
        return self.last.at(h, edges, lists(masked.row, masked.column, size))


def _dense_similarities(z: Tensor, k: int, batch: Tensor | None) -> SampledGraph:
    with torch.autocast(z.device.type, enabled=False):
        z = unit_rows(full_precision(z))
        edge_index = _nearest_rows(z.detach(), k, batch)
        neighbours = lists(edge_index[1], edge_index[0], (z.size(0), z.size(0)))
        return SampledGraph(edge_index, pair_dots(z, z, neighbours))


def _nearest_rows(
    z: Tensor, k: int, batch: Tensor | None, memory_budget: int = MEMORY_BUDGET
) -> Tensor:
    """Edges to each row from those of the largest product with it, by blocks.

    Wide rows of many pairs would be gathered for their weights, which nobody needs.
    """
    sizes = [z.size(0)]
    if batch is not None:
        check_batch(batch, z)
        sizes = torch.unique_consecutive(batch, return_counts=True)[1].tolist()
    edges = [torch.empty(2, 0, dtype=torch.long, device=z.device)]
    start = 0
    for part in z.split(sizes):
        size = part.size(0)
        for rows in row_blocks(size, 2 * size * z.itemsize, memory_budget):
            found = (part[rows] @ part.t()).topk(min(k, size)).indices
            target = torch.arange(rows.start, rows.stop, device=z.device).unsqueeze(1)
            edges.append(
                torch.stack([found, target.expand_as(found)]).flatten(1) + start
            )
        start += size
    return torch.cat(edges, dim=1)


def _sparse_similarities(
    x: Tensor, value: Tensor, k: int, batch: Tensor | None
) -> SampledGraph:
    """Those of rows with the entries :obj:`value` in the places of :obj:`x`."""
    places = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
    value = unit_entries(value, places)
    rows = torch.sparse_csr_tensor(
        x.crow_indices(),
        x.col_indices(),
        value.detach(),
        x.shape,
        check_invariants=False,
    )
    edge_index, _ = nearest_neighbours(rows, k, batch, loop=True)
    neighbours = lists(edge_index[1], edge_index[0], (x.size(0), x.size(0)))
    return SampledGraph(edge_index, sparse_pair_dots(value, places, neighbours))


def ordered(graph: SampledGraph, num_nodes: int) -> Edges:
    return Edges(
        lists(graph.edge_index[1], graph.edge_index[0], (num_nodes, num_nodes)),
        graph.edge_weight,
    )


def lists(row: Tensor, column: Tensor, size: tuple[int, int]) -> Neighbours:
    """The columns that each row lists, of pairs that are sorted by row."""
    counts = torch.bincount(row, minlength=size[0])
    return Neighbours(column, size[1], cumsum(counts))


def symmetric_graph(similarities: SampledGraph, num_nodes: int) -> SampledGraph:
    r"""Rectified similarities as :math:`D^{-1/2} \frac{A + A^T}{2} D^{-1/2}`."""
    edge_index, weight = to_undirected(
        similarities.edge_index,
        similarities.edge_weight.relu(),
        num_nodes=num_nodes,
        reduce='add',
    )
    # Of a symmetric graph sources are as well sorted as targets. Halves cancel.
    edge_index = edge_index.flip(0)
    degree = weight.new_zeros(num_nodes).index_add(0, edge_index[1], weight)
    # A node without similar ones has edges of no weight, and no degree to divide by.
    scale = degree.where(degree > 0, 1).rsqrt()
    source, target = edge_index
    return SampledGraph(edge_index, scale[source] * weight * scale[target])
