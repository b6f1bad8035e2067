"""Base class of models with a graph generator, graph losses and a classifier."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from reproduction.baselines._generators import (
    ACTIVATIONS,
    GENERATORS,
    symmetric_graph,
)
from reproduction.self_supervision.functional import (
    drop_edges,
    list_sources,
    pair_of_probabilities,
)
from reproduction.self_supervision.networks import GraphLayer
from torch_geometric_gsl._checks import (
    check_count,
    check_generator,
    check_option,
)
from torch_geometric_gsl.nn.linear import check_input
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.ops.edges import Edges
from torch_geometric_gsl.ops.noise import dropout
from torch_geometric_gsl.typing import SampledGraph

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
        edges, generator = self._edges(x, **kwargs), kwargs.get('generator')
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
