"""The graph of nearest neighbours, and what models on it share."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_count,
    check_edge_index,
    check_features,
    check_finite,
    check_flag,
    check_generator,
    check_option,
    check_value,
)
from torch_geometric_gsl.nn.models.base import NodeClassifier
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.knn import cosine_top_k
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.typing import SampledGraph, plain_edges

#: What an edge can weigh; the nearest nodes are those of the cosine in any case.
WEIGHTS = ('linear', 'heat_kernel')


@torch.no_grad()
def nearest_neighbours(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    *,
    similarity: str = 'linear',
    loop: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> SampledGraph:
    """Edges to each node from those of the largest cosine, weighted by a similarity.

    The search is exact, by blocks of rows. Sparse features are neither made dense nor
    projected. In a batch no edge joins two graphs, and the nodes of a graph with fewer
    than :obj:`k` others have fewer neighbours.

    Args:
        x (torch.Tensor): The node features, dense or sparse CSR.
        k (int): The number of neighbours.
        batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
        similarity (str, optional): The weights, :obj:`"linear"` (the cosine) or
            :obj:`"heat_kernel"` (of unit rows). (default: :obj:`"linear"`)
        loop (bool, optional): Whether a node may be its own neighbour.
            (default: :obj:`False`)
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    check_features(x)
    check_count(k, 'k')
    check_option(similarity, WEIGHTS, 'similarity')
    weigh = resolve_similarity(similarity, x.size(1))
    if x.layout != torch.strided:
        edge_index, cosine = _sparse_neighbours(x, k, batch, loop, memory_budget)
        if weigh.comparison == 'dot':
            return SampledGraph(edge_index, cosine.to(x.dtype))
        # The squared length of a unit row is 1, but that of a row of zeros is 0.
        length = _is_filled(x).to(cosine.dtype)[edge_index].sum(dim=0)
        distance = (length - 2 * cosine).clamp(min=0)
        return SampledGraph(edge_index, weigh.response(distance)(distance).to(x.dtype))
    sampler = GumbelKNNSampler(
        LinearSimilarity(x.size(1)),
        k,
        loop=loop,
        method='stream',
        memory_budget=memory_budget,
    )
    edge_index, _ = sampler.eval()(x, batch=batch)
    return SampledGraph(edge_index, weigh(x, edge_index))


def _sparse_neighbours(
    x: Tensor, k: int, batch: Tensor | None, loop: bool, memory_budget: int
) -> SampledGraph:
    sizes = [x.size(0)] if x.size(0) > 0 else []
    if batch is not None:
        check_batch(batch, x)
        sizes = torch.unique_consecutive(batch, return_counts=True)[1].tolist()
    elif sizes:
        check_candidate_count(k, x.size(0) - int(not loop))
    start = 0
    edges, cosines = [x.crow_indices().new_empty(2, 0)], [x.values().new_empty(0)]
    for size in sizes:
        found = cosine_top_k(
            x,
            min(k, size - int(not loop)),
            slice(start, start + size),
            loop=loop,
            memory_budget=memory_budget,
        )
        edge_index, cosine = neighbour_graph(*found)
        edges.append(edge_index + start)
        cosines.append(cosine)
        start += size
    return SampledGraph(torch.cat(edges, dim=1), torch.cat(cosines))


def _is_filled(x: Tensor) -> Tensor:
    """Tells which rows of sparse features are not all zeros."""
    places = x.crow_indices()
    filled = torch.cat([places.new_zeros(1), (x.values() != 0).cumsum(0)])
    return filled[places].diff() > 0


class NeighbourModel(NodeClassifier):
    r"""Base class of the models on one fixed graph: of nearest neighbours, or given.

    Args:
        k (int): The number of neighbours.
        cached (bool): Whether the graph is found once.
        similarity (str, optional): The weights, :obj:`"linear"` or
            :obj:`"heat_kernel"`; ones if :obj:`None`. (default: :obj:`None`)
    """

    def __init__(self, k: int, cached: bool, similarity: str | None = None) -> None:
        super().__init__()
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
        r"""Resets all learnable parameters of the module, and forgets its graph."""
        self._cached_index = self._cached_weight = self._cached_batch = None

    def _graph(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
        edge_weight: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> SampledGraph:
        """The graph that is given, cached, or found; no weight is negative."""
        if generator is not None:
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
        is_weighted = self.similarity is not None
        weight = weight.clamp(min=0) if is_weighted else torch.ones_like(weight)
        graph = SampledGraph(edge_index, weight)
        if self.cached:
            # Cloned so: what inference made cannot be trained on.
            with torch.inference_mode(False):
                self._cached_index, self._cached_weight = (t.clone() for t in graph)
                self._cached_batch = _graph_ids(x, batch)
        return graph

    def _check_cached(self, x: Tensor, batch: Tensor | None) -> None:
        """Raises unless the cached graph is one of such nodes."""
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


def _graph_ids(x: Tensor, batch: Tensor | None) -> Tensor:
    """The graph of each node; all are in one without a batch."""
    if batch is not None:
        return batch.clone()
    return torch.zeros(x.size(0), dtype=torch.long, device=x.device)


def _given_graph(
    x: Tensor, edge_index: Tensor, batch: Tensor | None, edge_weight: Tensor | None
) -> SampledGraph:
    check_edge_index(edge_index, x, x)
    edge_index = plain_edges(edge_index)
    if batch is not None:
        check_batch(batch, x)
        source, target = batch[edge_index]
        crosses = source != target
        check_value(
            ~crosses.any(),
            "'edge_index' joins two graphs of 'batch'",
            got=lambda: f'edge {edge_index[:, crosses][:, 0].tolist()}',
        )
    num_edges = edge_index.size(1)
    if edge_weight is None:
        weight = torch.ones(num_edges, dtype=x.dtype, device=x.device)
        return SampledGraph(edge_index, weight)
    if not isinstance(edge_weight, Tensor) or not edge_weight.is_floating_point():
        raise TypeError(
            f"'edge_weight' must be a floating-point tensor "
            f'(got {getattr(edge_weight, "dtype", type(edge_weight).__name__)})'
        )
    if edge_weight.shape != (num_edges,):
        raise ValueError(
            f"'edge_weight' must have shape [{num_edges}] "
            f'(got {list(edge_weight.shape)})'
        )
    if edge_weight.device != x.device:
        raise ValueError(
            f"'edge_weight' is on {edge_weight.device} but 'x' is on {x.device}"
        )
    check_finite(edge_weight, 'edge_weight')
    smallest = edge_weight.detach().amin() if num_edges else edge_weight.new_zeros(())
    check_value(smallest >= 0, "'edge_weight' must not be negative", smallest.item)
    return SampledGraph(edge_index, edge_weight.to(x.dtype))
