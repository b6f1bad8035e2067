"""Read and write graphs and features of PyTorch Geometric's data objects.

A :class:`~torch_geometric.data.Data` object has one store, and a
:class:`~torch_geometric.data.HeteroData` object one per type.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import NodeStorage
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType
from torch_geometric.utils import sort_edge_index

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_types,
    check_features,
    check_flag,
    check_option,
    check_type,
)
from torch_geometric_gsl.nn.models.layers import evaluation
from torch_geometric_gsl.nn.nearest_neighbours import near_similarity
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.ops.sparse_rows import rows_between
from torch_geometric_gsl.typing import Features, SampledGraph, is_sorted_by_target

#: The prefix of a replaced graph's attributes.
OBSERVED = 'observed_'
_EDGES = {'edge_index', 'adj_t', 'adj'}
# Always part of a graph, for any size.
_GRAPH = _EDGES | {'edge_weight', 'edge_attr', 'edge_type', 'e_id', 'num_edges'}
#: Attributes that determine the number of nodes.
COUNTS = {'x', 'pos', 'node_type', 'n_id', 'batch', 'num_nodes'}


def check_data(data: object, reason: str = '') -> None:
    """Raise unless :obj:`data` is a homogeneous graph or a batch of them."""
    what = f'a homogeneous torch_geometric.data.Data{reason}'
    check_type(data, Data, 'data', what)


def store_of(data: Any, kind: Any = None) -> Any:
    """Return the store of a type, or the only one of a homogeneous object."""
    return data.stores[0] if kind is None else data[kind]


def node_features(
    data: Any, node_type: str | None = None, attr: str = 'x', width: int | None = None
) -> Tensor:
    """Return a feature attribute of the nodes, or of the nodes of a type.

    Stores the number of nodes in :obj:`data` if nothing else determines it.
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
    """Store a graph, sorted by target; keep the replaced one under a prefix."""
    store = store_of(data, edge_type)
    has_observed = any(OBSERVED + key in store for key in _EDGES)
    # A graph next to an observed one comes from a transform.
    move_graph(store, None if has_observed else OBSERVED)
    store.edge_index, store.edge_weight = sorted_graph(graph)
    forget_slices(data)


def forget_slices(data: Any) -> None:
    """Mark a batch that can no longer be separated into its examples."""
    for name in ('_slice_dict', '_inc_dict'):
        vars(data.stores[0]).pop(name, None)


def sorted_graph(graph: SampledGraph) -> SampledGraph:
    """Sort edges by target and then by source."""
    if is_sorted_by_target(graph.edge_index):
        return graph
    return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))


def move_graph(store: Any, prefix: str | None) -> None:
    """Rename the edges and their attributes; delete them without a prefix."""
    for key in graph_keys(store):
        value = store[key]
        del store[key]
        if prefix is not None:
            store[prefix + key] = value


def graph_keys(store: Any) -> list[str]:
    r"""Return the names of the edges and of all attributes with one entry per edge.

    An attribute has one entry per edge if it has their length. If this is also the
    number of nodes or graphs, or the number of nodes is unknown, its name must contain
    "edge"; labels of links are excluded.
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
        # The warning that the number of nodes is a guess.
        warnings.filterwarnings('ignore', 'Unable to accurately infer')
        for key in own - COUNTS - {'ptr'} - found:
            if (by_length or 'edge' in key) and 'edge_label' not in key:
                found |= {key} if store.is_edge_attr(key) else set()
    # `follow_batch` adds vectors about the edges, too.
    return sorted(found | ({key + '_ptr' for key in found} & own))


class FeatureGraph(BaseTransform):
    """Base class of transforms that build a graph for each example of a batch."""

    def __init__(
        self,
        k: int,
        similarity: str | Similarity,
        loop: bool,
        clamp: bool,
        attr: str = 'x',
        edge_types: Any = None,
    ) -> None:
        _check_similarity(similarity)
        check_flag(clamp, 'clamp')
        check_type(attr, str, 'attr', 'the name of an attribute')
        self.k = k
        self.similarity = similarity
        self.loop = loop
        self.clamp = clamp
        self.attr = attr
        self.edge_types = edge_types
        if edge_types is not None:
            self.edge_types = check_edge_types(edge_types, 'edge_types')

    @abstractmethod
    def build(self, x: Features, k: int, similarity: Similarity) -> SampledGraph:
        """Return the graph of one example with at least k candidates per node."""

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        if self.edge_types is None:
            is_typed = isinstance(data, HeteroData)
            check_data(data, ", or 'edge_types' must be given" if is_typed else '')
        else:
            what = "a torch_geometric.data.HeteroData with 'edge_types'"
            check_type(data, HeteroData, 'data', what)
        for edge_type in self.edge_types or [None]:
            rows, sizes = self._examples(data, edge_type)
            where = '' if edge_type is None else f' of {edge_type}'
            set_graph(data, self._graph(rows, sizes, where), edge_type)
        return data

    def _examples(
        self, data: Any, edge_type: EdgeType | None
    ) -> tuple[list[Tensor], list[list[int]]]:
        """Return the nodes, or sources and targets, and the sizes of the examples."""
        ends = [None] if edge_type is None else list(dict.fromkeys(edge_type[::2]))
        rows: list[Tensor] = []
        sizes, has_batch = [], set()
        for end in ends:
            width = rows[0].size(1) if rows else None
            rows.append(node_features(data, end, self.attr, width))
            batch = store_of(data, end).get('batch')
            has_batch.add(batch is not None)
            if batch is None:
                sizes.append([rows[-1].size(0)])
            else:
                name = 'data.batch' if end is None else f'data[{end!r}].batch'
                check_batch(batch, rows[-1], name)
                sizes.append(torch.bincount(batch).tolist())
        if len(has_batch) > 1:
            raise ValueError(
                f"'data' must hold the graph ids 'batch' of both ends of {edge_type}, "
                f'or of neither'
            )
        return rows, sizes

    def _graph(
        self, rows: list[Tensor], sizes: list[list[int]], where: str
    ) -> SampledGraph:
        """Build a graph without edges between examples."""
        width = rows[0].size(1)
        similarity = resolve_similarity(near_similarity(self.similarity, width), width)
        edges = [torch.empty(2, 0, dtype=torch.long, device=rows[0].device)]
        weights = [torch.empty(0, dtype=rows[0].dtype, device=rows[0].device)]
        starts = [0] * len(rows)
        with evaluation(similarity):
            for number, counts in enumerate(zip_longest(*sizes, fillvalue=0)):
                available = counts[0] - int(len(rows) == 1 and not self.loop)
                if counts[-1] > 0 and not self.clamp:
                    which = f' of graph {number}' if len(sizes[-1]) > 1 else ''
                    check_candidate_count(self.k, available, where + which)
                ends = [start + n for start, n in zip(starts, counts, strict=True)]
                if available > 0 and counts[-1] > 0:
                    own = [*map(rows_between, rows, starts, ends)]
                    x = own[0] if len(own) == 1 else (own[0], own[1])
                    graph = self.build(x, min(self.k, available), similarity)
                    shift = graph.edge_index.new_tensor([[starts[0]], [starts[-1]]])
                    edges.append(graph.edge_index + shift)
                    weights.append(graph.edge_weight)
                starts = ends
        return SampledGraph(torch.cat(edges, dim=1), torch.cat(weights))

    def extra_repr(self) -> str:
        """Return the name of the features, unless it is "x", and the edge types."""
        text = '' if self.attr == 'x' else f', attr={self.attr}'
        if self.edge_types is not None:
            text += f', edge_types={self.edge_types}'
        return text


def _check_similarity(similarity: object) -> None:
    """Raise unless it is a module, or the name of a similarity without parameters."""
    if not isinstance(similarity, str):
        check_type(similarity, Similarity, 'similarity', 'a name or a Similarity')
        return
    if similarity not in SIMILARITIES:
        served = [n for n, kind in SIMILARITIES.items() if not [*kind(1).parameters()]]
        check_option(similarity, served, 'similarity')
    if list(SIMILARITIES[similarity](1).parameters()):
        raise ValueError(
            f"'similarity' must not be the name of a similarity with untrained "
            f'parameters: pass a (trained) module, or '
            f"'linear', the plain cosine of the rows (got {similarity!r})"
        )
