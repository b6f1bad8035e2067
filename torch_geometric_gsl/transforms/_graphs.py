"""Read and write graphs and features of PyTorch Geometric's data objects.

A :class:`~torch_geometric.data.Data` object has one store, and a
:class:`~torch_geometric.data.HeteroData` object one per type.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import NodeStorage
from torch_geometric.index import ptr2index
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType, TensorFrame
from torch_geometric.utils import cumsum, sort_edge_index

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_edge_types,
    check_features,
    check_flag,
    check_one_graph,
    check_option,
    check_type,
)
from torch_geometric_gsl.nn.shared_module import evaluation
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, near_similarity
from torch_geometric_gsl.ops.sparse_rows import rows_between
from torch_geometric_gsl.typing import Features, SampledGraph, is_sorted_by_target

#: The prefix of a replaced graph's attributes.
OBSERVED = 'observed_'
_EDGES = {'edge_index', 'adj_t', 'adj'}
# Always part of a graph, for any size.
_GRAPH = _EDGES | {'edge_weight', 'edge_attr', 'edge_type', 'e_id', 'num_edges'}
# What a batch stores to separate its examples: their ranges, and what it added.
_SLICES = '_slice_dict', '_inc_dict'
# Attributes that determine the number of nodes.
_COUNTS = {'x', 'pos', 'node_type', 'n_id', 'batch', 'num_nodes'}


def check_data(data: object, reason: str = '') -> None:
    """Raise unless :obj:`data` is a homogeneous graph or a batch of them."""
    expected = f'a homogeneous torch_geometric.data.Data{reason}'
    check_type(data, Data, 'data', expected)


def store_of(data: Any, type_name: Any = None) -> Any:
    """Return the store of a type, or the only one of a homogeneous object."""
    return data.stores[0] if type_name is None else data[type_name]


def attr_name(attr: str, type_name: Any = None) -> str:
    """Return the expression by which a user reads an attribute of a store."""
    return f'data.{attr}' if type_name is None else f'data[{type_name!r}].{attr}'


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
    name = attr_name(attr, node_type)
    if attr not in store:
        raise ValueError(f"'{name}' must hold node features (got None)")
    check_features(store[attr], name, width)
    x: Tensor = store[attr]
    is_counted = bool(_COUNTS & {*store.keys()})
    if 'batch' not in store and attr in (slices := slices_of(data, store)):
        # Batches lack the graph ids where PyG does not know the number of nodes.
        store.ptr = slices[attr].flatten().to(x.device)
        store.batch = ptr2index(store.ptr)
    if not is_counted:
        store.num_nodes = x.size(0)
        if (ptr := node_ptr(data, store)) is not None:
            store._num_nodes = ptr.diff().tolist()
    if store.num_nodes != x.size(0):
        raise ValueError(
            f"'{name}' must have one row per node "
            f'(got {x.size(0)} for {store.num_nodes} nodes)'
        )
    return x


def set_graph(data: Any, graph: SampledGraph, edge_type: Any = None) -> None:
    """Store a graph, sorted by target; keep the replaced one under a prefix."""
    store = store_of(data, edge_type)
    # A graph next to an observed one comes from a transform.
    is_replaced = any(OBSERVED + key in store for key in _EDGES)
    _copy_slices(data)
    for key in graph_keys(data, store):
        for entries in (store, *(slices_of(data, store, name) for name in _SLICES)):
            if key in entries:
                value = entries.pop(key)
                if not is_replaced:
                    entries[OBSERVED + key] = value
    store.edge_index, store.edge_weight = sorted_graph(graph)
    if _SLICES[0] in vars(data.stores[0]):
        _slice_graph(data, store)


def _slice_graph(data: Any, store: Any) -> None:
    """Store which edges belong to each example of a batch."""
    ends = [None, None] if store._key is None else store._key[::2]
    ptrs: list[Any] = [node_ptr(data, store_of(data, end)) for end in ends]
    for end, ptr in zip(ends, ptrs, strict=True):
        if ptr is None:
            name = attr_name('batch', end)
            raise ValueError(f"'{name}' must hold the graph ids of a batch (got None)")
    device = store.edge_index.device
    source, target = (ptr.to(device) for ptr in ptrs)
    check_one_graph(store.edge_index, (ptr2index(source), ptr2index(target)))
    ranges = torch.searchsorted(store.edge_index[1].contiguous(), target).cpu()
    starts = ptrs[1][:-1]
    if store._key is not None:
        starts = torch.stack([ptr[:-1] for ptr in ptrs], dim=1).unsqueeze(-1)
    slices_of(data, store).update(edge_index=ranges, edge_weight=ranges)
    shifts = {'edge_index': starts, 'edge_weight': torch.zeros_like(ranges[:-1])}
    slices_of(data, store, _SLICES[1]).update(shifts)


def slices_of(data: Any, store: Any, name: str = '_slice_dict') -> dict[str, Any]:
    """Return what a batch knows about the attributes of a store, or nothing."""
    entries: dict[Any, Any] = vars(data.stores[0]).get(name, {})
    return entries if store._key is None else entries.get(store._key, {})


def _copy_slices(data: Any) -> None:
    """Copy the slices of a batch, which it shares with the input of a transform."""
    batch = vars(data.stores[0])
    keys = [store._key for store in data.stores if store._key is not None]
    for name in _SLICES:
        if name in batch:
            typed = {key: {**batch[name].get(key, {})} for key in keys}
            batch[name] = {**batch[name], **typed}


def node_ptr(data: Any, store: Any) -> Tensor | None:
    """Return the first node of each example of a batch, and the number of nodes."""
    if _SLICES[0] not in vars(data.stores[0]):
        return None
    # In a batch of batches, the graph ids are not those of the examples.
    if 'batch' in (slices := slices_of(data, store)):
        ptr: Tensor = slices['batch']
        return ptr
    if 'batch' not in store:
        return None
    return cumsum(torch.bincount(store.batch, minlength=data.num_graphs)).cpu()


def sorted_graph(graph: SampledGraph) -> SampledGraph:
    """Sort edges by target and then by source."""
    if is_sorted_by_target(graph.edge_index):
        return graph
    return SampledGraph(*sort_edge_index(*graph, sort_by_row=False))


def graph_keys(data: Any, store: Any) -> list[str]:
    r"""Return the names of the edges and of all attributes with one entry per edge.

    An attribute has one entry per edge if it has their length, in each example of a
    batch. If this is also the number of nodes or graphs, or the number of nodes is
    unknown, its name must contain "edge"; labels of links are excluded.
    """
    names = {key for key in store.keys() if not key.startswith(OBSERVED)}  # noqa: SIM118
    # `follow_batch` adds vectors about an attribute.
    followed = {key + end for key in names for end in ('_batch', '_ptr')} & names
    counts = _edge_counts(data, store)
    is_clear_in_all, is_clear_in_each = _are_clear(data, store, counts)
    keys = names & _GRAPH
    for key in names - _COUNTS - {'ptr', 'face'} - followed - keys:
        lengths = _lengths(data, store, key)
        if len(lengths) == len(counts) > 1:
            has_edge_length = lengths == counts
            is_clear = is_clear_in_each or 'edge' in key
        else:
            has_edge_length = sum(lengths) == sum(counts)
            is_clear = is_clear_in_all or 'edge' in key
        if has_edge_length and is_clear and 'edge_label' not in key:
            keys.add(key)
    return sorted(keys | {k for k in followed if k.rpartition('_')[0] in keys})


def _edge_counts(data: Any, store: Any) -> list[int]:
    """Return the number of edges, of each example of a batch."""
    edge_index = getattr(store, 'edge_index', None)
    end = None if store._key is None else store._key[-1]
    if edge_index is None or (ptr := node_ptr(data, store_of(data, end))) is None:
        return [store.num_edges]
    example = torch.searchsorted(ptr.to(edge_index.device), edge_index[1], right=True)
    return example.bincount(minlength=ptr.numel())[1:].tolist()


def _are_clear(data: Any, store: Any, counts: list[int]) -> tuple[bool, bool]:
    """Return whether the length of an attribute tells if it belongs to the edges.

    The first value is for all examples of a batch together, the second for each.
    """
    if not isinstance(store, NodeStorage):
        return True, True
    num_graphs = store['ptr'].numel() - 1 if 'ptr' in store else 1
    ptr = node_ptr(data, store)
    sizes = [] if ptr is None else ptr.diff().tolist()
    pairs = zip(counts, sizes, strict=False)
    is_clear = sum(counts) not in (num_graphs, store.num_nodes)
    return is_clear, any(count not in (1, size) for count, size in pairs)


def _lengths(data: Any, store: Any, key: str) -> list[int]:
    """Return the length of an attribute, in each example of a batch if it is known."""
    value = store[key]
    slices = slices_of(data, store).get(key)
    if isinstance(value, list) and isinstance(slices, Tensor):
        return [_length(data, store, key, item) for item in value]
    length = _length(data, store, key, value)
    # Other transforms may change an attribute and leave its slices.
    if isinstance(slices, Tensor) and slices.dim() == 1 and int(slices[-1]) == length:
        return [int(size) for size in slices.diff()]
    return [length]


def _length(data: Any, store: Any, key: str, value: Any) -> int:
    """Return the number of entries of a value, or -1 if it has none."""
    if isinstance(value, (list, tuple, TensorFrame)):
        return len(value)
    if not isinstance(value, (Tensor, np.ndarray)) or value.ndim == 0:
        return -1
    dim = data.__cat_dim__(key, value, store)
    return value.shape[dim] if isinstance(dim, int) else -1


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
            expected = "a torch_geometric.data.HeteroData with 'edge_types'"
            check_type(data, HeteroData, 'data', expected)
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
        sizes = []
        has_batch = set()
        for end in ends:
            width = rows[0].size(1) if rows else None
            rows.append(node_features(data, end, self.attr, width))
            batch = store_of(data, end).get('batch')
            has_batch.add(batch is not None)
            if batch is None:
                sizes.append([rows[-1].size(0)])
            else:
                check_batch(batch, rows[-1], attr_name('batch', end))
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
        similarity = near_similarity(self.similarity, width)
        edges = [torch.empty(2, 0, dtype=torch.long, device=rows[0].device)]
        weights = [torch.empty(0, dtype=rows[0].dtype, device=rows[0].device)]
        starts = [0] * len(rows)
        with evaluation(similarity) as similarity:
            for index, counts in enumerate(zip_longest(*sizes, fillvalue=0)):
                available = counts[0] - int(len(rows) == 1 and not self.loop)
                if counts[-1] > 0 and not self.clamp:
                    graph_name = f' of graph {index}' if len(sizes[-1]) > 1 else ''
                    check_candidate_count(self.k, available, where + graph_name)
                ends = [start + n for start, n in zip(starts, counts, strict=True)]
                if available > 0 and counts[-1] > 0:
                    blocks = [*map(rows_between, rows, starts, ends)]
                    x = blocks[0] if len(blocks) == 1 else (blocks[0], blocks[1])
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
        names = [
            n for n, class_ in SIMILARITIES.items() if not [*class_(1).parameters()]
        ]
        check_option(similarity, names, 'similarity')
    if list(SIMILARITIES[similarity](1).parameters()):
        raise ValueError(
            f"'similarity' must not be the name of a similarity with untrained "
            f'parameters: pass a (trained) module, or '
            f"'linear', the plain cosine of the rows (got {similarity!r})"
        )
