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
from torch_geometric_gsl.nn.nearest_neighbours import near_similarity
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.ops.sparse_rows import rows_between
from torch_geometric_gsl.transforms._graphs import (
    check_data,
    evaluation,
    node_features,
    set_graph,
    store_of,
)
from torch_geometric_gsl.typing import Features, SampledGraph


class FeatureGraph(BaseTransform):
    """Base class: build the graph of each example by itself, in a batch as alone."""

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
        if edge_types is not None:
            _check_edge_types(edge_types)
        self.k = k
        self.similarity = similarity
        self.loop = loop
        self.clamp = clamp
        self.attr = attr
        self.edge_types = None if edge_types is None else list(edge_types)

    @abstractmethod
    def build(self, x: Features, k: int, similarity: Similarity) -> SampledGraph:
        """Return the graph of one example, whose nodes have k candidates at least."""

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
        """Return the nodes, or sources and targets, and how many each example has."""
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
                f'or of none'
            )
        return rows, sizes

    def _graph(
        self, rows: list[Tensor], sizes: list[list[int]], where: str
    ) -> SampledGraph:
        """Return a graph none of whose edges joins two examples."""
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
        """Return the features, if they are not :obj:`data.x`, and the edge types."""
        text = '' if self.attr == 'x' else f', attr={self.attr}'
        if self.edge_types is not None:
            text += f', edge_types={self.edge_types}'
        return text


def _check_edge_types(edge_types: Any) -> None:
    """Raise unless there are edge types: a source, a name and a target each."""
    if (
        not isinstance(edge_types, list | tuple)
        or not edge_types
        or not all(isinstance(part, tuple) and len(part) == 3 for part in edge_types)
        or not all(isinstance(name, str) for part in edge_types for name in part)
    ):
        raise ValueError(
            f"'edge_types' must be a list of edge types (source, name, target) "
            f'(got {edge_types!r})'
        )


def _check_similarity(similarity: object) -> None:
    """Raise unless it is a module, or the name of one without parameters."""
    if not isinstance(similarity, str):
        check_type(similarity, Similarity, 'similarity', 'a name or a Similarity')
        return
    check_option(similarity, SIMILARITIES, 'similarity')
    if list(SIMILARITIES[similarity](1).parameters()):
        raise ValueError(
            f"'similarity' must not be the name of a similarity with parameters, "
            f'because they are untrained: pass a (trained) module, or '
            f"'linear', the plain cosine of the rows (got {similarity!r})"
        )
