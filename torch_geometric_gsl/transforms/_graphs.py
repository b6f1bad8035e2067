"""Features and graphs in the stores of a data object of PyTorch Geometric.

A :class:`~torch_geometric.data.Data` object has one store, and a
:class:`~torch_geometric.data.HeteroData` object one for each type.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.storage import NodeStorage
from torch_geometric.utils import sort_edge_index
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import check_features, check_type
from torch_geometric_gsl.typing import SampledGraph, is_sorted_by_target

#: The prefix under which a replaced graph is kept.
OBSERVED = 'observed_'
_EDGES = {'edge_index', 'adj_t', 'adj'}
# Always parts of a graph, whatever their size.
_GRAPH = _EDGES | {'edge_weight', 'edge_attr', 'edge_type', 'e_id', 'num_edges'}
#: Attributes that determine the number of nodes.
COUNTS = {'x', 'pos', 'node_type', 'n_id', 'batch', 'num_nodes'}


def check_data(data: object, reason: str = '') -> None:
    """Raise unless :obj:`data` is a homogeneous graph or a batch of them."""
    what = f'a homogeneous torch_geometric.data.Data{reason}'
    check_type(data, Data, 'data', what)


def store_of(data: Any, kind: Any = None) -> Any:
    """Return the only store of a data object, or that of a node or edge type."""
    return data.stores[0] if kind is None else data[kind]


def node_features(
    data: Any, node_type: str | None = None, attr: str = 'x', width: int | None = None
) -> Tensor:
    """Return an attribute that holds features of the nodes, or of those of a type.

    Where nothing else determines the number of nodes, it is stored in :obj:`data`.
    """
    if node_type is None:
        check_data(data)
    elif node_type not in data.node_types:
        raise ValueError(
            f"'data' must have nodes of type {node_type!r} (got {data.node_types})"
        )
    store = store_of(data, node_type)
    name = f'data.{attr}' if node_type is None else f'data[{node_type!r}].{attr}'
    if attr not in store:
        raise ValueError(f"'{name}' must hold node features (got None)")
    check_features(store[attr], name, width)
    x: Tensor = store[attr]
    if not COUNTS & {*store.keys()}:
        store.num_nodes = x.size(0)
    if store.num_nodes != x.size(0):
        raise ValueError(
            f"'{name}' must have one row per node "
            f'(got {x.size(0)} for {store.num_nodes} nodes)'
        )
    return x


def set_graph(data: Any, graph: SampledGraph, edge_type: Any = None) -> None:
    """Store a graph, sorted by target, and keep the one that it replaces."""
    store = store_of(data, edge_type)
    has_observed = any(OBSERVED + key in store for key in _EDGES)
    # A graph beside an observed one was itself put there by a transform.
    move_graph(store, None if has_observed else OBSERVED)
    store.edge_index, store.edge_weight = sorted_graph(graph)
    forget_slices(data)


def forget_slices(data: Any) -> None:
    """Let a batch, which cannot be taken apart as it was put together, say so."""
    for name in ('_slice_dict', '_inc_dict'):
        vars(data.stores[0]).pop(name, None)


def sorted_graph(graph: SampledGraph) -> SampledGraph:
    """Return a graph whose edges are sorted by target and then by source."""
    if is_sorted_by_target(graph.edge_index):
        return graph
    num_nodes = maybe_num_nodes(graph.edge_index)
    return SampledGraph(
        *sort_edge_index(*graph, num_nodes=num_nodes, sort_by_row=False)
    )


def move_graph(store: Any, prefix: str | None) -> None:
    """Rename the edges and all that belongs to them, or drop it without a prefix."""
    for key in graph_keys(store):
        value = store[key]
        del store[key]
        if prefix is not None:
            store[prefix + key] = value


def graph_keys(store: Any) -> list[str]:
    r"""Return the names of the edges and of all attributes with one entry per edge.

    An attribute belongs to the edges if it is as long as their list. Where it is
    also as long as the list of nodes or of graphs, or the number of nodes is unknown,
    only a name with "edge" in it does; labels of links never do.
    """
    own = {key for key in store.keys() if not key.startswith(OBSERVED)}  # noqa: SIM118
    by_length = True
    if isinstance(store, NodeStorage):
        num_graphs = store['ptr'].numel() - 1 if 'ptr' in own else 1
        counts = COUNTS - ({'batch'} if 'ptr' in own else set())
        by_length = store.num_edges != num_graphs and bool(
            own & {*counts, 'adj', 'adj_t'}
        )
    found = own & _GRAPH
    with warnings.catch_warnings():
        # That the number of nodes is guessed.
        warnings.filterwarnings('ignore', 'Unable to accurately infer')
        for key in own - COUNTS - {'ptr'} - found:
            if (by_length or 'edge' in key) and 'edge_label' not in key:
                found |= {key} if store.is_edge_attr(key) else set()
    # `follow_batch` adds vectors that speak about the edges, too.
    return sorted(found | ({key + '_ptr' for key in found} & own))


@contextmanager
def evaluation(module: torch.nn.Module) -> Iterator[None]:
    """Set evaluation mode without gradient, and restore the mode of each part."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
