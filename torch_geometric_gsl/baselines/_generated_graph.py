"""Models on the graph of the nearest neighbours of learned embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_absent,
    check_count,
    check_generator,
    check_option,
    pair_of_probabilities,
)
from torch_geometric_gsl.baselines._base import Baseline
from torch_geometric_gsl.baselines.slaps.layers import (
    ACTIVATIONS,
    GENERATORS,
    symmetric_graph,
)
from torch_geometric_gsl.nn.models.layers import check_input
from torch_geometric_gsl.nn.self_supervision.layers import GraphLayer
from torch_geometric_gsl.ops.edges import Edges, drop_edges
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.typing import SampledGraph

#: One probability for both networks of a model, or one for each.
Probabilities = float | tuple[float, float]
#: Why a model takes no context.
UNDIRECTED = (
    'whose graph is undirected: a new row would change what the others get, so give '
    'old and new rows in one call'
)


class GeneratedGraphModel(Baseline):
    r"""Base class of the models whose generator makes the graph of a classifier, and
    learns, in whole or in part, from a second network.
    """

    shown: tuple[str, ...] = ('k',)

    def __init__(
        self,
        *sizes: int,
        k: int,
        graph_generator: str,
        graph_act: str,
        dropout: Probabilities,
        adjacency_dropout: Probabilities,
        task: str = 'classification',
    ) -> None:
        in_channels = sizes[0]
        check_count(in_channels, 'in_channels')
        super().__init__(*sizes, task=task)
        check_count(k, 'k')
        check_option(graph_generator, GENERATORS, 'graph_generator')
        check_option(graph_act, ACTIVATIONS, 'graph_act')
        self.k = k
        self.dropout = pair_of_probabilities(dropout, 'dropout')
        self.adjacency_dropout = pair_of_probabilities(
            adjacency_dropout, 'adjacency_dropout'
        )
        self.graph_generator = GENERATORS[graph_generator](in_channels, graph_act)
        self.classifier = torch.nn.ModuleList(GraphLayer(*size) for size in self.sizes)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        self.graph_generator.reset_parameters()
        for layer in self.classifier:
            layer.reset_parameters()  # type: ignore[operator]

    def graphs(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the one graph that all layers share, before edges are dropped.

        Nothing about it is random, and the weights of a target do not sum to 1.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): Not supported.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes.
                (default: :obj:`None`)
            context (None, optional): Not supported: a new row would change what the
                others get. (default: :obj:`None`)
            generator (torch.Generator, optional): Not drawn from.
                (default: :obj:`None`)

        Returns:
            list: The graph :math:`\mathbf{A}`, sorted by target, as a
            :class:`~torch_geometric_gsl.typing.SampledGraph`.
        """
        check_input(x, self.classifier[0].lin)  # type: ignore[arg-type]
        where = f'for {type(self).__name__}, which takes no candidates'
        check_absent(edge_index, 'edge_index', where)
        check_absent(context, 'context', f'for {type(self).__name__}, {UNDIRECTED}')
        check_generator(generator, x.device)
        similarities = self.graph_generator.similarities(x, self.k + 1, batch)
        graph = symmetric_graph(similarities, x.size(0))
        return [graph._replace(edge_weight=graph.edge_weight.to(x.dtype))]

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
