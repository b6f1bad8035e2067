r"""Blocks of points with the sources that may be near: all, or those of a tree."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl.ops.runtime import row_blocks
from torch_geometric_gsl.ops.scores import max_square, squared_distance

# Distances of up to this many columns are summed column by column.
_FEW_COLUMNS = 16
# Trees are fast up to this number of columns, and up to this share of near sources.
_TREE_COLUMNS = 3
_MAX_LISTED = 0.25
# Squares of larger entries may overflow.
_LARGE = 1e150
# Sources found beyond the k nearest, and a bound of the rounding errors of distances.
_SPARE = 2
_MARGIN = 1 + 1e-12


class PointBlock(NamedTuple):
    """Indices of the points of some clouds, padded to one size."""

    source: Tensor  # [g, m]
    target: Tensor  # [g, n]
    is_source: Tensor
    is_target: Tensor

    @classmethod
    def of(cls, source: Tensor, target: Tensor) -> PointBlock:
        """Return a block in which negative indices are padding."""
        return cls(source, target, source >= 0, target >= 0)

    def distances(self, src: Tensor, dst: Tensor, has_loops: bool = True) -> Tensor:
        """Return the squared distances [g, n, m]; infinity excludes."""
        source, target = self.source.unsqueeze(1), self.target.unsqueeze(2)
        if src.size(1) <= _FEW_COLUMNS:  # Sums of short rows are slow.
            columns = zip(dst[target].unbind(-1), src[source].unbind(-1), strict=True)
            squares = [(a - b).square_() for a, b in columns]
            distance = sum(squares[1:], start=squares[0])
            distance.clamp_(max=max_square(src.dtype))  # Infinity excludes.
        else:
            distance = squared_distance(dst[target], src[source])
        is_excluded = ~(self.is_source.unsqueeze(1) & self.is_target.unsqueeze(2))
        if not has_loops:
            is_excluded |= source == target
        return distance.masked_fill(is_excluded, torch.inf)


def bytes_per_pair(src: Tensor) -> int:
    """Return the bytes per pair of differences, squares and ranks."""
    return src.element_size() * (2 * src.size(1) + 6)


def cloud_blocks(
    src: Tensor,
    dst: Tensor,
    of_src: Tensor,
    of_dst: Tensor,
    k: int | None,
    radius: float,
    memory: int,
) -> Iterator[PointBlock]:
    """Yield blocks of clouds with the sources that may be near enough: all inside a
    radius, or the k nearest of them.

    Points are sorted by cloud. Clouds of similar sizes share a block; of a large one a
    tree lists the sources, if scipy is installed.
    """
    size = 1 + max((int(ids[-1]) for ids in (of_src, of_dst) if len(ids)), default=-1)
    counts = [torch.bincount(ids, minlength=size) for ids in (of_src, of_dst)]
    starts = [count.cumsum(0) - count for count in counts]
    pair = bytes_per_pair(src)
    for clouds in _alike(counts[0], counts[1], memory // pair):
        (source, is_source), (target, is_target) = (
            _padded_indices(start[clouds], count[clouds])
            for start, count in zip(starts, counts, strict=True)
        )
        block = PointBlock(source, target, is_source, is_target)
        step = memory // (pair * source.size(1) * target.size(1))
        if step > 0:
            for rows in row_blocks(len(clouds), 1, step):
                yield PointBlock(*(indices[rows] for indices in block))
            continue
        for i in range(len(clouds)):
            points = source[i, is_source[i]], target[i, is_target[i]]
            yield from _large_cloud(src, dst, *points, k, radius, memory)


def _alike(sources: Tensor, targets: Tensor, max_pairs: int) -> Iterator[Tensor]:
    """Yield clouds of similar sizes together, or all if they have few pairs."""
    clouds = ((sources > 0) & (targets > 0)).nonzero().flatten()
    if clouds.numel() == 0:
        return
    if int(sources.amax() * targets.amax()) * clouds.numel() <= max_pairs:
        yield clouds
        return
    width = torch.maximum(sources, targets)[clouds].double().log2().ceil()
    for size in width.unique():
        yield clouds[width == size]


def _padded_indices(start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of the points of each cloud, and which are no padding."""
    position = torch.arange(int(count.amax()), device=count.device)
    is_point = position < count.unsqueeze(1)
    return (start.unsqueeze(1) + position) * is_point, is_point


def has_tree(src: Tensor, dst: Tensor) -> bool:
    """Return whether scipy's tree can search the points."""
    if src.device.type != 'cpu' or not 0 < src.size(1) <= _TREE_COLUMNS:
        return False
    is_safe = all(bool((rows.abs() < _LARGE).all()) for rows in (src, dst))
    return is_safe and importlib.util.find_spec('scipy') is not None


def _large_cloud(
    src: Tensor,
    dst: Tensor,
    source: Tensor,
    target: Tensor,
    k: int | None,
    radius: float,
    memory: int,
) -> Iterator[PointBlock]:
    """Yield a large cloud in blocks."""
    num_pairs = max(1, memory // bytes_per_pair(src))
    src, dst = src[source], dst[target]
    if not has_tree(src, dst):
        for rows in row_blocks(len(target), len(source), num_pairs):
            yield PointBlock.of(source.unsqueeze(0), target[rows].unsqueeze(0))
        return
    search = _TreeSearch(src.numpy(), dst.numpy(), num_pairs)
    near = search.inside(radius) if k is None else search.nearest(k, radius)
    for sources, targets in near:
        sources = source[sources].where(sources >= 0, -1)
        yield PointBlock.of(sources, target[targets])


class _TreeSearch:
    """Search near sources [g, m] of targets [g, n], both by their ascending indices."""

    def __init__(self, src: np.ndarray, dst: np.ndarray, num_pairs: int) -> None:
        from scipy.spatial import cKDTree

        self.make_tree = cKDTree
        self.tree = cKDTree(src)
        self.dst = dst
        self.num_pairs = num_pairs

    def nearest(self, k: int, radius: float) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the k nearest sources inside a radius, and all that tie with the last
        one; negative indices are padding.
        """
        size = min(k + _SPARE, self.tree.n)
        reach = radius * _MARGIN
        for block in row_blocks(len(self.dst), size, self.num_pairs):
            rows = np.arange(block.start, block.stop)
            distance, source = self.tree.query(
                self.dst[block], [*range(1, size + 1)], distance_upper_bound=reach
            )
            last = distance[:, min(k, size) - 1]
            # More sources may tie if the last one found does.
            is_tied = (distance[:, -1] <= last * _MARGIN) & (last < np.inf)
            is_tied &= size < self.tree.n
            source[source == self.tree.n] = -1
            near = torch.from_numpy(source[~is_tied]).sort(dim=1).values
            yield near, torch.from_numpy(rows[~is_tied, None])
            octave = np.frexp(last)[1]
            for exponent in np.unique(octave[is_tied]):
                is_alike = is_tied & (octave == exponent)
                yield from self.inside(last[is_alike].max(), rows[is_alike])

    def inside(
        self, radius: float, rows: np.ndarray | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all pairs inside a radius, or all pairs if those are many."""
        rows = np.arange(len(self.dst)) if rows is None else rows
        targets = self.make_tree(self.dst[rows])
        reach = radius * _MARGIN
        count = int(targets.count_neighbors(self.tree, reach))
        if count > _MAX_LISTED * self.tree.n * len(rows):
            every = torch.arange(self.tree.n).unsqueeze(0)
            for block in row_blocks(len(rows), self.tree.n, self.num_pairs):
                yield every, torch.from_numpy(rows[None, block])
        elif count > self.num_pairs and len(rows) > 1:
            num_blocks = min(2 * count // self.num_pairs, len(rows))
            # Points of a leaf have the same neighbours.
            for some_rows in np.array_split(rows[targets.indices], num_blocks):
                yield from self.inside(radius, some_rows)
        else:
            pairs = targets.sparse_distance_matrix(
                self.tree, reach, output_type='ndarray'
            )
            # Integers are sorted faster than pairs of them.
            pair = torch.from_numpy(pairs['i'] * self.tree.n + pairs['j'])
            pair = pair.sort().values.unsqueeze(1)
            yield pair % self.tree.n, torch.from_numpy(rows)[pair // self.tree.n]
