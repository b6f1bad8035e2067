"""Base class of the self-supervised losses on a sampled graph."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_compared,
    check_count,
    check_features,
    check_generator,
    check_parameter_match,
    check_type,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.self_supervision.layers import TwoLayers
from torch_geometric_gsl.ops.edges import Edges, list_sources
from torch_geometric_gsl.typing import SampledGraph


class SampledGraphLoss(torch.nn.Module, ABC):
    r"""Base class of the self-supervised losses on a sampled graph.

    The sampler belongs to the user: it keeps its parameters at construction, and is
    reset with all others.
    """

    network: TwoLayers

    def __init__(
        self, sampler: GumbelKNNSampler, in_channels: int, hidden_channels: int
    ) -> None:
        super().__init__()
        check_type(sampler, GumbelKNNSampler, 'sampler', 'a GumbelKNNSampler')
        check_count(in_channels, 'in_channels')
        check_count(hidden_channels, 'hidden_channels')
        self.sampler = sampler
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, those of the sampler too."""
        self.network.reset_parameters()
        self.sampler.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        z: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Return the loss on one sampled graph.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): If given, only these edges are
                candidates. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): Their weights, a prior.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            z (torch.Tensor, optional): The rows that the similarity compares, such as
                the output of an encoder, which then learns; the features if
                :obj:`None`. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of all randomness of the call;
                the global one if :obj:`None`. (default: :obj:`None`)

        Returns:
            torch.Tensor: The loss, a scalar.
        """
        graph = self.graph(x, edge_index, edge_weight, batch, z=z, generator=generator)
        edges = Edges(list_sources(graph.edge_index, x.size(0)), graph.edge_weight)
        return self._loss(x, edges, generator)

    def graph(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        z: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        r"""Return the sampled graph, or in evaluation mode the noise-free one, sorted
        by target; the arguments are those of :meth:`forward`.
        """
        check_features(x, width=self.in_channels)
        check_parameter_match(x, self.network.first.lin.weight)
        check_generator(generator, x.device)
        if z is None:
            z = x
        else:
            check_compared(z, self.sampler.similarity.in_channels, x.size(0))
            check_parameter_match(z, next(self.sampler.parameters(), None), 'z')
        graph: SampledGraph = self.sampler(
            z, edge_index, edge_weight, batch, generator=generator
        )
        return graph

    @abstractmethod
    def _loss(
        self, x: Tensor, edges: Edges, generator: torch.Generator | None
    ) -> Tensor:
        """Return the loss on a graph."""

    def _sizes(self) -> str:
        return f'{self.in_channels}, {self.hidden_channels}'

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self._sizes()}, sampler={self.sampler})'
