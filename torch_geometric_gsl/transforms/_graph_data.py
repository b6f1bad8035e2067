"""Replace the graph of a :class:`~torch_geometric.data.Data` object."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import cumsum, is_sparse, sort_edge_index

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_features,
)
from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

#: The prefix under which a replaced graph is kept.
OBSERVED = 'observed_'
# Always parts of a graph, whatever their size. The first three hold the edges.
_EDGES = ('edge_index', 'adj_t', 'adj')
_GRAPH = (*_EDGES, 'edge_weight', 'edge_attr', 'edge_type', 'e_id', 'num_edges')
# Attributes with one entry per node, which tell the number of nodes.
_NODE_VECTORS = ('x', 'pos', 'node_type', 'n_id', 'batch')
# Never parts of a graph, even if as many as the edges.
_NODES = {*_NODE_VECTORS, 'ptr', 'num_nodes'}


def check_data(data: object) -> None:
    """Raise unless :obj:`data` is a homogeneous graph or a batch of them."""
    if not isinstance(data, Data):
        raise TypeError(
            f"'data' must be a homogeneous torch_geometric.data.Data "
            f'(got {type(data).__name__})'
        )


def node_features(data: Data) -> Tensor:
    """Return :obj:`data.x`, checked."""
    check_data(data)
    if data.x is None:
        raise ValueError("'data.x' must hold node features (got None)")
    check_features(data.x, 'data.x')
    return data.x


def graph_by_graph(
    x: Tensor,
    batch: Tensor | None,
    build: Callable[[Tensor, int], SampledGraph],
    *,
    k: int,
    loop: bool,
    clamp: bool,
) -> SampledGraph:
    """Build the graph of each example by itself, so that a batch changes nothing.

    The number of neighbours that :obj:`build` gets is :obj:`k`, or with :obj:`clamp`
    that of the candidates where it is smaller.
    """
    sizes = [x.size(0)]
    if batch is not None:
        check_batch(batch, x, 'data.batch')
        sizes = torch.bincount(batch).tolist()
    edges = [torch.empty(2, 0, dtype=torch.long, device=x.device)]
    weights = [torch.empty(0, dtype=x.dtype, device=x.device)]
    start = 0
    for number, size in enumerate(sizes):
        available = size - int(not loop)
        if size > 0 and not clamp:
            where = '' if batch is None else f' of graph {number}'
            check_candidate_count(k, available, where)
        if available > 0:
            part = take_rows(x, start, start + size)
            edge_index, edge_weight = build(part, min(k, available))
            edges.append(edge_index + start)
            weights.append(edge_weight)
        start += size
    return SampledGraph(torch.cat(edges, dim=1), torch.cat(weights))


def take_rows(x: Tensor, start: int, stop: int) -> Tensor:
    """Return consecutive rows, also of sparse features, which torch cannot."""
    if start == 0 and stop == x.size(0):
        return x
    if x.layout == torch.strided:
        return x[start:stop]
    crow = x.crow_indices()[start : stop + 1]
    entries = slice(int(crow[0]), int(crow[-1]))
    with quiet_csr():
        return torch.sparse_csr_tensor(
            crow - crow[0],
            x.col_indices()[entries],
            x.values()[entries],
            size=(stop - start, x.size(1)),
        )


@contextmanager
def quiet_csr() -> Iterator[None]:
    """Suppress PyTorch's beta warning for CSR."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', message='Sparse CSR tensor support')
        warnings.filterwarnings('ignore', message='Sparse invariant checks')
        yield


def set_graph(data: Data, graph: SampledGraph) -> None:
    """Store a graph and keep the one that it replaces as the observed one."""
    has_observed = any(OBSERVED + key in data for key in _EDGES)
    # A graph beside an observed one was itself put there by a transform.
    move_graph(data, None if has_observed else OBSERVED)
    edge_index, edge_weight = graph
    if not is_sorted_by_target(edge_index):
        edge_index, edge_weight = sort_edge_index(
            edge_index, edge_weight, num_nodes=data.num_nodes, sort_by_row=False
        )
    data.edge_index = edge_index
    data.edge_weight = edge_weight
    if hasattr(data, '_slice_dict'):
        _set_slices(data, edge_index)


def move_graph(data: Data, prefix: str | None) -> None:
    """Rename the edges and all that belongs to them, or drop it without a prefix."""
    keys = graph_keys(data)
    # Batches know how to take themselves apart; a shallow copy shares that.
    tables: list[dict[str, Any]] = []
    if hasattr(data, '_slice_dict'):
        data._slice_dict = dict(data._slice_dict)
        data._inc_dict = dict(data._inc_dict)
        tables = [data._slice_dict, data._inc_dict]
    for key in keys:
        value = data[key]
        del data[key]
        entries = [(table, table.pop(key)) for table in tables if key in table]
        if prefix is not None:
            data[prefix + key] = value
            for table, entry in entries:
                table[prefix + key] = entry


def graph_keys(data: Data) -> list[str]:
    r"""Return the names of the edges and of all attributes with one entry per edge.

    An attribute belongs to the edges if it is as long as their list. Where it is
    also as long as the list of nodes, their number is unknown, or the graph has a
    single edge, only a name with "edge" in it does; labels of links never do.
    """
    edges = _edge_counts(data)
    nodes = _node_counts(data)
    found = []
    for key in data.keys():  # noqa: SIM118 (iterating over data yields pairs)
        if key.startswith(OBSERVED) or key in _NODES or 'edge_label' in key:
            continue
        counts = _counts(data, key)
        belongs = edges is not None and counts is not None and _agree(counts, edges)
        if belongs and 'edge' not in key:
            belongs = nodes is not None and max(edges or [0]) > 1
            belongs = belongs and counts not in (nodes, [sum(nodes or [])])
        if belongs or key in _GRAPH:
            found.append(key)
    # `follow_batch` adds vectors that speak about the edges, too.
    follow = [key + end for key in found for end in ('_batch', '_ptr')]
    found += [key for key in follow if key in data and key not in found]
    return sorted(found)


def _agree(counts: list[int], edges: list[int]) -> bool:
    # Of sparse matrices only the number of all edges is known.
    return counts == edges if len(counts) == len(edges) else [sum(counts)] == edges


def _edge_counts(data: Data) -> list[int] | None:
    """Count the edges of each example, or of all; None if unknown."""
    for key in _EDGES:
        if key not in data:
            continue
        value = data[key]
        if is_sparse(value):
            return [value._nnz() if isinstance(value, Tensor) else value.nnz()]
        return _counts(data, key) if key == 'edge_index' else None
    return None


def _node_counts(data: Data) -> list[int] | None:
    """Count the nodes of each example by an attribute of the nodes; None if unknown."""
    is_batch = hasattr(data, '_slice_dict')
    if 'num_nodes' in data:
        sizes = getattr(data, '_num_nodes', None) if is_batch else [data.num_nodes]
        if sizes is not None:
            return list(sizes)
    for key in _NODE_VECTORS:
        # A batch has a vector `batch` even where it guessed the number of nodes.
        if key not in data or (is_batch and key == 'batch'):
            continue
        if not is_batch or key in data._slice_dict:
            return _counts(data, key)
        # Given to the batch itself, without slices.
        counts: list[int] = data.ptr.diff().tolist()
        return counts
    return None


def _counts(data: Data, key: str) -> list[int] | None:
    """Count the entries of each example in one attribute; None if it has none."""
    value = data[key]
    slices = getattr(data, '_slice_dict', {}).get(key)
    if isinstance(slices, Tensor):
        counts: list[int] = slices.view(slices.size(0), -1)[:, 0].diff().tolist()
        return counts
    if isinstance(value, list | tuple):
        return [len(value)]
    if not isinstance(value, Tensor | np.ndarray) or value.ndim == 0:
        return None
    dim = data.__cat_dim__(key, value)
    return [value.shape[dim]] if isinstance(dim, int) else None


def _set_slices(data: Data, edge_index: Tensor) -> None:
    """Assign the edges of a batch to its examples."""
    slices, incs = data._slice_dict, data._inc_dict
    # Features that were given to the batch itself have no slices.
    bounds = slices['x'].view(-1) if 'x' in slices else data.ptr.cpu()
    first = bounds[:-1]
    example = torch.bucketize(edge_index[1].cpu(), bounds[1:], right=True)
    slices['edge_index'] = cumsum(torch.bincount(example, minlength=first.numel()))
    slices['edge_weight'] = slices['edge_index']
    incs['edge_index'], incs['edge_weight'] = first, torch.zeros_like(first)
