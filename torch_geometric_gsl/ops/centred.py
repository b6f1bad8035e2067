r"""Inner products of centred rows, which rank sources as their distances do."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.scores import Identity, Negative

# Rows that tell the centre: to sort more takes long, and moves it little.
_CENTRED = 64


def centre_of(rows: Tensor) -> Tensor:
    """Return about the median of each column, which a few outliers do not move."""
    if rows.size(0) == 0:
        return rows.new_zeros(rows.size(1))
    some = rows.detach()[:: -(-rows.size(0) // _CENTRED)]
    # Sorted, as medians on a GPU are not deterministic to PyTorch; NaN comes last.
    median = some.sort(dim=0).values[(some.size(0) - 1) // 2]
    return median.nan_to_num(0.0, 0.0, 0.0)


class Sources(NamedTuple):
    """Sources whose squared distances are found by inner products."""

    rows: Tensor  # The rows (z - c, -|z - c|^2).
    centre: Tensor  # A row c amid the sources, about which rounding errors are small.

    @classmethod
    def of(cls, z: Tensor) -> Sources:
        """Prepare the embeddings of sources."""
        centre = centre_of(z)
        z = z - centre
        return cls(torch.cat([z, -z.square().sum(dim=1, keepdim=True)], dim=1), centre)

    def single(self) -> Sources:
        """Return the rows in single precision."""
        return self._replace(rows=self.rows.float())

    def targets(self, z: Tensor) -> Tensor:
        r"""Return the rows :math:`(2 (z_i - c), 1)` of targets."""
        z = 2 * (z - self.centre)
        rows = torch.cat([z, z.new_ones(z.size(0), 1)], dim=1)
        return rows.to(self.rows.dtype)


def is_distance(pairs: PairScores) -> bool:
    """Return whether scores are negative squared distances, not a user's formula."""
    return pairs.comparison == 'squared_distance' and type(pairs.response) is Negative


def distances_as_dots(pairs: PairScores, sources: Sources | None = None) -> PairScores:
    r"""Return inner products that differ from negative squared distances by a number of
    each target.

    Weights and ranks of its sources are the same, since :math:`-\lVert z_i - z_j
    \rVert^2 = 2 z_i \cdot z_j - \lVert z_j \rVert^2 - \lVert z_i \rVert^2`, and matrix
    products find them. The pairs are those of :func:`is_distance`.
    """
    sources = Sources.of(pairs.src) if sources is None else sources
    return pairs._replace(
        # The scale of a few targets costs less than that of all pairs.
        dst=pairs.scale * sources.targets(pairs.dst),
        src=sources.rows,
        response=Identity(),
        comparison='dot',
        scale=1.0,
        lower=-torch.inf,
        upper=torch.inf,
    )
