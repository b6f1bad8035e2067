"""Replace graphs of a :class:`~torch_geometric.data.HeteroData` object."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData
from torch_geometric.typing import EdgeType, NodeType
from torch_geometric.utils import cumsum

from torch_geometric_gsl._checks import check_features
from torch_geometric_gsl.transforms._graph_data import GRAPH, OBSERVED, sorted_graph
from torch_geometric_gsl.typing import SampledGraph

#: What a transform takes of several types.
TYPED = 'a torch_geometric.data.HeteroData'


def typed_features(
    data: HeteroData, node_type: NodeType, attr: str = 'x', width: int | None = None
) -> Tensor:
    """Return an attribute that holds features of the nodes of a type, checked."""
    if node_type not in data.node_types:
        raise ValueError(
            f"'data' must have nodes of type {node_type!r} (got {data.node_types})"
        )
    value = data[node_type].get(attr)
    name = f'data[{node_type!r}].{attr}'
    if value is None:
        raise ValueError(f"'{name}' must hold node features (got None)")
    check_features(value, name, width)
    x: Tensor = value
    return x


def check_typed_batch(data: HeteroData, edge_type: EdgeType) -> None:
    """Raise if one type of an edge type has graph ids, and the other has none."""
    ends = [end for end in edge_type[::2] if end in data.node_types]
    given = [end for end in ends if data[end].get('batch') is not None]
    missing = [end for end in ends if end not in given]
    if given and missing:
        raise ValueError(
            f"'data[{missing[0]!r}].batch' must hold the graph ids of {missing[0]!r} "
            f'for {edge_type} (got those of {given[0]!r} alone)'
        )


def set_typed_graph(data: HeteroData, edge_type: EdgeType, graph: SampledGraph) -> None:
    """Store a graph, sorted by target, and keep the one that it replaces."""
    has_observed = f'{OBSERVED}edge_index' in data[edge_type]
    # A graph beside an observed one was itself put there by a transform.
    move_typed_graph(data, edge_type, None if has_observed else OBSERVED)
    store = data[edge_type]
    store.edge_index, store.edge_weight = sorted_graph(graph)
    if isinstance(data, Batch):
        _set_slices(data, edge_type, store.edge_index)


def move_typed_graph(data: HeteroData, edge_type: EdgeType, prefix: str | None) -> None:
    """Rename the edges of a type and what belongs to them, or drop it."""
    store = data[edge_type]
    places: list[Any] = [store]
    # Batches know how to take themselves apart; a shallow copy shares that.
    if isinstance(data, Batch):
        for name in ('_slice_dict', '_inc_dict'):
            own = dict(getattr(data, name))
            own[edge_type] = dict(own.get(edge_type, {}))
            setattr(data, name, own)
            places.append(own[edge_type])
    for key in _graph_keys(store):
        for place in places:
            if key in place:
                value = place[key]
                del place[key]
                if prefix is not None:
                    place[prefix + key] = value


def drop_typed_graphs(data: HeteroData) -> None:
    """Drop the edges of all types, and the types of which nothing is left."""
    for edge_type in data.edge_types:
        move_typed_graph(data, edge_type, None)
        store = data[edge_type]
        for key in [key for key in store if key.startswith(OBSERVED)]:
            del store[key]
        if not list(store.keys()):
            del data[edge_type]


def _graph_keys(store: Any) -> list[str]:
    """Return the names of the edges and of what has one entry per edge."""
    return [
        key
        for key in list(store.keys())
        if not key.startswith(OBSERVED)
        and 'edge_label' not in key
        and (key in GRAPH or store.is_edge_attr(key))
    ]


def _set_slices(data: Any, edge_type: EdgeType, edge_index: Tensor) -> None:
    """Assign the edges of a batch to its examples."""
    source, _, target = edge_type
    slices, incs = data._slice_dict[edge_type], data._inc_dict[edge_type]
    first = [data[end].ptr[:-1].cpu() for end in (source, target)]
    example = data[target].batch[edge_index[1]].cpu()
    slices['edge_index'] = cumsum(torch.bincount(example, minlength=len(first[0])))
    slices['edge_weight'] = slices['edge_index']
    incs['edge_index'] = torch.stack(first, dim=1).unsqueeze(-1)
    incs['edge_weight'] = torch.zeros_like(first[0])
