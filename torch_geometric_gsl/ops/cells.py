r"""Cells of targets, and bounds of the scores between a cell and each source."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops.clusters import (
    Clusters,
    cluster_means,
    k_means,
    num_clusters,
)
from torch_geometric_gsl.ops.edges import expand_ranges
from torch_geometric_gsl.ops.pair_scores import (
    PairScores,
    Sources,
    compare_all,
    distances_as_dots,
)
from torch_geometric_gsl.ops.scores import Identity, Negative, max_square

# Targets of a cell: enough to pay for its intervals, few enough to keep them narrow.
_MIN_ROWS = 16
_MEAN_ROWS = 128
_MAX_ROWS = 512
# Sources scored first, for each of the k best.
_FIRST = 4
# Tolerated rounding error of distances, relative to the k-th nearest one.
_PRECISION = 1e-9


class Members(NamedTuple):
    """Sources ordered by cluster, with their centres and distances to them."""

    source: Tensor  # [N].
    src: Tensor  # Their embeddings [N, m].
    cluster: Tensor  # Their clusters [N].
    centre: Tensor  # The centres of the clusters [C, m].
    distance: Tensor  # The distances to them [N].

    def take(self, position: Tensor, clusters: Tensor) -> Members:
        """Select the sources at positions in some clusters."""
        source, src, cluster, distance = (
            x.index_select(0, position)
            for x in (self.source, self.src, self.cluster, self.distance)
        )
        cluster = torch.searchsorted(clusters, cluster)
        return Members(source, src, cluster, self.centre[clusters], distance)


@torch.no_grad()
def find_members(src: Tensor, clusters: Clusters) -> Members:
    """Locate sources in clusters, which may be those of other embeddings."""
    src = src[clusters.source]
    cluster = clusters.cluster
    centre = cluster_means(src, clusters)
    distance = torch.linalg.vector_norm(src - centre[cluster], dim=1)
    return Members(clusters.source, src, cluster, centre, distance)


@torch.no_grad()
def cells_of(pairs: PairScores, clusters: Clusters) -> tuple[list[Tensor], Tensor]:
    """Partition the targets into cells of near ones.

    The clusters of the sources are reused if the targets are the sources and the
    clusters are large enough. The targets of cells too small for bounds come last.
    """
    num_targets = pairs.dst.size(0)
    if num_targets < _MIN_ROWS:
        return [], torch.arange(num_targets, device=pairs.dst.device)
    is_same = pairs.dst is pairs.src or torch.equal(pairs.dst, pairs.src)
    count = max(1, num_targets // _MEAN_ROWS)
    if not is_same or clusters.size.numel() > 1.5 * count:
        count = min(count, num_clusters(num_targets))
        clusters = k_means(pairs.dst, count, memory=pairs.memory)
    cells = []
    small_cells = [clusters.source[:0]]
    for cell in clusters.source.split(clusters.size.tolist()):
        if cell.numel() < _MIN_ROWS:
            small_cells.append(cell)
        else:
            cells += cell.chunk(-(-cell.numel() // _MAX_ROWS))
    return cells, torch.cat(small_cells)


class CellSearch(NamedTuple):
    """Search for the best sources of cells, in the order of clusters."""

    pairs: PairScores  # In double precision.
    members: Members
    radius: Tensor  # The radius of each cluster.
    offsets: Tensor  # The offsets of the clusters.
    k: int

    @classmethod
    def of(cls, pairs: PairScores, k: int, clusters: Clusters) -> CellSearch:
        """Prepare the sources."""
        members = find_members(pairs.src.double(), clusters)
        excluded = pairs.excluded
        if excluded is not None:
            excluded = clusters.source.argsort()[excluded]
        pairs = pairs._replace(
            dst=pairs.dst.double(),
            src=members.src,
            response=pairs.response.map(Tensor.double),
            excluded=excluded,
        )
        radius = members.distance.new_zeros(clusters.size.numel())
        radius.scatter_reduce_(0, members.cluster, members.distance, 'amax')
        return cls(pairs, members, radius, clusters.offsets, k)

    @property
    def is_nearest(self) -> bool:
        """Return whether the best sources are the nearest."""
        ranking = Identity if self.pairs.comparison == 'dot' else Negative
        return type(self.pairs.response) is ranking

    def within_reach(self, cell: PairScores) -> Tensor | None:
        """Return the positions of all candidates for the best sources of a cell.

        Near sources are scored first; the :math:`k`-th best score so far of each target
        determines which others are kept. Returns :obj:`None` if there are no bounds.
        """
        members = self.members
        num_scored = min(_FIRST * self.k + 1, cell.src.size(0))
        if not self.is_nearest:
            if (bounds := score_range(cell, members)) is None:
                return None
            position = bounds[1].topk(num_scored).indices.sort().values
            worst = self.best(cell, position)[0][:, -1]
            return (~(bounds[1] < worst.amin())).nonzero().squeeze(1)
        middle = compare_all(cell.comparison, _middle(cell.dst), members.centre)
        order = cell.response(middle)[0].argsort(descending=True)
        total = self.offsets.diff()[order].cumsum(0)
        clusters = order[: int(torch.searchsorted(total, num_scored)) + 1]
        worst = self.best(cell, self._positions(clusters.sort().values))[0][:, -1]
        # Exclude whole clusters first, then single sources.
        least_distance = self._least_distance(cell, worst)
        clusters = (~(self.radius < least_distance)).nonzero().squeeze(1)
        position = self._positions(clusters)
        limit = least_distance[members.cluster[position]]
        position = position[~(members.distance[position] < limit)]
        if (bounds := score_range(cell, members.take(position, clusters))) is None:
            return None
        return position[~(bounds[1] < worst.amin())]

    def _least_distance(self, cell: PairScores, worst: Tensor) -> Tensor:
        """Bound the distance to the cluster's centre from which a source can improve
        some target's list, by the triangle inequality.
        """
        dst = cell.dst
        centre = self.members.centre
        worst = worst.unsqueeze(1) / cell.scale
        eps = 16 * (dst.size(1) + 8) * torch.finfo(dst.dtype).eps
        if cell.comparison == 'dot':
            norm = torch.linalg.vector_norm(dst, dim=1, keepdim=True)
            norm = norm.clamp(min=torch.finfo(dst.dtype).tiny)
            away: Tensor = (worst - dst @ centre.t()) / norm
            longest = torch.linalg.vector_norm(centre, dim=1) + self.radius
            return away.amin(dim=0).sub_(eps * longest.amax())
        middle = _middle(dst)
        dst, centre = dst - middle, centre - middle
        length = centre.square().sum(dim=1) * (1 - eps)
        away = torch.addmm(length, dst, centre.t(), alpha=-2)
        away += dst.square().sum(dim=1, keepdim=True) * (1 - eps)
        away = away.clamp_(min=0).sqrt_() * (1 - eps)
        away -= (-worst).clamp(min=0).sqrt() * (1 + eps)
        return away.amin(dim=0)

    def _positions(self, clusters: Tensor) -> Tensor:
        start = self.offsets[clusters]
        return expand_ranges(start, self.offsets[clusters + 1] - start)[1]

    def best(self, cell: PairScores, position: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best scores among the sources at ascending positions, less their
        rounding errors, and the positions of these sources.
        """
        if (excluded := cell.excluded) is not None:
            index = torch.searchsorted(position, excluded)
            index.clamp_(max=position.numel() - 1)
            excluded = index.masked_fill_(position[index] != excluded, -1)
        cell = cell._replace(src=cell.src.index_select(0, position), excluded=excluded)
        if self.is_nearest and cell.comparison != 'dot':
            # Products around a near centre keep small distances distinct.
            sources = Sources.of(cell.src)
            square = (cell.dst - sources.centre).square().sum(dim=1, keepdim=True)
            score, index = distances_as_dots(cell, sources).best(self.k)
            score -= cell.scale * square
            eps = 16 * (cell.src.size(1) + 8) * torch.finfo(score.dtype).eps
            error = cell.scale * eps * (square.amax() - sources.rows[:, -1].amin())
            if bool(error < -_PRECISION * score[:, -1].amax()):
                return score - error, position[index]
        score, index = cell.best(self.k)
        return score, position[index]


@torch.no_grad()
def score_range(pairs: PairScores, members: Members) -> tuple[Tensor, Tensor] | None:
    r"""Compute intervals that contain the scores of all targets with each source.

    With :math:`\nu` the centre of the targets, :math:`\rho` their largest distance to
    it, :math:`\mu` the centre of the cluster of source :math:`j` and :math:`r_j` the
    distance to it, inner products lie in

    .. math::
        z_i \cdot z_j \in \nu \cdot z_j + \left[ \min_i, \max_i \right]
        (z_i - \nu) \cdot \mu \pm \rho r_j,

    where only the last term is a bound, of :math:`(z_i - \nu) \cdot (z_j - \mu)`. The
    same holds for squared distances, with :math:`\pm 2 \rho r_j`. Rounding of the
    compared values and of the scores is included. There are no intervals for a user's
    response with parameters per target, or if compared values overflow.
    """
    low, high = _compare_range(pairs, members)
    bounds = pairs.response.bounds_of_all(low, high)
    if bounds is None:
        return None
    ends = [pairs.scale * bound for bound in bounds]  # The scale may be negative.
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    eps = 16 * torch.finfo(low.dtype).eps
    scale = torch.as_tensor(pairs.scale).abs()
    low = low - eps * (low.abs() + scale)
    high = high + eps * (high.abs() + scale)
    return (low, high) if bool((high - low).sum().isfinite()) else None


def _middle(dst: Tensor) -> Tensor:
    return (dst / dst.size(0)).sum(dim=0, keepdim=True)


def _compare_range(pairs: PairScores, members: Members) -> tuple[Tensor, Tensor]:
    """Compute intervals of the compared values of the targets with each source."""
    comparison = pairs.comparison
    dst = pairs.dst
    cluster = members.cluster
    middle = _middle(dst)
    radius = torch.linalg.vector_norm(dst - middle, dim=1).amax()
    error = 4 * (dst.size(1) + 8) * torch.finfo(dst.dtype).eps
    near = compare_all(comparison, middle, members.src)[0]
    base = compare_all(comparison, middle, members.centre)[0]
    lowest, highest = compare_all(comparison, dst, members.centre).aminmax(dim=0)
    is_dot = comparison == 'dot'
    if is_dot:
        # The error of products scales with the norms, that of distances with them.
        length = torch.linalg.vector_norm(dst, dim=1).amax()
        norm = torch.linalg.vector_norm(members.centre, dim=1)
        size = (length * (2 * norm[cluster] + members.distance)).mul_(2)
        slack = members.distance * radius
    else:
        size = near + (highest + base)[cluster]
        slack = members.distance * (2 * radius)
    slack = slack + error * (size + slack)
    low = near + (lowest - base)[cluster] - slack
    high = near + (highest - base)[cluster] + slack
    if is_dot:
        return low, high
    # Distances beyond the largest square are clamped and tie.
    limit = max_square(dst.dtype)
    is_far = ~(size < limit / 4)
    low = low.clamp_(min=0).masked_fill_(is_far, 0)
    return low, high.masked_fill_(is_far, limit)
