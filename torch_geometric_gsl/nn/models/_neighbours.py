"""The graph of nearest neighbours that several models start from."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_geometric_gsl.nn.sampler.gumbel_knn_sampler import GumbelKNNSampler
from torch_geometric_gsl.nn.similarity.resolver import resolve_similarity
from torch_geometric_gsl.typing import SampledGraph


@torch.no_grad()
def nearest_neighbours(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    *,
    similarity: str = 'linear',
    loop: bool = False,
) -> SampledGraph:
    """Edges to each node from its most similar ones, weighted by the similarity.

    Args:
        x (torch.Tensor): The node features, dense or sparse CSR.
        k (int): The number of neighbours.
        batch (torch.Tensor, optional): Sorted graph ids. (default: :obj:`None`)
        similarity (str, optional): A similarity without parameters.
            (default: :obj:`"linear"`)
        loop (bool, optional): Whether a node may be its own neighbour.
            (default: :obj:`False`)
    """
    if x.layout != torch.strided:
        x = x.to_dense()
    module = resolve_similarity(similarity, x.size(1))
    sampler = GumbelKNNSampler(module, k, loop=loop, method='stream').eval()
    edge_index, _ = sampler(x, batch=batch)
    return SampledGraph(edge_index, module(x, edge_index))
