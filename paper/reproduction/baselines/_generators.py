"""Generators of a graph of nearest neighbours: SLAPS and its successors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import Linear
from torch_geometric.utils import to_undirected

from reproduction.self_supervision.functional import list_sources
from torch_geometric_gsl._checks import check_batch
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.ops.edges import expand_ranges
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
        first, second = self.weight
        if x.layout == torch.strided:
            return _dense_similarities(self.act(x * first) * second, k, batch)
        places = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
        column = x.col_indices()
        value = self.act(x.values() * first[column]) * second[column]
        value = unit_entries(value, places)
        edge_index = _nearest_rows(SparseRows(value.detach(), places), k, batch)
        neighbours = list_sources(edge_index, x.size(0))
        return SampledGraph(edge_index, sparse_pair_dots(value, places, neighbours))


GENERATORS: dict[str, type[FullGenerator | DiagonalGenerator]] = {
    'mlp': FullGenerator,
    'mlp_d': DiagonalGenerator,
}


def _dense_similarities(z: Tensor, k: int, batch: Tensor | None) -> SampledGraph:
    with torch.autocast(z.device.type, enabled=False):
        edge_index = _nearest_rows(unit_rows(z.detach().double()), k, batch)
        z = unit_rows(full_precision(z))
        neighbours = list_sources(edge_index, z.size(0))
        return SampledGraph(edge_index, pair_dots(z, z, neighbours))


def _nearest_rows(z: Any, k: int, batch: Tensor | None) -> Tensor:
    """Connect each row to the rows of its graph with the largest inner products."""
    edges = [torch.empty(2, 0, dtype=torch.long, device=z.device)]
    start = 0
    for part in z.split(graph_sizes(z, batch)):
        size = part.size(0)
        found = best_sources(PairScores(part, part, Identity()), min(k, size))
        target = torch.arange(size, device=z.device).unsqueeze(1).expand_as(found)
        edges.append(torch.stack([found, target]).flatten(1) + start)
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
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Compute the inner products of sparse rows with the rows that they list.

    Equal to :func:`~torch_geometric_gsl.ops.neighbours.pair_dots` of a dense matrix
    with itself, but only one block of rows is dense at a time, also in the backward
    pass. Gradients flow to the entries :obj:`value` at the columns :obj:`places`.
    """
    sizes, source = places.offsets.diff(), neighbours.source.flatten()
    num_rows = sizes.numel()
    products = int(sizes[source].sum()) // max(1, num_rows)
    bytes_per_row = 2 * value.itemsize * places.num_sources + 40 * products
    keep: Any = {'use_reentrant': False, 'preserve_rng_state': False}
    found = [
        checkpoint(_block_dots, value, places, neighbours, rows, **keep)
        for rows in row_blocks(num_rows, bytes_per_row, memory_budget)
    ]
    return torch.cat([value.new_empty(0), *found])


def _block_dots(
    value: Tensor, places: Neighbours, neighbours: Neighbours, rows: slice
) -> Tensor:
    """Compute the products of some rows, which are temporarily dense."""
    width, offsets = places.num_sources, places.offsets.long()
    ends = [rows.start, rows.stop]
    own, pairs = (slice(*o.offsets[ends].tolist()) for o in (places, neighbours))
    cell = (places.target[own].long() - rows.start) * width + places.source[own]
    dense = value.new_zeros((rows.stop - rows.start) * width)
    dense = dense.index_add(0, cell, value[own])
    listed = neighbours.source.flatten()[pairs].long()
    # Entries of a listed row are multiplied by the row that lists it.
    pair, entry = expand_ranges(offsets[listed], offsets.diff()[listed])
    target = neighbours.target[pairs].long() - rows.start
    cell = target[pair] * width + places.source[entry]
    product = value.index_select(0, entry) * dense.index_select(0, cell)
    return value.new_zeros(listed.numel()).index_add(0, pair, product)
