"""Graphs that are ordered once, and along which layers sum many times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, cumsum

from torch_geometric_gsl.ops.neighbours import Neighbours, neighbour_sum
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.typing import SampledGraph


class Edges(NamedTuple):
    """A weighted graph in the order in which sums run along it."""

    neighbours: Neighbours
    weight: Tensor

    def sum(self, h: Tensor) -> Tensor:
        """Sum the weighted messages of the sources of each target."""
        full = full_precision(h)
        weight = self.weight.to(full.dtype)
        return neighbour_sum(full, weight, self.neighbours).to(h.dtype)


def list_by_row(row: Tensor, column: Tensor, size: tuple[int, int]) -> Neighbours:
    """List the columns of each row, given pairs that are sorted by row."""
    counts = torch.bincount(row, minlength=size[0])
    return Neighbours(column, size[1], cumsum(counts))


def list_sources(edge_index: Tensor, num_nodes: int) -> Neighbours:
    """List the sources of each node, given edges that are sorted by target."""
    return list_by_row(edge_index[1], edge_index[0], (num_nodes, num_nodes))


def drop_edges(
    edges: Edges, probability: float, generator: torch.Generator | None = None
) -> Edges:
    """Set weights to zero at random, which stands for no edge, and scale the others."""
    if probability == 0:
        return edges
    noise = torch.empty_like(edges.weight, dtype=torch.float32)
    keep = noise.bernoulli_(1 - probability, generator=generator)
    weight = edges.weight * keep.to(edges.weight.dtype) / (1 - probability)
    return edges._replace(weight=weight)


def mix_graphs(
    graphs: Sequence[SampledGraph], shares: Tensor, num_nodes: int
) -> SampledGraph:
    """Return the sum of graphs over one set of nodes, each weighted by its share.

    Shares are those of each graph :math:`[R]`, or of each target :math:`[n, R]`;
    :obj:`num_nodes` is the number of sources or of targets, the larger of both.

    Example:
        >>> edge = torch.tensor([[0], [1]]), torch.ones(1)
        >>> loop = torch.tensor([[1], [1]]), torch.ones(1)
        >>> mixed = mix_graphs([edge, loop], torch.tensor([0.25, 0.75]), num_nodes=2)
        >>> mixed.edge_weight
        tensor([0.2500, 0.7500])
    """
    weights = []
    for number, (edge_index, edge_weight) in enumerate(graphs):
        share = shares[..., number].to(edge_weight.dtype)
        weights.append(edge_weight * (share[edge_index[1]] if share.dim() else share))
    edges = torch.cat([graph[0] for graph in graphs], dim=1)
    return SampledGraph(
        *coalesce(edges, torch.cat(weights), num_nodes, sort_by_row=False)
    )
