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
from torch_geometric_gsl.ops.nearest_lists import LARGEST
from torch_geometric_gsl.ops.scores import Response
from torch_geometric_gsl.ops.sparse_rows import SparseRows

#: Who searches, and the package that has the library.
BACKENDS = {'exact': None, 'faiss': 'faiss-cpu', 'pynndescent': 'pynndescent'}
#: Faiss returns no longer lists.
MAX_FAISS = 2048
# Of 2,000 random rows of 16 columns, lists of 3 neighbours held 84 % of the nearest
# ones, and 100 % where they were cut from lists of 30.
_LEAST_LIST = 30


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
    is_largest = LARGEST.get(response.function)
    if is_largest is not (comparison == 'dot') or is_largest is None:
        raise ValueError(
            f"'backend' must be 'exact' with this 'similarity': other libraries find "
            f'the nearest nodes, which are not those of its largest scores unless it '
            f"falls with the distance, as 'linear', 'cosine' and 'heat_kernel' do "
            f'(got {what})'
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
    """Join each node to the nearest nodes of its graph, as another library finds them.

    Args:
        x (torch.Tensor): The features of the nodes of all graphs.
        sizes (list[int]): The numbers of nodes of the graphs.
        k (int): The number of neighbours, or fewer in a graph of fewer nodes.
        similarity (Similarity): The similarity.
        backend (str or KNNIndex): Who searches.
        loop (bool): Whether a node may be its own neighbour.

    Returns:
        torch.Tensor: The edges, sorted by target.
    """
    pairs = similarity.pair_scores(x)
    check_is_nearest(pairs.response, pairs.comparison, similarity)
    if backend != 'pynndescent' and pairs.is_sparse:
        raise ValueError(
            "'backend' must be 'exact' or 'pynndescent' with sparse features: faiss "
            "has no sparse index (got 'faiss')"
        )
    edges = [torch.empty(2, 0, dtype=torch.long, device=x.device)]
    start = 0
    for size in sizes:
        rows = pairs.src[start : start + size]
        number = min(k, size - int(not loop))
        if number > 0:
            source = _search(rows, number, pairs.comparison, backend, loop)
            graph = neighbour_graph(source, source.to(rows.dtype), source >= 0)
            edges.append(graph.edge_index.to(x.device) + start)
        start += size
    return torch.cat(edges, dim=1)


def _search(z: Tensor, k: int, comparison: str, backend: Any, loop: bool) -> Tensor:
    """Return the k nearest rows of each row; -1 where fewer were found."""
    size = z.size(0)
    if k >= size - int(not loop):  # All of them, which needs no search.
        every = torch.arange(size, device=z.device).expand(size, -1)
        if loop:
            return every
        is_other = every != every[0].unsqueeze(1)
        return every[is_other].view(-1, k)
    search = _pynndescent if backend == 'pynndescent' else _faiss
    found = search(z, k + int(not loop), comparison, backend)
    if loop:
        return found
    # Each row without itself, which may be hidden behind its duplicates.
    own = torch.arange(size, device=found.device).unsqueeze(1)
    order = (found == own).long().argsort(dim=1, stable=True)
    return found.gather(1, order)[:, :k]


def _faiss(z: Tensor, k: int, comparison: str, backend: Any) -> Tensor:
    import faiss

    if k > MAX_FAISS:
        raise ValueError(f"'k' must be less than {MAX_FAISS} with faiss (got {k - 1})")
    is_l2 = comparison == 'squared_distance'
    if backend == 'faiss':
        index = L2KNNIndex() if is_l2 else MIPSKNNIndex()
    else:
        if is_l2 and isinstance(backend, MIPSKNNIndex | ApproxMIPSKNNIndex):
            raise ValueError(
                f"'backend' must be an index of distances with a similarity that "
                f'compares them (got a {type(backend).__name__})'
            )
        index = copy.copy(backend)
        index.index = None
    rows = z.float()
    if not hasattr(faiss, 'StandardGpuResources'):
        rows = rows.cpu()
    index.add(rows.contiguous())
    found: Tensor = index.search(rows, k).index
    return found


def _pynndescent(z: Any, k: int, comparison: str, backend: str) -> Tensor:
    from pynndescent import NNDescent

    size = z.size(0)
    if isinstance(z, SparseRows):
        from scipy.sparse import csr_matrix

        parts = z.value.float(), z.words.source, z.words.offsets
        rows = csr_matrix(tuple(part.cpu().numpy() for part in parts), shape=z.shape)
    else:
        rows = z.float().cpu().numpy()
    index = NNDescent(
        rows,
        metric='cosine' if comparison == 'dot' else 'euclidean',
        n_neighbors=min(max(k, _LEAST_LIST), size - 1),
        random_state=0,  # The same graph each time, as of an exact search.
    )
    return torch.from_numpy(index.neighbor_graph[0]).long()[:, :k]
