"""Models on one fixed graph: of nearest neighbours, or given."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, cast

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_batch,
    check_context,
    check_count,
    check_edge_index,
    check_edge_weight,
    check_flag,
    check_generator,
    check_one_graph,
    check_one_type,
    check_value,
    split_pair,
)
from torch_geometric_gsl.baselines._base import Baseline
from torch_geometric_gsl.nn.models.reference import RemembersRows
from torch_geometric_gsl.nn.nearest_neighbours import (
    nearest_in_context,
    nearest_neighbours,
)
from torch_geometric_gsl.ops.runtime import is_exporting
from torch_geometric_gsl.ops.sparse_rows import stack_rows
from torch_geometric_gsl.typing import Features, SampledGraph, plain_edges


class NeighbourModel(Baseline):
    r"""Base class of the models that start from a graph of nearest neighbours, whose
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
        self._cached_weight: Tensor | None
        self._cached_batch: Tensor | None
        # Buffers, so that it goes with the model to another device or type.
        for name in ('index', 'weight', 'batch'):
            self.register_buffer(f'_cached_{name}', None, persistent=False)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, and forget its graph."""
        self._cached_index = self._cached_weight = self._cached_batch = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # A state has no graph: the next call finds it, as in a new model.
        self._cached_index = self._cached_weight = self._cached_batch = None
        super()._load_from_state_dict(*args, **kwargs)

    def _graph(
        self,
        x: Tensor,
        edge_index: Tensor | None,
        batch: Tensor | None,
        edge_weight: Tensor | None,
        generator: torch.Generator | None,
    ) -> SampledGraph:
        """Return the graph that is given, cached, or found; no weight is negative."""
        check_generator(generator, x.device)
        if edge_index is not None:
            return _given_graph(x, edge_index, batch, edge_weight)
        if edge_weight is not None:
            raise ValueError("'edge_weight' needs 'edge_index' (got None)")
        if self._cached_index is not None:
            self._check_cached(x, batch)
            return SampledGraph(self._cached_index, cast(Tensor, self._cached_weight))
        similarity = self.similarity or 'linear'
        edge_index, weight = nearest_neighbours(x, self.k, batch, similarity=similarity)
        graph = self._weighted(SampledGraph(edge_index, weight))
        if self.cached:
            # Cloned so: what inference made cannot be trained on.
            with torch.inference_mode(False):
                self._cached_index, self._cached_weight = (t.clone() for t in graph)
                self._cached_batch = _graph_ids(x, batch)
        return graph

    def _weighted(self, graph: SampledGraph) -> SampledGraph:
        """Return a graph with weights that may be normalised."""
        weight = graph.edge_weight
        is_weighted = self.similarity is not None
        weight = weight.clamp(min=0) if is_weighted else torch.ones_like(weight)
        return graph._replace(edge_weight=weight)

    def _check_cached(self, x: Tensor, batch: Tensor | None) -> None:
        """Raise unless the cached graph is one of such nodes."""
        ids = cast(Tensor, self._cached_batch)
        num_nodes = ids.numel()
        if x.size(0) != num_nodes:
            raise ValueError(
                f"'x' must hold the {num_nodes} nodes of the cached graph "
                f'(got {x.size(0)} nodes)'
            )
        if batch is not None:
            check_batch(batch, x)
        other = _graph_ids(x, batch) != ids
        check_value(
            ~other.any(),
            "'batch' must be that of the cached graph, until reset_parameters()",
            got=lambda: f'another graph for {int(other.sum())} of {num_nodes} nodes',
        )


class FixedGraphModel(RemembersRows, NeighbourModel):
    r"""Base class of the models whose layers all have that one graph."""

    @property
    def num_graphs(self) -> int:
        """Return the number of layers that send messages along the graph."""
        return 1

    @abstractmethod
    def _check_features(self, x: Tensor) -> None:
        """Raise unless the first layer can take the features."""

    @abstractmethod
    def _logits(
        self, x: Tensor, graph: SampledGraph, generator: torch.Generator | None
    ) -> Tensor:
        """Compute the logits of all nodes of a graph."""

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Any = None,
        batch: Tensor | None = None,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR.
            edge_index (torch.Tensor, optional): If given, this graph is used instead
                of that of the nearest neighbours. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of :obj:`edge_index`,
                not negative; ones if :obj:`None`. (default: :obj:`None`)
            batch (torch.Tensor, optional): Sorted graph ids of the nodes: no edge
                joins two graphs. (default: :obj:`None`)
            context (torch.Tensor, optional): The rows that are the neighbours of those
                of :obj:`x`, in place of these. Edges, graph ids and weights are pairs
                then, of the context and of :obj:`x`. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of dropout; the
                global one if :obj:`None`. (default: :obj:`None`)
        """
        if is_exporting():
            raise ValueError(
                f"{type(self).__name__} cannot be recorded by 'torch.export': which "
                "edges there are depends on the values of 'x'"
            )
        check_one_type(x)
        args = edge_index, batch, edge_weight
        context = self._context(x, context, *args)
        self._check_features(x)
        if context is None:
            return self._logits(x, self._graph(x, *args, generator), generator)
        own, new = self._context_graphs(x, context, *args, generator)
        target = new.edge_index[1] + context.size(0)
        edges = [own.edge_index, torch.stack([new.edge_index[0], target])]
        weight = torch.cat([own.edge_weight, new.edge_weight])
        graph = SampledGraph(torch.cat(edges, dim=1), weight)
        out = self._logits(stack_rows(context, x), graph, generator)
        return out[context.size(0) :]

    def _context_graphs(
        self,
        x: Tensor,
        context: Tensor,
        edge_index: Any,
        batch: Any,
        edge_weight: Any,
        generator: torch.Generator | None,
    ) -> tuple[SampledGraph, SampledGraph]:
        """Return the graph of a context, and that of the rows to which it sends."""
        check_context(context, x)
        edges, ids = split_pair(edge_index, 'edge_index'), split_pair(batch, 'batch')
        weights = split_pair(edge_weight, 'edge_weight')
        own = self._graph(context, edges[0], ids[0], weights[0], generator)
        if edges[1] is not None:
            return own, _given_graph((context, x), edges[1], batch, weights[1])
        similarity = self.similarity or 'linear'
        new = nearest_in_context(x, context, self.k, batch, similarity=similarity)
        return own, self._weighted(new)

    def graphs(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Any = None,
        batch: Tensor | None = None,
        *,
        context: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the graph of each layer, which is the same, before it is normalised;
        the arguments are those of :meth:`forward`.
        """
        args = edge_index, batch, edge_weight, generator
        context = self._context(x, context, *args[:3])
        if context is None:
            graph = self._graph(x, *args)
        else:
            _, graph = self._context_graphs(x, context, *args)
        return [graph] * self.num_graphs


def _graph_ids(x: Tensor, batch: Tensor | None) -> Tensor:
    """Return the graph of each node; all are in one without a batch."""
    if batch is not None:
        return batch.clone()
    return torch.zeros(x.size(0), dtype=torch.long, device=x.device)


def _given_graph(
    x: Features, edge_index: Tensor, batch: Any, edge_weight: Tensor | None
) -> SampledGraph:
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
