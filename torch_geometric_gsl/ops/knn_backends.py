"""Nearest-neighbour search with other libraries: faiss and pynndescent."""

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
from torch_geometric_gsl.ops.aggregate import neighbour_graph
from torch_geometric_gsl.ops.knn import in_single_precision, normalise_ranks
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import PairScores, exclude
from torch_geometric_gsl.ops.scores import Response

#: Who searches, and the package that has the library.
BACKENDS = {'exact': None, 'faiss': 'faiss-cpu', 'pynndescent': 'pynndescent'}
#: Faiss returns no longer lists.
MAX_FAISS = 2048
# On 2,000 random rows of 16 columns, lists of 3 neighbours had a recall of 84 %, and of
# 100 % when cut from lists of 30.
_LEAST_LIST = 30
# Extra neighbours, found in addition to those that are kept.
_SPARE = 8


def check_backend(backend: Any, name: str = 'backend') -> None:
    """Raise unless the backend is known and installed; `name` is the argument's."""
    library = backend
    if isinstance(backend, KNNIndex) and name == 'backend':
        if backend.numel > 0:
            raise ValueError(
                f"'backend' must be an empty index (got one of {backend.numel} rows)"
            )
        library = 'faiss'
    check_option(library, BACKENDS, name)
    if BACKENDS[library] is not None and find_spec(library) is None:
        raise ImportError(
            f'{name}={library!r} needs the library {library}: pip install '
            f"'{BACKENDS[library]}'"
        )


def check_is_nearest(
    response: Response, comparison: str, what: object, name: str = 'backend'
) -> None:
    """Raise unless the best nodes are the nearest ones."""
    if response.monotonic != (1 if comparison == 'dot' else -1):
        raise ValueError(
            f"'{name}' must be 'exact' unless the 'similarity' decreases with the "
            f"distance, such as 'linear' and 'distance': other libraries find the "
            f'nearest nodes (got {what})'
        )


@torch.no_grad()
def search_edges(
    pairs: PairScores, sizes: list[int], k: int, backend: Any, loop: bool
) -> Tensor:
    """Join each node to the :obj:`k` nearest nodes of its graph, or all of fewer, with
    another library. Edges are sorted by target.
    """
    edges = [torch.empty(2, 0, dtype=torch.long, device=pairs.src.device)]
    start = 0
    for own in pairs.split(sizes):
        size = own.dst.size(0)
        number = min(k, size - int(not loop))
        if number > 0:
            own = own._replace(src=own.dst)
            if not loop:
                own = own._replace(excluded=torch.arange(size, device=own.src.device))
            source = library_search(own, number, backend)
            graph = neighbour_graph(source, source.to(own.dst.dtype), source >= 0)
            edges.append(graph.edge_index + start)
        start += size
    return torch.cat(edges, dim=1)


@torch.no_grad()
def library_search(
    pairs: PairScores, k: int, backend: Any, name: str = 'backend'
) -> Tensor:
    """Search the best sources of each target :math:`[n, k]` with another library, best
    first; -1 if fewer were found. The argument's name is for errors.
    """
    check_is_nearest(
        pairs.response, pairs.comparison, type(pairs.response).__name__, name
    )
    if backend != 'pynndescent' and pairs.is_sparse:
        raise ValueError(
            f"'{name}' must be 'exact' or 'pynndescent' with sparse features: faiss "
            "has no sparse index (got 'faiss')"
        )
    ranks, size = pairs.ranking, pairs.src.size(0)
    missing = int(ranks.excluded is not None)
    number = min(size, k + missing + _SPARE)
    if number == size:  # All: no search needed.
        found = torch.arange(size, device=ranks.src.device)
        found = found.expand(ranks.dst.size(0), -1)
    elif backend != 'pynndescent' and k + missing > MAX_FAISS:
        raise ValueError(
            f"'k' and 'eval_k' must be less than {MAX_FAISS} with faiss (got {k})"
        )
    else:
        search = _pynndescent if backend == 'pynndescent' else _faiss
        found = search(ranks, number, backend).to(ranks.src.device)
    listed = Neighbours(found.clamp(min=0), size)
    exact = ranks if ranks.is_sparse else normalise_ranks(ranks)
    score = exact.pairs(slice(None), listed).masked_fill(found < 0, -torch.inf)
    if ranks.excluded is not None:
        score = exclude(score, ranks.excluded, found)
    # Libraries compare in single precision: rerank a few extra neighbours.
    score, place = score.topk(k, dim=1)
    return found.gather(1, place).masked_fill(score == -torch.inf, -1)


def _points(ranks: PairScores) -> tuple[Tensor, Tensor]:
    """Return rows of sources and targets whose distances rank as scores do, in single
    precision, which loses near rows if a tenth are 1e15 times as far.
    """
    if ranks.comparison == 'squared_distance':
        single = in_single_precision(normalise_ranks(ranks))
        return single.src, single.dst
    # For unit rows distances rank as cosines. Rows of zeros are far from all.
    centre = ranks.src.mean(dim=0)
    rows = [
        torch.cat([x - centre, (x == 0).all(dim=1, keepdim=True).to(x.dtype)], dim=1)
        for x in ((ranks.src,) if ranks.dst is ranks.src else (ranks.src, ranks.dst))
    ]
    largest = rows[0].abs().amax().clamp(min=1e-300)
    rows = [(x / largest).float() for x in rows]
    return rows[0], rows[-1]


def _faiss(ranks: PairScores, k: int, backend: Any) -> Tensor:
    import faiss

    is_l2 = ranks.comparison == 'squared_distance'
    if backend == 'faiss':
        index = L2KNNIndex()
    else:
        if is_l2 and isinstance(backend, MIPSKNNIndex | ApproxMIPSKNNIndex):
            raise ValueError(
                f"'backend' must be a distance index with a similarity of distances "
                f'(got a {type(backend).__name__})'
            )
        index = copy.copy(backend)
        index.index = None
    if isinstance(index, MIPSKNNIndex | ApproxMIPSKNNIndex):
        single = in_single_precision(normalise_ranks(ranks))
        rows, queries = single.src, single.dst
    else:
        rows, queries = _points(ranks)
    if not hasattr(faiss, 'StandardGpuResources'):
        rows, queries = rows.cpu(), queries.cpu()
    index.add(rows.contiguous())
    return index.search(queries.contiguous(), min(k, MAX_FAISS)).index


def _pynndescent(ranks: PairScores, k: int, backend: str) -> Tensor:
    from pynndescent import NNDescent

    size, is_own = ranks.src.size(0), ranks.dst is ranks.src
    points: list[Any] = [ranks.src, ranks.dst]
    if ranks.is_sparse:
        from scipy.sparse import csr_matrix

        for i, z in enumerate(points):
            parts = z.value.float(), z.words.source, z.words.offsets
            parts = tuple(part.cpu().numpy() for part in parts)
            points[i] = csr_matrix(parts, shape=z.shape)
    else:
        points = [x.cpu().numpy() for x in _points(ranks)]
    index = NNDescent(
        points[0],
        metric='cosine' if ranks.is_sparse else 'euclidean',
        n_neighbors=min(max(k, _LEAST_LIST), size - 1),
        random_state=0,  # Deterministic, like an exact search.
    )
    found = index.neighbor_graph if is_own else index.query(points[1], k)
    return torch.from_numpy(found[0]).long()[:, :k]
