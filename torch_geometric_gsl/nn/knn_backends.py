"""The search of nearest neighbours by other libraries: faiss and pynndescent."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.pool.knn import (
    ApproxMIPSKNNIndex,
    KNNIndex,
    L2KNNIndex,
    MIPSKNNIndex,
)

from torch_geometric_gsl._checks import check_option
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.knn import in_single_precision, normalise_ranks
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import PairScores, exclude
from torch_geometric_gsl.ops.scores import Response

#: Who searches, and the package that has the library.
BACKENDS = {'exact': None, 'faiss': 'faiss-cpu', 'pynndescent': 'pynndescent'}
#: Faiss returns no longer lists.
MAX_FAISS = 2048
# Of 2,000 random rows of 16 columns, lists of 3 neighbours held 84 % of the nearest
# ones, and 100 % where they were cut from lists of 30.
_LEAST_LIST = 30
# Neighbours that are looked for beside those that are kept.
_SPARE = 8


def check_backend(backend: Any) -> None:
    """Raise unless a backend is known and installed."""
    name = backend
    if isinstance(backend, KNNIndex):
        if backend.numel > 0:
            raise ValueError(
                f"'backend' must be an empty index (got one of {backend.numel} rows)"
            )
        name = 'faiss'
    check_option(name, BACKENDS, 'backend')
    if BACKENDS[name] is not None and find_spec(name) is None:
        raise ImportError(
            f"backend={name!r} needs the library {name}: pip install '{BACKENDS[name]}'"
        )


def check_is_nearest(response: Response, comparison: str, what: object) -> None:
    """Raise unless the best of all nodes are the nearest ones."""
    if response.monotonic != (1 if comparison == 'dot' else -1):
        raise ValueError(
            f"'backend' must be 'exact' with this 'similarity': other libraries find "
            f'the nearest nodes, which are not those of its largest scores unless it '
            f"falls with the distance, as 'linear', 'cosine', 'heat_kernel' and "
            f"'distance' do (got {what})"
        )


@torch.no_grad()
def search_edges(
    x: Tensor,
    sizes: list[int],
    k: int,
    similarity: Similarity,
    backend: Any,
    loop: bool,
) -> Tensor:
    """Join each node to the :obj:`k` nearest nodes of its graph, as another library
    finds them; in a graph of fewer nodes to all. Edges are sorted by target.
    """
    pairs = similarity.exact_scores(x)
    check_is_nearest(pairs.response, pairs.comparison, similarity)
    if backend != 'pynndescent' and pairs.is_sparse:
        raise ValueError(
            "'backend' must be 'exact' or 'pynndescent' with sparse features: faiss "
            "has no sparse index (got 'faiss')"
        )
    edges = [torch.empty(2, 0, dtype=torch.long, device=x.device)]
    start = 0
    for own in pairs.ranking.split(sizes):
        size = own.dst.size(0)
        number = min(k, size - int(not loop))
        if number > 0:
            own = own._replace(src=own.dst)
            source = _search(own, number, backend, loop)
            graph = neighbour_graph(source, source.to(own.dst.dtype), source >= 0)
            edges.append(graph.edge_index + start)
        start += size
    return torch.cat(edges, dim=1)


def _search(ranks: PairScores, k: int, backend: Any, loop: bool) -> Tensor:
    """Return the k nearest rows of each row; -1 where fewer were found."""
    size, device = ranks.dst.size(0), ranks.dst.device
    number = min(size, k + int(not loop) + _SPARE)
    if number == size:  # All of them, which needs no search.
        found = torch.arange(size, device=device).expand(size, -1)
    elif backend != 'pynndescent' and k + int(not loop) > MAX_FAISS:
        raise ValueError(f"'k' must be less than {MAX_FAISS} with faiss (got {k})")
    else:
        search = _pynndescent if backend == 'pynndescent' else _faiss
        found = search(ranks, number, backend).to(device)
    listed = Neighbours(found.clamp(min=0), size)
    exact = ranks if ranks.is_sparse else normalise_ranks(ranks)
    score = exact.pairs(slice(None), listed).masked_fill(found < 0, -torch.inf)
    if not loop:
        score = exclude(score, torch.arange(size, device=device), found)
    # Libraries compare in single precision: the best of a few more are kept.
    score, place = score.topk(k, dim=1)
    return found.gather(1, place).masked_fill(score == -torch.inf, -1)


def _points(ranks: PairScores) -> Tensor:
    """Return rows whose distances rank as scores do, in single precision."""
    if ranks.comparison == 'squared_distance':
        return in_single_precision(normalise_ranks(ranks)).src
    # Of unit rows the distance tells the cosine. Rows of zeros are far from all.
    missing = (ranks.src == 0).all(dim=1, keepdim=True).to(ranks.src.dtype)
    centred = ranks.src - ranks.src.mean(dim=0)
    points = torch.cat([centred, missing], dim=1)
    return (points / points.abs().amax().clamp(min=1e-300)).float()


def _faiss(ranks: PairScores, k: int, backend: Any) -> Tensor:
    import faiss

    is_l2 = ranks.comparison == 'squared_distance'
    if backend == 'faiss':
        index = L2KNNIndex()
    else:
        if is_l2 and isinstance(backend, MIPSKNNIndex | ApproxMIPSKNNIndex):
            raise ValueError(
                f"'backend' must be an index of distances with a similarity that "
                f'compares them (got a {type(backend).__name__})'
            )
        index = copy.copy(backend)
        index.index = None
    if isinstance(index, MIPSKNNIndex | ApproxMIPSKNNIndex):
        single = in_single_precision(normalise_ranks(ranks))
        rows, queries = single.src, single.dst
    else:
        rows = queries = _points(ranks)
    if not hasattr(faiss, 'StandardGpuResources'):
        rows, queries = rows.cpu(), queries.cpu()
    index.add(rows.contiguous())
    found: Tensor = index.search(queries.contiguous(), min(k, MAX_FAISS)).index
    return found


def _pynndescent(ranks: PairScores, k: int, backend: str) -> Tensor:
    from pynndescent import NNDescent

    z: Any = ranks.src
    size = z.size(0)
    if ranks.is_sparse:
        from scipy.sparse import csr_matrix

        parts = z.value.float(), z.words.source, z.words.offsets
        rows = csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=z.shape)
    else:
        rows = _points(ranks).cpu().numpy()
    index = NNDescent(
        rows,
        metric='cosine' if ranks.is_sparse else 'euclidean',
        n_neighbors=min(max(k, _LEAST_LIST), size - 1),
        random_state=0,  # The same graph each time, as of an exact search.
    )
    return torch.from_numpy(index.neighbor_graph[0]).long()[:, :k]
