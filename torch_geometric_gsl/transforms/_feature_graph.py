"""Build graphs of the features by a similarity that is fixed and without gradient."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl._checks import (
    check_batch,
    check_candidate_count,
    check_flag,
    check_option,
    check_type,
)
from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.resolver import SIMILARITIES, resolve_similarity
from torch_geometric_gsl.transforms._graph_data import node_features, set_graph
from torch_geometric_gsl.typing import SampledGraph


class FeatureGraph(BaseTransform):
    """Build the graph of each example by itself, so that a batch changes nothing."""

    def __init__(
        self,
        k: int,
        similarity: str | Similarity,
        loop: bool,
        clamp: bool,
        attr: str = 'x',
    ) -> None:
        check_similarity(similarity)
        check_flag(clamp, 'clamp')
        check_type(attr, str, 'attr', 'the name of an attribute')
        self.k = k
        self.similarity = similarity
        self.loop = loop
        self.clamp = clamp
        self.attr = attr

    @abstractmethod
    def build(self, x: Tensor, k: int, similarity: Similarity) -> SampledGraph:
        """Return the graph of one example, whose nodes have k candidates at least."""

    def forward(self, data: Data) -> Data:
        x, batch = node_features(data, self.attr), data.batch
        similarity = resolve_similarity(self.similarity, x.size(1))
        sizes = [x.size(0)]
        if batch is not None:
            check_batch(batch, x, 'data.batch')
            sizes = torch.bincount(batch).tolist()
        edges = [torch.empty(2, 0, dtype=torch.long, device=x.device)]
        weights = [torch.empty(0, dtype=x.dtype, device=x.device)]
        start = 0
        with evaluation(similarity):
            for number, size in enumerate(sizes):
                available = size - int(not self.loop)
                if size > 0 and not self.clamp:
                    where = '' if batch is None else f' of graph {number}'
                    check_candidate_count(self.k, available, where)
                if available > 0:
                    part = x if size == x.size(0) else take_rows(x, start, size)
                    graph = self.build(part, min(self.k, available), similarity)
                    edges.append(graph.edge_index + start)
                    weights.append(graph.edge_weight)
                start += size
        set_graph(data, SampledGraph(torch.cat(edges, dim=1), torch.cat(weights)))
        return data

    def extra_repr(self) -> str:
        """Return what is said of other features than :obj:`data.x`."""
        return '' if self.attr == 'x' else f', attr={self.attr}'


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


def take_rows(x: Tensor, start: int, size: int) -> Tensor:
    """Return consecutive rows, also of sparse features, which torch cannot."""
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
