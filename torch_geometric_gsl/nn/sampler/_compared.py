"""What constant features compare along listed edges, kept from call to call."""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor

from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.sparse_rows import SparseRows


class _Kept(NamedTuple):
    """Compared values, and what they were found for."""

    dst: Tensor
    src: Tensor
    comparison: str
    edge_index: Tensor
    value: Tensor

    def serves(self, pairs: PairScores, edge_index: Tensor) -> bool:
        is_alike = (
            self.comparison == pairs.comparison
            and self.edge_index.device == edge_index.device
            and self.value.dtype == pairs.dst.dtype
            and torch.equal(self.edge_index, edge_index)
        )
        sides = [(self.src, pairs.src)]
        if self.dst is not self.src or pairs.dst is not pairs.src:
            sides.append((self.dst, pairs.dst))
        return is_alike and all(
            cast(SparseRows, before).equals(cast(SparseRows, now))
            for before, now in sides
        )


class ComparedEdges:
    """Compare listed edges; of sparse rows anew only where something has changed.

    Sparse rows are constants, and comparing them takes most of a step.
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def __call__(
        self, pairs: PairScores, edge_index: Tensor, memory_budget: int
    ) -> Tensor:
        if not pairs.is_sparse:
            return pairs.compare_edges(edge_index, memory_budget=memory_budget)
        if self._kept is None or not self._kept.serves(pairs, edge_index):
            value = pairs.compare_edges(edge_index, memory_budget=memory_budget)
            # Copies: what is changed in place would seem to be what it was.
            src = pairs.src.clone()
            dst = src if pairs.dst is pairs.src else pairs.dst.clone()
            self._kept = _Kept(dst, src, pairs.comparison, edge_index.clone(), value)
        return self._kept.value
