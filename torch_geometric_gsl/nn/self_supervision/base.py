"""What the losses of self-supervision on a drawn graph have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_compared,
    check_count,
    check_generator,
    check_probability,
    check_type,
)
from torch_geometric_gsl.nn.models.layers import check_input
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.self_supervision.layers import TwoLayers
from torch_geometric_gsl.ops.edges import Edges, list_sources
from torch_geometric_gsl.typing import SampledGraph


class DrawnGraphLoss(torch.nn.Module):
    r"""Base class of the losses that a network on one drawn graph gives its sampler.

    The sampler belongs to the user: it keeps its parameters at construction, and is
    reset with all others.
    """

    network: TwoLayers

    def __init__(
        self,
        sampler: GumbelKNNSampler,
        in_channels: int,
        hidden_channels: int,
        dropout: float,
        adjacency_dropout: float,
    ) -> None:
        super().__init__()
        check_type(sampler, GumbelKNNSampler, 'sampler', 'a GumbelKNNSampler')
        check_count(in_channels, 'in_channels')
        check_count(hidden_channels, 'hidden_channels')
        check_probability(dropout, 'dropout')
        check_probability(adjacency_dropout, 'adjacency_dropout')
        self.sampler = sampler
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.adjacency_dropout = adjacency_dropout

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, those of the sampler too."""
        self.network.reset_parameters()
        self.sampler.reset_parameters()

    def graph(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        embedding: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        r"""Return the graph on which features are restored or contrasted: one that is
        drawn, or the noise-free one in evaluation mode.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Candidates. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights, a prior.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
            embedding (torch.Tensor, optional): What the similarity compares.
                (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness.
                (default: :obj:`None`)

        Returns:
            SampledGraph: The edges and their weights, sorted by target.
        """
        check_input(x, self.network.first.lin)
        check_generator(generator, x.device)
        if embedding is None:
            embedding = x
        else:
            width = self.sampler.similarity.in_channels
            check_compared(embedding, width, x.size(0), 'embedding')
        graph: SampledGraph = self.sampler(
            embedding, edge_index, edge_weight, batch, generator=generator
        )
        return graph

    def _sizes(self) -> str:
        return f'{self.in_channels}, {self.hidden_channels}'

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self._sizes()}, sampler={self.sampler})'


def order_edges(graph: SampledGraph, num_nodes: int) -> Edges:
    """Put a graph into the order in which layers sum along it."""
    return Edges(list_sources(graph.edge_index, num_nodes), graph.edge_weight)
