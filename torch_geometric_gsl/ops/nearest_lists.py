r"""Lists of the nearest sources, and how far embeddings have moved since."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.envelope import Head
from torch_geometric_gsl.ops.pair_scores import PairScores, compare_all
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.sparse_rows import SparseRows, row_norms


class NearestLists(NamedTuple):
    r"""The best sources of each target, for the embeddings that they were found with.

    Args:
        source (torch.Tensor): Their indices :math:`[n, H]`, in ascending order.
        rest (torch.Tensor): The best compared value of all others :math:`[n]`.
        dst (torch.Tensor): Those embeddings of the targets :math:`[n, m]`.
        src (torch.Tensor): Those embeddings of the sources :math:`[N, m]`.
        comparison (str): What was compared of them.
        is_largest (bool): Whether the best values are the largest.
    """

    source: Tensor
    rest: Tensor
    dst: Tensor
    src: Tensor
    comparison: str
    is_largest: bool

    def serves(self, pairs: PairScores) -> bool:
        r"""Return whether the best sources of other scores are found in the same way.

        Args:
            pairs (PairScores): The scores of as many nodes.
        """
        return (
            self.comparison == pairs.comparison
            and pairs.response.monotonic == (1 if self.is_largest else -1)
            and isinstance(self.src, SparseRows) == isinstance(pairs.src, SparseRows)
            and self.src.size(1) == pairs.src.size(1)
            and self.src.dtype == pairs.src.dtype
        )

    def head(self, pairs: PairScores) -> Head:
        r"""Return the heads of today's embeddings.

        Where :math:`d_i` and :math:`d_j` denote the distances by which embeddings have
        moved since, an inner product has changed by at most :math:`d_i \lVert z_j
        \rVert + d_j \lVert z_i \rVert`, and a distance by :math:`d_i + d_j`.

        Args:
            pairs (PairScores): The scores of today's embeddings.
        """
        low, high = (torch.full_like(self.rest, sign * torch.inf) for sign in (-1, 1))
        slack = self._slack(pairs)
        if pairs.comparison == 'dot' and self.is_largest:
            high = self.rest + slack
        elif pairs.comparison == 'dot':
            low = self.rest - slack
        else:
            low = (self.rest.sqrt() - slack).clamp(min=0).square()
        return Head(self.source, low, high)

    @torch.no_grad()
    def _slack(self, pairs: PairScores) -> Tensor:
        error = (self.src.size(1) + 8) * torch.finfo(self.src.dtype).eps
        moved = _distance(pairs.dst, self.dst)
        farthest = _distance(pairs.src, self.src).amax()
        slack: Tensor
        if pairs.comparison == 'dot':
            norm, longest = row_norms(self.dst), row_norms(pairs.src).amax()
            slack = moved * longest + norm * farthest
            slack = slack * (1 + error) + 2 * error * norm * longest
        else:
            slack = (moved + farthest) * (1 + error) + error * self.rest.sqrt()
        return slack


def _distance(x: Tensor, before: Tensor) -> Tensor:
    """Return how far rows have moved, of sparse ones a bound."""
    if not isinstance(x, SparseRows):
        return row_norms(x - before)
    if isinstance(before, SparseRows) and x.equals(before):
        return x.new_zeros(x.size(0))
    return row_norms(x) + row_norms(before)


@torch.no_grad()
def find_nearest(
    pairs: PairScores, size: int, *, memory_budget: int = MEMORY_BUDGET
) -> NearestLists:
    r"""List the best sources of each target, by blocks of rows.

    Args:
        pairs (PairScores): The scores, whose response is monotonic.
        size (int): The number of sources :math:`H`, less than :math:`N`.
        memory_budget (int, optional): Bytes for one block of rows.
            (default: :obj:`2**25`)
    """
    dst, src = pairs.dst.detach(), pairs.src.detach()
    is_largest = pairs.response.monotonic > 0
    source = torch.empty(dst.size(0), size, dtype=torch.long, device=dst.device)
    rest = dst.new_empty(dst.size(0))
    for rows in row_blocks(
        dst.size(0), 3 * src.size(0) * dst.element_size(), memory_budget
    ):
        value = compare_all(pairs.comparison, dst[rows], src)
        found, index = value.topk(size + 1, dim=1, largest=is_largest)
        source[rows] = index[:, :size].sort(dim=1).values
        rest[rows] = found[:, size]
    # Copies: what is trained or refilled in place would seem never to have moved.
    kept = src.clone()
    before = kept if pairs.dst is pairs.src else dst.clone()
    return NearestLists(source, rest, before, kept, pairs.comparison, is_largest)
