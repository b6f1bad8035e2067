"""Base classes of the baselines."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear

from torch_geometric_gsl._checks import (
    check_batch,
    check_count,
    check_edge_index,
    check_edge_weight,
    check_flag,
    check_generator,
    check_one_graph,
    check_value,
)
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.models.layers import check_input, layer_sizes
from torch_geometric_gsl.nn.models.tasks import resolve_task
from torch_geometric_gsl.nn.nearest_neighbours import nearest_neighbours
from torch_geometric_gsl.ops.runtime import is_exporting
from torch_geometric_gsl.typing import Features, SampledGraph, plain_edges


class Baseline(NodeClassifier):
    r"""Base class of the baselines: the sizes of their layers, checked and printed."""

    #: The options that the representation shows beside the sizes.
    shown: tuple[str, ...] = ()

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        task: str = 'classification',
    ) -> None:
        super().__init__()
        self.sizes = layer_sizes(in_channels, hidden_channels, num_layers, out_channels)
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        resolve_task(task, out_channels)
        self.task = task

    def __repr__(self) -> str:
        options = ''.join(f', {name}={getattr(self, name)}' for name in self.shown)
        if self.task != 'classification':
            options += f', task={self.task!r}'
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, '
            f'num_layers={self.num_layers}, out_channels={self.out_channels}{options})'
        )


class NeighbourModel(Baseline):
    r"""Base class of the models on a given graph, or one of nearest neighbours, whose
    weights are ones without a similarity.
    """

    def __init__(
        self,
        *sizes: int,
        k: int,
        cached: bool,
        similarity: str | None = None,
        task: str = 'classification',
    ) -> None:
        super().__init__(*sizes, task=task)
        check_count(k, 'k')
        check_flag(cached, 'cached')
        self.k = k
        self.similarity = similarity
        self.cached = cached
        self._cached_index: Tensor | None
        self._cached_weight: Tensor
        self._cached_batch: Tensor
        # Buffers, so that it goes with the model to another device or type.
        for name in ('index', 'weight', 'batch'):
            self.register_buffer(f'_cached_{name}', None, persistent=False)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, and forget its graph."""
        self._cached_index = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # A state has no graph: the next call finds it, as in a new model.
        self._cached_index = None
        super()._load_from_state_dict(*args, **kwargs)

    def _check_input(
        self, x: Tensor, lin: Any, generator: torch.Generator | None
    ) -> None:
        """Raise unless the first projection takes the features."""
        if is_exporting():
            raise ValueError(
                f"{type(self).__name__} cannot be recorded by 'torch.export': which "
                "edges there are depends on the values of 'x'"
            )
        check_input(x, lin)
        check_generator(generator, x.device)

    def _graph(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> SampledGraph:
        """Return the graph that is given, cached, or found; no weight is negative."""
        if edge_index is not None:
            return given_graph(x, edge_index, edge_weight, batch)
        if edge_weight is not None:
            raise ValueError("'edge_weight' needs 'edge_index' (got None)")
        if self._cached_index is not None:
            self._check_cached(x, batch)
            return SampledGraph(self._cached_index, self._cached_weight)
        similarity = self.similarity or 'linear'
        found = nearest_neighbours(x, self.k, batch, similarity=similarity)
        graph = self._weighted(found)
        if self.cached:
            # Cloned so: what inference made cannot be trained on.
            with torch.inference_mode(False):
                self._cached_index, self._cached_weight = (t.clone() for t in graph)
                self._cached_batch = _graph_ids(x, batch).clone()
        return graph

    def _weighted(self, graph: SampledGraph) -> SampledGraph:
        """Return a graph with weights that may be normalised."""
        weight = graph.edge_weight.clamp(min=0)
        weight = torch.ones_like(weight) if self.similarity is None else weight
        return graph._replace(edge_weight=weight)

    def _check_cached(self, x: Tensor, batch: Tensor | None) -> None:
        """Raise unless the cached graph is one of such nodes."""
        num_nodes = self._cached_batch.numel()
        if x.size(0) != num_nodes:
            raise ValueError(
                f"'x' must hold the {num_nodes} nodes of the cached graph "
                f'(got {x.size(0)} nodes)'
            )
        other = _graph_ids(x, batch) != self._cached_batch
        check_value(
            ~other.any(),
            "'batch' must be that of the cached graph, until reset_parameters()",
            got=lambda: f'another graph for {int(other.sum())} of {num_nodes} nodes',
        )


def plain_linear(size: tuple[int, int]) -> Linear:
    """Make a projection without a bias."""
    return Linear(*size, bias=False, weight_initializer='glorot')


def given_graph(
    x: Features, edge_index: Tensor, edge_weight: Tensor | None, batch: Any
) -> SampledGraph:
    """Check a graph of one set of nodes, or of sources and targets."""
    src, dst = x if isinstance(x, tuple) else (x, x)
    check_edge_index(edge_index, src, dst)
    edge_index = plain_edges(edge_index)
    if batch is not None:
        of_src, of_dst = batch if isinstance(batch, tuple | list) else (batch, batch)
        check_batch(of_src, src)
        check_batch(of_dst, dst)
        check_one_graph(edge_index, batch)
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.size(1), device=src.device)
    check_edge_weight(edge_weight, edge_index, src)
    return SampledGraph(edge_index, edge_weight.to(src.dtype))


def _graph_ids(x: Tensor, batch: Tensor | None) -> Tensor:
    """Return the graph of each node; all are in one without a batch."""
    if batch is not None:
        check_batch(batch, x)
        return batch
    return torch.zeros(x.size(0), dtype=torch.long, device=x.device)
