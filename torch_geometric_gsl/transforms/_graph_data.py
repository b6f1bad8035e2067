"""Replace the graph of a :class:`~torch_geometric.data.Data` object."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import cumsum, is_sparse, sort_edge_index
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import check_features, check_type
from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

#: The prefix under which a replaced graph is kept.
OBSERVED = 'observed_'
_EDGES = ('edge_index', 'adj_t', 'adj')
#: Always parts of a graph, whatever their size. The first three hold the edges.
GRAPH = (*_EDGES, 'edge_weight', 'edge_attr', 'edge_type', 'e_id', 'num_edges')
# Attributes with one entry per node, which tell the number of nodes.
_NODE_VECTORS = ('x', 'pos', 'node_type', 'n_id', 'batch')
# Never parts of a graph, even if as many as the edges.
_NODES = {*_NODE_VECTORS, 'ptr', 'num_nodes'}


def check_data(data: object, reason: str = '') -> None:
    """Raise unless :obj:`data` is a homogeneous graph or a batch of them."""
    what = f'a homogeneous torch_geometric.data.Data{reason}'
    check_type(data, Data, 'data', what)


def node_features(data: Data, attr: str = 'x') -> Tensor:
    """Return an attribute that holds features of the nodes, checked.

    Where nothing else tells the number of nodes, it is noted in :obj:`data`.
    """
    check_data(data)
    value = data.get(attr)
    name = f'data.{attr}'
    if value is None:
        raise ValueError(f"'{name}' must hold node features (got None)")
    check_features(value, name)
    x: Tensor = value
    counts = _node_counts(data)
    if counts and sum(counts) != x.size(0):
        raise ValueError(
            f"'{name}' must have one row per node "
            f'(got {x.size(0)} for {sum(counts)} nodes)'
        )
    if not counts and attr not in _NODE_VECTORS:
        data.num_nodes = x.size(0)
    return x


def set_graph(data: Data, graph: SampledGraph) -> None:
    """Store a graph and keep the one that it replaces as the observed one."""
    has_observed = any(OBSERVED + key in data for key in _EDGES)
    # A graph beside an observed one was itself put there by a transform.
    move_graph(data, None if has_observed else OBSERVED)
    data.edge_index, data.edge_weight = sorted_graph(graph)
    if hasattr(data, '_slice_dict'):
        _set_slices(data, data.edge_index)


def sorted_graph(graph: SampledGraph) -> SampledGraph:
    """Return a graph whose edges are sorted by target and then by source."""
    if is_sorted_by_target(graph.edge_index):
        return graph
    num_nodes = maybe_num_nodes(graph.edge_index)
    return SampledGraph(
        *sort_edge_index(*graph, num_nodes=num_nodes, sort_by_row=False)
    )


def move_graph(data: Data, prefix: str | None) -> None:
    """Rename the edges and all that belongs to them, or drop it without a prefix."""
    places: list[Any] = [data]
    # Batches know how to take themselves apart; a shallow copy shares that.
    if hasattr(data, '_slice_dict'):
        data._slice_dict = dict(data._slice_dict)
        data._inc_dict = dict(data._inc_dict)
        places += [data._slice_dict, data._inc_dict]
    for key in graph_keys(data):
        for place in places:
            if key in place:
                value = place[key]
                del place[key]
                if prefix is not None:
                    place[prefix + key] = value


def graph_keys(data: Data) -> list[str]:
    r"""Return the names of the edges and of all attributes with one entry per edge.

    An attribute belongs to the edges if it is as long as their list. Where it is
    also as long as the list of nodes, their number is unknown, or the graph has a
    single edge, only a name with "edge" in it does; labels of links never do.
    """
    edges, nodes = _edge_counts(data), _node_counts(data)
    by_length = bool(nodes) and max(edges, default=0) > 1
    found = []
    for key in data.keys():  # noqa: SIM118 (iterating over data yields pairs)
        if key.startswith(OBSERVED) or key in _NODES or 'edge_label' in key:
            continue
        counts = _counts(data, key)
        # Of sparse matrices only the number of all edges is known.
        totals = counts if len(counts) == len(edges) else [sum(counts)]
        belongs = bool(counts) and totals == edges
        if 'edge' not in key:
            belongs = belongs and by_length and counts not in (nodes, [sum(nodes)])
        if belongs or key in GRAPH:
            found.append(key)
    # `follow_batch` adds vectors that speak about the edges, too.
    follow = [key + end for key in found for end in ('_batch', '_ptr')]
    found += [key for key in follow if key in data and key not in found]
    return sorted(found)


def _edge_counts(data: Data) -> list[int]:
    """Count the edges of each example, or of all; nothing if unknown."""
    if 'edge_index' in data:
        return _counts(data, 'edge_index')
    adj = data.adj_t if 'adj_t' in data else data.get('adj')
    if not is_sparse(adj):
        return []
    return [adj._nnz() if isinstance(adj, Tensor) else adj.nnz()]


def _node_counts(data: Data) -> list[int]:
    """Count the nodes of each example by an attribute of the nodes, if there is one."""
    vectors = [key for key in _NODE_VECTORS if key in data]
    if not hasattr(data, '_slice_dict'):
        if 'num_nodes' in data:
            return [data['num_nodes']]
        return _counts(data, vectors[0]) if vectors else []
    # A batch has a vector `batch` even where it guessed the number of nodes.
    is_known = 'ptr' in data and ('num_nodes' in data or {*vectors} - {'batch'})
    return list(data.ptr.diff().tolist()) if is_known else []


def _counts(data: Data, key: str) -> list[int]:
    """Count the entries of each example in one attribute; nothing if it has none."""
    value = data[key]
    slices = getattr(data, '_slice_dict', {}).get(key)
    if isinstance(slices, Tensor):
        return list(slices.view(slices.size(0), -1)[:, 0].diff().tolist())
    if isinstance(value, list | tuple):
        return [len(value)]
    if not isinstance(value, Tensor | np.ndarray) or value.ndim == 0:
        return []
    dim = data.__cat_dim__(key, value)
    return [value.shape[dim]] if isinstance(dim, int) else []


def _set_slices(data: Data, edge_index: Tensor) -> None:
    """Assign the edges of a batch to its examples."""
    slices, incs, first = data._slice_dict, data._inc_dict, data.ptr[:-1].cpu()
    example = data['batch'][edge_index[1]].cpu()
    slices['edge_index'] = cumsum(torch.bincount(example, minlength=first.numel()))
    slices['edge_weight'] = slices['edge_index']
    incs['edge_index'], incs['edge_weight'] = first, torch.zeros_like(first)
