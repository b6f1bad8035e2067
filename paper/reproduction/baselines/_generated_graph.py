"""Generators of a graph of nearest neighbours, and models with graph losses."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import Linear
from torch_geometric.utils import to_undirected

from reproduction.self_supervision.functional import (
    drop_edges,
    list_sources,
    pair_of_probabilities,
)
from reproduction.self_supervision.networks import GraphLayer
from torch_geometric_gsl._checks import (
    check_batch,
    check_count,
    check_generator,
    check_option,
)
from torch_geometric_gsl.nn.linear import apply_linear, check_input
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.ops.edges import Edges, expand_ranges
from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.ops.neighbours import Neighbours, pair_dots
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import (
    MEMORY_BUDGET,
    disable_compile,
    full_precision,
    row_blocks,
)
from torch_geometric_gsl.ops.scores import Identity, unit_rows
from torch_geometric_gsl.ops.search import best_sources
from torch_geometric_gsl.ops.sparse_rows import SparseRows, unit_entries
from torch_geometric_gsl.typing import SampledGraph

ACTIVATIONS = {'tanh': torch.tanh, 'relu': torch.relu}


def graph_sizes(x: Tensor, batch: Tensor | None) -> list[int]:
    """Count the nodes of each graph, which may be empty."""
    if batch is None:
        return [x.size(0)] if x.size(0) > 0 else []
    check_batch(batch, x)
    sizes: list[int] = torch.unique_consecutive(batch, return_counts=True)[1].tolist()
    return sizes


class FullGenerator(torch.nn.Module):
    """Two square layers, initialised as the identity."""

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
    """Two layers that weight each feature; zeros remain zero."""

    def __init__(self, channels: int, act: str) -> None:
        super().__init__()
        self.act = ACTIVATIONS[act]
        self.weight = torch.nn.Parameter(torch.empty(2, channels))

    def reset_parameters(self) -> None:
        torch.nn.init.ones_(self.weight)

    def similarities(self, x: Tensor, k: int, batch: Tensor | None) -> SampledGraph:
        scale_in, scale_out = self.weight
        if x.layout == torch.strided:
            return _dense_similarities(self.act(x * scale_in) * scale_out, k, batch)
        places = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
        column = x.col_indices()
        value = self.act(x.values() * scale_in[column]) * scale_out[column]
        value = unit_entries(value, places)
        edge_index = _nearest_rows(SparseRows(value.detach(), places), k, batch)
        neighbours = list_sources(edge_index, x.size(0))
        return SampledGraph(edge_index, sparse_pair_dots(value, places, neighbours))


GENERATORS: dict[str, type[FullGenerator | DiagonalGenerator]] = {
    'mlp': FullGenerator,
    'mlp_d': DiagonalGenerator,
}


def _dense_similarities(z: Tensor, k: int, batch: Tensor | None) -> SampledGraph:
    edge_index = _nearest_rows(unit_rows(z.detach().double()), k, batch)
    z = unit_rows(full_precision(z))
    neighbours = list_sources(edge_index, z.size(0))
    return SampledGraph(edge_index, pair_dots(z, z, neighbours))


def _nearest_rows(z: Any, k: int, batch: Tensor | None) -> Tensor:
    """Connect each row to the rows of its graph with the largest inner products."""
    edges = [torch.empty(2, 0, dtype=torch.long, device=z.device)]
    start = 0
    for rows in z.split(graph_sizes(z, batch)):
        size = rows.size(0)
        nearest = best_sources(PairScores(rows, rows, Identity()), min(k, size))
        target = torch.arange(size, device=z.device).unsqueeze(1).expand_as(nearest)
        edges.append(torch.stack([nearest, target]).flatten(1) + start)
        start += size
    return torch.cat(edges, dim=1)


def symmetric_graph(similarities: SampledGraph, num_nodes: int) -> SampledGraph:
    r"""Normalise rectified similarities, :math:`D^{-1/2} (A + A^T) / 2 \, D^{-1/2}`."""
    weight = similarities.edge_weight.relu()
    edge_index, weight = to_undirected(
        similarities.edge_index, weight, num_nodes=num_nodes, reduce='add'
    )
    # A symmetric graph is sorted by sources and by targets. Halves cancel.
    edge_index = edge_index.flip(0)
    degree = weight.new_zeros(num_nodes).index_add(0, edge_index[1], weight)
    # A node without similar ones has edges of weight 0 and degree 0.
    scale = degree.where(degree > 0, 1).rsqrt()
    source, target = edge_index
    return SampledGraph(edge_index, scale[source] * weight * scale[target])


@disable_compile
def sparse_pair_dots(
    value: Tensor,
    places: Neighbours,
    neighbours: Neighbours,
    *,
    memory: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Compute the inner products of sparse rows with the rows that they list.

    Equal to :func:`~torch_geometric_gsl.ops.neighbours.pair_dots` of a dense matrix
    with itself, but only one block of rows is dense at a time, also in the backward
    pass. Gradients flow to the entries :obj:`value` at the columns :obj:`places`.
    """
    sizes = places.offsets.diff()
    source = neighbours.source.flatten()
    num_rows = sizes.numel()
    products = int(sizes[source].sum()) // max(1, num_rows)
    bytes_per_row = 2 * value.itemsize * places.num_sources + 40 * products
    keep: Any = {'use_reentrant': False, 'preserve_rng_state': False}
    dots = [
        checkpoint(_block_dots, value, places, neighbours, rows, **keep)
        for rows in row_blocks(num_rows, bytes_per_row, memory)
    ]
    return torch.cat([value.new_empty(0), *dots])


def _block_dots(
    value: Tensor, places: Neighbours, neighbours: Neighbours, rows: slice
) -> Tensor:
    """Compute the products of some rows, which are temporarily dense."""
    width = places.num_sources
    offsets = places.offsets.long()
    ends = [rows.start, rows.stop]
    entries, pairs = (slice(*o.offsets[ends].tolist()) for o in (places, neighbours))
    cell = (places.target[entries].long() - rows.start) * width + places.source[entries]
    dense = value.new_zeros((rows.stop - rows.start) * width)
    dense = dense.index_add(0, cell, value[entries])
    listed = neighbours.source.flatten()[pairs].long()
    # Entries of a listed row are multiplied by the row that lists it.
    pair, entry = expand_ranges(offsets[listed], offsets.diff()[listed])
    target = neighbours.target[pairs].long() - rows.start
    cell = target[pair] * width + places.source[entry]
    product = value.index_select(0, entry) * dense.index_select(0, cell)
    return value.new_zeros(listed.numel()).index_add(0, pair, product)


#: One probability for both networks of a model, or one for each.
Probabilities = float | tuple[float, float]


class GeneratedGraphModel(NodeClassifier):
    r"""Base class of models that generate a nearest-neighbour graph, and train a
    classifier on it together with weighted losses of the graph.
    """

    def __init__(
        self,
        *sizes: int,
        k: int,
        graph_generator: str,
        graph_act: str = 'tanh',
        dropout: Probabilities = 0.5,
        adjacency_dropout: Probabilities = (0.25, 0.5),
        task: str = 'classification',
    ) -> None:
        in_channels = sizes[0]
        check_count(in_channels, 'in_channels')
        super().__init__()
        widths = self._keep_sizes(*sizes, task=task)
        check_count(k, 'k')
        check_option(graph_generator, GENERATORS, 'graph_generator')
        check_option(graph_act, ACTIVATIONS, 'graph_act')
        self.k = k
        self.dropout = pair_of_probabilities(dropout, 'dropout')
        self.adjacency_dropout = pair_of_probabilities(
            adjacency_dropout, 'adjacency_dropout'
        )
        self.graph_generator = GENERATORS[graph_generator](in_channels, graph_act)
        self.classifier = torch.nn.ModuleList(GraphLayer(*size) for size in widths)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        self.graph_generator.reset_parameters()
        for layer in self.classifier:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        *,
        batch: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass of the classifier; the arguments are those of
        :class:`~torch_geometric_gsl.nn.NodeClassifier`.
        """
        edges = self._edges(x, batch=batch, generator=generator)
        return self._classify(x, edges, generator)

    def loss(
        self, x: Tensor, y: Tensor, mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Compute the loss of the classifier plus weighted losses of the graph, all
        on one graph; the arguments are those of
        :meth:`~torch_geometric_gsl.nn.NodeClassifier.loss`.
        """
        edges = self._edges(x, **kwargs)
        generator = kwargs.get('generator')
        loss = self._label_loss(self._classify(x, edges, generator), y, mask)
        return loss + self._graph_loss(x, edges, generator, y, mask)

    def graphs(
        self,
        x: Tensor,
        *,
        batch: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the graph :math:`\mathbf{A}` that all layers share, sorted by target,
        before edges are dropped. It is deterministic, and the weights of a
        target do not sum to 1. The arguments are those of :meth:`forward`.
        """
        check_input(x, self.classifier[0].lin)  # type: ignore[arg-type]
        check_generator(generator, x.device)
        similarities = self.graph_generator.similarities(x, self.k + 1, batch)
        graph = symmetric_graph(similarities, x.size(0))
        return [graph._replace(edge_weight=graph.edge_weight.to(x.dtype))]

    @abstractmethod
    def _graph_loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None, *labels: Any
    ) -> Tensor:
        """Compute the sum of the weighted losses of the graph."""

    def _edges(self, x: Tensor, **kwargs: Any) -> Edges:
        ((edge_index, weight),) = self.graphs(x, **kwargs)
        return Edges(list_sources(edge_index, x.size(0)), weight)

    def _classify(
        self,
        x: Tensor,
        edges: Edges,
        generator: torch.Generator | None,
        *,
        drop: bool = True,
    ) -> Tensor:
        drop = drop and self.training
        if drop:
            edges = drop_edges(edges, self.adjacency_dropout[1], generator)
        for layer in self.classifier[:-1]:
            x = dropout(layer(x, edges).relu(), self.dropout[1], drop, generator)
        out: Tensor = self.classifier[-1](x, edges)
        return out
