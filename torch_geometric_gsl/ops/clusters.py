r"""Clusters of sources, and bounds of the values compared with a cluster's members.

Clusters may be outdated: centres and radii are computed from the current embeddings, so
that intervals of outdated clusters are wide, but never wrong.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import cumsum, scatter

from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.scores import unit_rows

# The number of Lloyd's steps, and of rows of each cluster in them.
_STEPS = 4
_ROWS_PER_CLUSTER = 64


class Clusters(NamedTuple):
    """A partition of the sources: their indices :math:`[N]`, cluster by cluster, and
    the offsets of the clusters :math:`[C + 1]`.
    """

    source: Tensor
    offsets: Tensor

    @property
    def size(self) -> Tensor:
        """Return the number of sources of each cluster."""
        return self.offsets.diff()

    @property
    def cluster(self) -> Tensor:
        """Return the cluster of each entry of :obj:`source`."""
        clusters = torch.arange(self.offsets.numel() - 1, device=self.source.device)
        return clusters.repeat_interleave(self.size, output_size=self.source.numel())


def num_clusters(num_sources: int) -> int:
    r"""Return a number of clusters that balances the costs of bounds and proposals.

    It is the power of two nearest to :math:`4 \sqrt{N}`: bounding all clusters then
    costs about as much per target as the proposals of its races.

    Example:
        >>> [num_clusters(n) for n in (1, 1000, 100_000)]
        [1, 128, 1024]
    """
    balanced = round(math.log2(4 * math.sqrt(num_sources)))
    return min(max(1, num_sources // 4), 1 << balanced)


@torch.no_grad()
def k_means(x: Tensor, num_clusters: int, *, memory: int = MEMORY_BUDGET) -> Clusters:
    """Cluster the rows of :obj:`x` by Lloyd's algorithm.

    It starts from distinct rows, iterates on at most 64 rows per cluster, and then
    assigns all rows. The result is deterministic; empty clusters are removed.

    Example:
        >>> k_means(torch.tensor([[0.0], [5.0], [0.1], [5.1]]), 2).source.tolist()
        [0, 2, 1, 3]
    """
    generator = torch.Generator(x.device).manual_seed(0)
    order = torch.randperm(x.size(0), generator=generator, device=x.device)
    sample = x[order[: _ROWS_PER_CLUSTER * num_clusters].sort().values]
    centre = x[order[:num_clusters].sort().values]
    for _ in range(_STEPS):
        cluster = _nearest(sample, centre, memory)
        count = cluster.bincount(minlength=num_clusters).unsqueeze(1)
        mean = torch.zeros_like(centre).index_add_(0, cluster, sample) / count
        centre = torch.where(count > 0, mean, centre)
    return group(_nearest(x, centre, memory))


def group(cluster: Tensor) -> Clusters:
    """Return the clusters of sources, without empty ones.

    Example:
        >>> group(torch.tensor([2, 0, 2]))
        Clusters(source=tensor([1, 0, 2]), offsets=tensor([0, 1, 3]))
    """
    size = cluster.bincount()
    return Clusters(cluster.argsort(stable=True), cumsum(size[size > 0]))


def _nearest(x: Tensor, centre: Tensor, memory: int) -> Tensor:
    """Return the nearest centre of each row."""
    half = centre.square().sum(dim=1) / 2
    nearest = torch.empty(x.size(0), dtype=torch.long, device=x.device)
    bytes_per_row = 2 * centre.size(0) * x.element_size()
    for rows in row_blocks(x.size(0), bytes_per_row, memory):
        nearest[rows] = torch.addmm(half, x[rows], centre.t(), beta=-1).argmax(dim=1)
    return nearest


class Balls(NamedTuple):
    """Balls that enclose the embeddings of each cluster."""

    # Unit directions for inner products, or points [C, m].
    centre: Tensor
    # The cosine of the largest angle to the centre, or the largest distance [C].
    radius: Tensor
    norm: Tensor  # The smallest and the largest norm [2, C].
    error: float  # Bounds the rounding error of a product of two unit rows.


@torch.no_grad()
def enclose(comparison: str, src: Tensor, clusters: Clusters) -> Balls:
    """Enclose the embeddings of clusters, which may be those of other embeddings."""
    cluster = clusters.cluster
    count = clusters.offsets.numel() - 1
    is_dot = comparison == 'dot'
    error = (src.size(1) + 8) * torch.finfo(src.dtype).eps
    src = src[clusters.source]
    unit = unit_rows(src) if is_dot else src
    centre = cluster_means(unit, clusters)
    centre = unit_rows(centre) if is_dot else centre
    norm = torch.linalg.vector_norm(src, dim=1)
    min_norm = scatter(norm, cluster, 0, count, 'min')
    max_norm = scatter(norm, cluster, 0, count, 'max')
    if is_dot:
        cosine = (unit * centre[cluster]).sum(dim=1)
        cosine = cosine.masked_fill(norm == 0, 1.0)  # Zero rows have no angle.
        radius = scatter(cosine, cluster, 0, count, 'min') - error
    else:
        distance = torch.linalg.vector_norm(src - centre[cluster], dim=1)
        radius = scatter(distance, cluster, 0, count, 'max') * (1 + error)
    norms = torch.stack([min_norm, max_norm])
    return Balls(centre, radius.clamp(min=-1.0), norms, error)


def cluster_means(rows: Tensor, clusters: Clusters) -> Tensor:
    """Return the means of clusters :math:`[C, m]`, given rows cluster by cluster."""
    cluster = clusters.cluster
    share = rows / clusters.size[cluster].unsqueeze(1)  # Prevents overflow of sums.
    mean = rows.new_zeros(clusters.size.numel(), rows.size(1))
    return mean.index_add_(0, cluster, share)


def compare_centres(comparison: str, dst: Tensor, balls: Balls) -> Tensor:
    """Return the cosines or distances :math:`[n, C]` of targets and cluster centres."""
    if comparison == 'dot':
        with torch.autocast(dst.device.type, enabled=False):
            return unit_rows(dst) @ balls.centre.t()
    # A matrix product would lose small distances far from the origin.
    return torch.cdist(dst, balls.centre, compute_mode='donot_use_mm_for_euclid_dist')


@torch.no_grad()
def compared_range(comparison: str, dst: Tensor, balls: Balls) -> tuple[Tensor, Tensor]:
    r"""Bound the values of targets compared with the members of clusters.

    With :math:`\theta` the angle between target and centre and :math:`\rho` the largest
    one between the centre and a member, cosines lie in

    .. math::
        \left[ \cos \min(\theta + \rho, \pi), \cos \max(\theta - \rho, 0) \right]

    and with :math:`d` the distance to the centre and :math:`r` the radius, squared
    distances lie in :math:`[\max(d - r, 0)^2, (d + r)^2]`. Rounding is included.
    Returns the ends of these intervals :math:`[n, C]`.
    """
    error = torch.full_like(balls.radius, balls.error)
    compared = compare_centres(comparison, dst, balls)
    if comparison == 'dot':
        norm = torch.linalg.vector_norm(dst, dim=1, keepdim=True)
        return _cone_range(compared, norm, balls, error)
    slack = error * (compared + balls.radius)
    low = (compared - balls.radius - slack).clamp(min=0)
    return low.square(), (compared + balls.radius + slack).square()


def _cone_range(
    cosine: Tensor, norm: Tensor, balls: Balls, error: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Bound inner products with vectors in cones."""
    cos_radius = balls.radius
    min_norm, max_norm = balls.norm
    sin_radius = (1 - cos_radius.square()).clamp(min=0).sqrt()
    # The sine is largest for the smallest cosine that rounding allows.
    sine = (1 - (cosine.abs() - error).clamp(min=0).square()).sqrt()
    along = cosine * cos_radius
    across = sine * sin_radius + error
    high = torch.where(cosine + error >= cos_radius, 1, (along + across).clamp(max=1))
    low = torch.where(cosine - error <= -cos_radius, -1, (along - across).clamp(min=-1))
    # Positive products are largest for the longest member, negative for the shortest.
    longest = max_norm * (1 + error)
    high = norm * (high * torch.where(high > 0, longest, min_norm) + error * max_norm)
    low = norm * (low * torch.where(low < 0, longest, min_norm) - error * max_norm)
    return low, high
