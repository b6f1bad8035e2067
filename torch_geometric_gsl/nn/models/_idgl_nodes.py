"""The nodes from which IDGL learns graphs: their similarity to all, or to anchors."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import scatter

from torch_geometric_gsl.nn.models._idgl_graph import Learned, LearnedAnchors
from torch_geometric_gsl.nn.similarity.cosine_similarity import CosineSimilarity
from torch_geometric_gsl.ops.chunking import row_blocks
from torch_geometric_gsl.ops.pairs import Neighbours, neighbour_sum


class Nodes:
    """The nodes of one forward pass.

    Args:
        x (torch.Tensor): Their features, dense or sparse CSR.
        batch (torch.Tensor or None): Their graphs.
        anchors (torch.Tensor or None): The nodes that are sources; all if
            :obj:`None`.
    """

    def __init__(self, x: Tensor, batch: Tensor | None, anchors: Tensor | None) -> None:
        self.x = x
        self.batch = batch
        self.anchors = anchors

    @cached_property
    def sizes(self) -> list[int]:
        """The numbers of rows of the blocks that a graph is stored in.

        On a CPU blocks of this size are recycled; whole graphs would be mapped anew.
        """
        num_sources = self.x.size(0) if self.anchors is None else self.anchors.numel()
        bytes_per_row = 4 * num_sources * self.x.element_size()
        blocks = row_blocks(self.x.size(0), bytes_per_row)
        return [rows.stop - rows.start for rows in blocks]

    def learn(self, metric: CosineSimilarity, h: Tensor, epsilon: float) -> Learned:
        """The graph whose weights are the similarities above a threshold."""
        with torch.autocast(h.device.type, enabled=False):
            parts = self._similarity(metric, h, epsilon)
        if self.batch is not None:
            own = self._sources(self.batch)
            pairs = zip(parts, self.batch.split(self.sizes), strict=True)
            parts = [
                part.masked_fill(ids.unsqueeze(1) != own, 0) for part, ids in pairs
            ]
        return Learned(parts) if self.anchors is None else LearnedAnchors(parts)

    @cached_property
    def products(self) -> Tensor:
        """The inner products of the features of the sources."""
        values = self.x.values() if self._is_sparse(self.x) else self.x
        if values.dtype in (torch.float16, torch.bfloat16):
            values = values.float()
        if not self._is_sparse(self.x):
            own = self._sources(values)
            return own @ own.t()
        own = self._source_columns(values)
        if self.anchors is not None:
            return own.t() @ own
        return self._rows(own, values)

    def _similarity(
        self, metric: CosineSimilarity, h: Tensor, epsilon: float
    ) -> list[Tensor]:
        """The metric of each node (row) and each source (column), by blocks."""
        if self._is_sparse(h):
            heads = self._unit_values(metric.weight)
            parts = [self._rows(self._source_columns(head), head) for head in heads]
            weight = F.threshold(sum(parts[1:], parts[0]), epsilon, 0.0, inplace=True)
            return list(weight.split(self.sizes))
        rows = metric.encode(h)
        own = self._sources(rows).t()
        return [
            F.threshold(part @ own, epsilon, 0.0, inplace=True)
            for part in rows.split(self.sizes)
        ]

    def _sources(self, h: Tensor) -> Tensor:
        return h if self.anchors is None else h[self.anchors]

    @cached_property
    def _row(self) -> Tensor:
        """The node of each entry of sparse features."""
        every = torch.arange(self.x.size(0), device=self.x.device)
        return every.repeat_interleave(self.x.crow_indices().diff())

    @cached_property
    def _columns(self) -> Neighbours:
        """The columns of the entries of sparse features, by row."""
        return Neighbours(self.x.col_indices(), self.x.size(1), self.x.crow_indices())

    def _rows(self, columns: Tensor, values: Tensor) -> Tensor:
        """Products of the rows with these entries, and dense columns."""
        return neighbour_sum(columns, values, self._columns)

    def _source_columns(self, values: Tensor) -> Tensor:
        """The rows of the sources with these entries, transposed and dense."""
        if self.anchors is None:
            out = values.new_zeros(self.x.size(1), self.x.size(0))
            return out.index_put((self.x.col_indices(), self._row), values)
        every = torch.arange(self.anchors.numel(), device=values.device)
        place = every.new_full((self.x.size(0),), -1)
        place = place.index_put((self.anchors,), every)[self._row]
        keep = place >= 0
        out = values.new_zeros(self.x.size(1), every.numel())
        column = self.x.col_indices()[keep]
        return out.index_put((column, place[keep]), values[keep])

    def _unit_values(self, weight: Tensor) -> Tensor:
        """The entries of the weighted rows of each head, as the metric embeds them."""
        is_half = weight.dtype in (torch.float16, torch.bfloat16)
        weight = weight.float() if is_half else weight
        values = self.x.values().to(weight.dtype) * weight[:, self.x.col_indices()]
        num_nodes = self.x.size(0)
        # As in `scores.unit_rows`: neither tiny nor huge rows underflow or overflow.
        largest = scatter(values.detach().abs(), self._row, 1, num_nodes, reduce='max')
        values = values / largest.masked_fill(largest == 0, 1)[:, self._row]
        square = scatter(values.square(), self._row, 1, num_nodes)
        norm = square.masked_fill(square == 0, 1).sqrt() * math.sqrt(weight.size(0))
        return values / norm[:, self._row]

    @staticmethod
    def _is_sparse(h: Tensor) -> bool:
        return h.layout != torch.strided
