"""Build graphs of the features by a similarity that is fixed and without gradient."""

from __future__ import annotations

from abc import abstractmethod
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_flag,
    check_option,
    check_type,
)
from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.nn.nearest_neighbours import near_similarity
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.transforms._graphs import (
    TYPED,
    check_data,
    evaluation,
    node_features,
    set_graph,
)
from torch_geometric_gsl.typing import Features, SampledGraph


class FeatureGraph(BaseTransform):
    """Build the graph of each example by itself, so that a batch changes nothing."""

    def __init__(
        self,
        k: int,
        similarity: str | Similarity,
        loop: bool,
        clamp: bool,
        attr: str = 'x',
        edge_types: Any = None,
    ) -> None:
        check_similarity(similarity)
        check_flag(clamp, 'clamp')
        check_type(attr, str, 'attr', 'the name of an attribute')
        self.k = k
        self.similarity = similarity
        self.loop = loop
        self.clamp = clamp
        self.attr = attr
        self.edge_types = None if edge_types is None else _edge_types(edge_types)

    @abstractmethod
    def build(self, x: Features, k: int, similarity: Similarity) -> SampledGraph:
        """Return the graph of one example, whose nodes have k candidates at least."""

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        if self.edge_types is None:
            is_typed = isinstance(data, HeteroData)
            check_data(data, ", or 'edge_types' must be given" if is_typed else '')
            self._set_graph(data, None, [None])
            return data
        check_type(data, HeteroData, 'data', f"{TYPED} with 'edge_types'")
        for edge_type in self.edge_types:
            self._set_graph(data, edge_type, list(dict.fromkeys(edge_type[::2])))
        return data

    def _set_graph(self, data: Any, edge_type: Any, ends: list[Any]) -> None:
        """Store a graph of the nodes, or of those at the ends of an edge type."""
        rows: list[Tensor] = []
        for end in ends:
            width = rows[0].size(1) if rows else None
            rows.append(node_features(data, end, self.attr, width))
        stores = [data.stores[0] if end is None else data[end] for end in ends]
        batches = [store.get('batch') for store in stores]
        if any(batch is None for batch in batches) != all(b is None for b in batches):
            raise ValueError(
                f"'data' must hold the graph ids 'batch' of both ends of {edge_type}, "
                f'or of none'
            )
        sizes = [
            _sizes(x, batch, 'data.batch' if end is None else f'data[{end!r}].batch')
            for end, x, batch in zip(ends, rows, batches, strict=True)
        ]
        where = '' if edge_type is None else f' of {edge_type}'
        set_graph(data, self._graph(rows, *sizes, where=where), edge_type)

    def _graph(
        self, rows: list[Tensor], *sizes: list[int], where: str = ''
    ) -> SampledGraph:
        """Return the graph among rows, or from one set of them to another.

        The sizes are those of the examples, none of whose edges joins two.
        """
        width = rows[0].size(1)
        similarity = resolve_similarity(near_similarity(self.similarity, width), width)
        edges = [torch.empty(2, 0, dtype=torch.long, device=rows[0].device)]
        weights = [torch.empty(0, dtype=rows[0].dtype, device=rows[0].device)]
        starts = [0] * len(rows)
        is_pair = len(rows) == 2
        with evaluation(similarity):
            for number, counts in enumerate(zip_longest(*sizes, fillvalue=0)):
                available = counts[0] - int(not is_pair and not self.loop)
                if counts[-1] > 0 and not self.clamp:
                    which = f' of graph {number}' if len(sizes[-1]) > 1 else ''
                    check_candidate_count(self.k, available, where + which)
                if available > 0 and counts[-1] > 0:
                    own = [*map(take_rows, rows, starts, counts)]
                    x = (own[0], own[1]) if is_pair else own[0]
                    graph = self.build(x, min(self.k, available), similarity)
                    shift = graph.edge_index.new_tensor([starts[0], starts[-1]])
                    edges.append(graph.edge_index + shift.view(2, 1))
                    weights.append(graph.edge_weight)
                starts = [start + n for start, n in zip(starts, counts, strict=True)]
        return SampledGraph(torch.cat(edges, dim=1), torch.cat(weights))

    def extra_repr(self) -> str:
        """Return what is said of other features than :obj:`data.x`, and of types."""
        text = '' if self.attr == 'x' else f', attr={self.attr}'
        if self.edge_types is not None:
            text += f', edge_types={self.edge_types}'
        return text


def _edge_types(edge_types: Any) -> list[EdgeType]:
    """Return edge types: a source, a name and a target each."""
    listed = list(edge_types) if isinstance(edge_types, list | tuple) else []
    for part in listed or [None]:
        is_triple = isinstance(part, tuple) and len(part) == 3
        if not is_triple or not all(isinstance(name, str) for name in part or ()):
            raise ValueError(
                f"'edge_types' must be a list of edge types (source, name, target) "
                f'(got {edge_types!r})'
            )
    return listed


def _sizes(x: Tensor, batch: Any, name: str) -> list[int]:
    """Return the numbers of rows of the examples."""
    if batch is None:
        return [x.size(0)]
    check_batch(batch, x, name)
    return list(torch.bincount(batch).tolist())


def check_similarity(similarity: object) -> None:
    """Raise unless it is a module, or the name of one without parameters."""
    if isinstance(similarity, str):
        check_option(similarity, SIMILARITIES, 'similarity')
        if list(SIMILARITIES[similarity](1).parameters()):
            raise ValueError(
                f"'similarity' must not be the name of a similarity with parameters, "
                f'because they are untrained: pass a (trained) module, or '
                f"'linear', the plain cosine of the rows (got {similarity!r})"
            )
    else:
        check_type(similarity, Similarity, 'similarity', 'a name or a Similarity')


def take_rows(x: Tensor, start: int, size: int) -> Tensor:
    """Return consecutive rows, also of sparse features, which torch cannot."""
    if size == x.size(0):
        return x
    if x.layout == torch.strided:
        return x[start : start + size]
    offsets = x.crow_indices()[start : start + size + 1]
    entries = slice(int(offsets[0]), int(offsets[-1]))
    silence_csr_warning()
    return torch.sparse_csr_tensor(
        offsets - offsets[0],
        x.col_indices()[entries],
        x.values()[entries],
        size=(size, x.size(1)),
        check_invariants=False,
    )
