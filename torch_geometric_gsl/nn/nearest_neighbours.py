"""The graph of nearest neighbours by the cosine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_count,
    check_features,
    check_option,
    split_pair,
)
from torch_geometric_gsl.nn.knn_backends import check_backend, search_edges
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.knn import cosine_top_k
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.typing import Batch, SampledGraph

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
    backend: Any = 'exact',
) -> SampledGraph:
    """Join each node to those of the largest cosine, weighted by a similarity.

    The search is exact, by blocks of rows, or that of another library. Sparse features
    are neither made dense nor projected. In a batch no edge joins two graphs, and the
    nodes of a graph with fewer than :obj:`k` others have fewer neighbours.

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
        backend (str or KNNIndex, optional): Who searches, as in
            :class:`~torch_geometric_gsl.transforms.SimilarityKNNGraph`.
            (default: :obj:`"exact"`)
    """
    check_features(x)
    check_count(k, 'k')
    check_backend(backend)
    check_option(similarity, WEIGHTS, 'similarity')
    weigh = resolve_similarity(similarity, x.size(1))
    if backend != 'exact':
        if batch is None and x.size(0) > 0:
            check_candidate_count(k, x.size(0) - int(not loop))
        linear = LinearSimilarity(x.size(1))
        edge_index = search_edges(x, graph_sizes(x, batch), k, linear, backend, loop)
        return _weighted(weigh, linear, (x, x), edge_index)
    if x.layout != torch.strided:
        edge_index, cosine = _sparse_neighbours(x, k, batch, loop, memory_budget)
        return SampledGraph(
            edge_index, _sparse_weights(weigh, (x, x), edge_index, cosine)
        )
    sampler = GumbelKNNSampler(
        LinearSimilarity(x.size(1)),
        k,
        loop=loop,
        method='stream',
        memory_budget=memory_budget,
    )
    edge_index, _ = sampler.eval()(x, batch=batch)
    return SampledGraph(edge_index, weigh(x, edge_index))


@torch.no_grad()
def nearest_in_context(
    x: Tensor,
    context: Tensor,
    k: int,
    batch: tuple[Tensor, Tensor] | None = None,
    *,
    similarity: str = 'linear',
) -> SampledGraph:
    """Join each row to those of a context that have the largest cosine with it.

    Args:
        x (torch.Tensor): The rows, dense or sparse CSR.
        context (torch.Tensor): The rows that they are joined to.
        k (int): The number of neighbours.
        batch (tuple[torch.Tensor, torch.Tensor], optional): Sorted graph ids of the
            context and of the rows. (default: :obj:`None`)
        similarity (str, optional): The weights, as in :func:`nearest_neighbours`.
            (default: :obj:`"linear"`)
    """
    check_option(similarity, WEIGHTS, 'similarity')
    cosine = LinearSimilarity(context.size(1))
    sampler = GumbelKNNSampler(cosine, k, method='stream').eval()
    edge_index, _ = sampler((context, x), batch=batch)
    weigh = resolve_similarity(similarity, context.size(1))
    return _weighted(weigh, cosine, (context, x), edge_index)


def graph_sizes(x: Tensor, batch: Tensor | None) -> list[int]:
    """Count the nodes of each graph of a batch, or of one graph that may be empty."""
    if batch is None:
        return [x.size(0)] if x.size(0) > 0 else []
    check_batch(batch, x)
    sizes: list[int] = torch.unique_consecutive(batch, return_counts=True)[1].tolist()
    return sizes


def context_sizes(
    x: Tensor, context: Tensor, batch: Batch | None
) -> list[tuple[int, int]]:
    """Count the rows, and those of their context, in each graph of a batch."""
    if batch is None:
        sizes = [(x.size(0), context.size(0))]
    else:
        of_context, of_x = split_pair(batch, 'batch')
        check_batch(of_context, context)
        check_batch(of_x, x)
        ids, number = torch.cat([of_x, of_context]).unique(return_inverse=True)
        counts = (
            part.bincount(minlength=ids.numel()).tolist()
            for part in number.split([x.size(0), context.size(0)])
        )
        sizes = list(zip(*counts, strict=True))
    if any(rows > 0 and sources == 0 for rows, sources in sizes):
        where = '' if batch is None else ' in each graph of its rows'
        raise ValueError(f"'context' must have at least one row{where} (got none)")
    return sizes


def _sparse_neighbours(
    x: Tensor, k: int, batch: Tensor | None, loop: bool, memory_budget: int
) -> SampledGraph:
    if batch is None and x.size(0) > 0:
        check_candidate_count(k, x.size(0) - int(not loop))
    start = 0
    edges, cosines = [x.crow_indices().new_empty(2, 0)], [x.values().new_empty(0)]
    for size in graph_sizes(x, batch):
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


def _weighted(
    weigh: Similarity,
    cosine: Similarity,
    pair: tuple[Tensor, Tensor],
    edge_index: Tensor,
) -> SampledGraph:
    """Weigh edges whose cosines are not known."""
    if pair[1].layout == torch.strided:
        return SampledGraph(edge_index, weigh(pair, edge_index))
    value = cosine(pair, edge_index)
    return SampledGraph(edge_index, _sparse_weights(weigh, pair, edge_index, value))


def _sparse_weights(
    weigh: Similarity, pair: tuple[Tensor, Tensor], edge_index: Tensor, cosine: Tensor
) -> Tensor:
    """Return what edges weigh whose cosines are known."""
    if weigh.comparison == 'dot':
        return cosine.to(pair[1].dtype)
    # The squared length of a unit row is 1, but that of a row of zeros is 0.
    length = sum(
        _is_filled(x).to(cosine.dtype)[index]
        for x, index in zip(pair, edge_index, strict=True)
    )
    distance = (length - 2 * cosine).clamp(min=0)
    return weigh.response(distance)(distance).to(pair[1].dtype)


def _is_filled(x: Tensor) -> Tensor:
    """Mark the rows of sparse features that are not all zeros."""
    places = x.crow_indices()
    filled = torch.cat([places.new_zeros(1), (x.values() != 0).cumsum(0)])
    return filled[places].diff() > 0
