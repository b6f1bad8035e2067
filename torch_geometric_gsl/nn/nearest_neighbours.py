"""Graph of nearest neighbours, by cosine or, in few columns, by distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from torch_geometric_gsl._checks import (
    check_count,
    check_features,
    check_option,
)
from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.sampler.options import Budget
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.distance_similarity import HeatKernelSimilarity
from torch_geometric_gsl.nn.similarity.linear_similarity import LinearSimilarity
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.ops.sparse_rows import SparseRows
from torch_geometric_gsl.typing import SampledGraph

#: Similarities that can weigh an edge.
WEIGHTS = ('linear', 'heat_kernel')
#: Other similarities based on the cosine.
ANGULAR = ('difference', 'gaussian', 'neural_gaussian', 'cosine')
#: With fewer columns the cosine is a poor measure of nearness.
COSINE_COLUMNS = 3


def nearness(num_columns: int, **kwargs: Any) -> Similarity:
    """Return the ranking metric: the cosine, or the distance in few columns."""
    if num_columns >= COSINE_COLUMNS:
        return LinearSimilarity(num_columns, **kwargs)
    return HeatKernelSimilarity(num_columns, normalize=False, **kwargs)


def near_similarity(similarity: Any, num_columns: int) -> Any:
    """Resolve a similarity by name; on few columns a cosine becomes a distance.

    Raises:
        ValueError: If the similarity needs angles and there is one column.
    """
    if not isinstance(similarity, str):
        return similarity
    if similarity in WEIGHTS and num_columns < COSINE_COLUMNS:
        return nearness(num_columns)
    if similarity in ANGULAR and num_columns == 1:
        raise ValueError(
            f"'similarity' must use distances if rows have one column, where "
            f"cosines are 1 or -1: 'linear', 'heat_kernel' or 'distance' (got "
            f'{similarity!r})'
        )
    return similarity


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
    r"""Join each node to the nodes with the largest cosine, weighted by a similarity.

    On one or two columns, nodes are joined to those at the smallest distance, as by
    :class:`~torch_geometric_gsl.transforms.SimilarityKNNGraph`.

    The search is exact, in blocks of rows. Sparse features stay sparse. A
    node with fewer than :obj:`k` candidates is joined to all of them.

    Args:
        x (torch.Tensor): The node features, dense or sparse CSR.
        k (int): The number of neighbours.
        batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
        similarity (str, optional): The weights, :obj:`"linear"` (the cosine) or
            :obj:`"heat_kernel"` (of unit rows). (default: :obj:`"linear"`)
        loop (bool, optional): If :obj:`True`, has self-loops. (default: :obj:`False`)
        memory_budget (int, optional): Bytes of a block of rows. (default: :obj:`2**25`)
    """
    check_features(x)
    check_count(k, 'k')
    check_option(similarity, WEIGHTS, 'similarity')
    metric = nearness(x.size(1))
    x = _comparable(x)
    budget = Budget(memory=memory_budget)
    sampler = GumbelKNNSampler(
        metric, train_scale=False, loop=loop, eval_k=k, budget=budget
    )
    edge_index, _ = sampler.eval()(x, batch=batch)
    return _weighted(similarity, metric, (x, x), edge_index)


@torch.no_grad()
def nearest_in_context(
    x: Tensor,
    context: Tensor,
    k: int,
    batch: tuple[Tensor, Tensor] | None = None,
    *,
    similarity: str = 'linear',
    memory_budget: int = MEMORY_BUDGET,
) -> SampledGraph:
    """Join each row to its nearest sources, as :func:`nearest_neighbours` does; a
    batch is a pair of ids of sources and rows.
    """
    check_option(similarity, WEIGHTS, 'similarity')
    metric = nearness(context.size(1))
    pair = _comparable(context), _comparable(x)
    budget = Budget(memory=memory_budget)
    sampler = GumbelKNNSampler(metric, train_scale=False, eval_k=k, budget=budget)
    edge_index, _ = sampler.eval()(pair, batch=batch)
    return _weighted(similarity, metric, pair, edge_index)


def _comparable(x: Tensor) -> Tensor:
    """Return features, as dense if they have few columns, which distances rank."""
    if x.layout == torch.strided or x.size(1) >= COSINE_COLUMNS:
        return x
    return x.to_dense()


def _weighted(
    similarity: str, metric: Similarity, pair: tuple[Tensor, Tensor], edge_index: Tensor
) -> SampledGraph:
    """Compute the weights of edges to the nearest rows."""
    if isinstance(metric, HeatKernelSimilarity):
        pairs = metric.exact_scores(pair)
        distance = pairs.compare_edges(edge_index)
        most = scatter(distance, edge_index[1], 0, pair[1].size(0), reduce='max')
        weight = torch.exp(-distance / most.where(most > 0, 1)[edge_index[1]])
        return SampledGraph(edge_index, weight.to(pair[1].dtype))
    weigh = resolve_similarity(similarity, pair[1].size(1))
    if pair[1].layout == torch.strided:
        return SampledGraph(edge_index, weigh(pair, edge_index))
    value = metric(pair, edge_index)
    return SampledGraph(edge_index, _sparse_weights(weigh, pair, edge_index, value))


def _sparse_weights(
    weigh: Similarity, pair: tuple[Tensor, Tensor], edge_index: Tensor, cosine: Tensor
) -> Tensor:
    """Compute the weights of edges from their cosines."""
    if weigh.comparison == 'dot':
        return cosine.to(pair[1].dtype)
    # A unit row has squared length 1, a row of zeros 0.
    src, dst = (SparseRows.unit(x).norm().round().to(cosine) for x in pair)
    distance = src[edge_index[0]] + dst[edge_index[1]] - 2 * cosine
    distance = distance.clamp(min=0)
    return weigh.response(distance)(distance).to(pair[1].dtype)
