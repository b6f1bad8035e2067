r"""Blocks of points with the sources that may be near: all, or those of a tree."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.scores import max_square, squared_distance

# Distances of up to this many columns are summed column by column.
_FEW_COLUMNS = 16
# Trees are fast up to this number of columns, and up to this share of near sources.
_TREE_COLUMNS, _MAX_LISTED = 3, 0.25
# Squares of larger entries may overflow.
_LARGE = 1e150
# Sources found beyond the k nearest, and a bound of the rounding errors of distances.
_SPARE, _MARGIN = 2, 1 + 1e-12


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
            first, *rest = ((a - b).square_() for a, b in columns)
            # Infinity excludes.
            distance = sum(rest, start=first).clamp_(max=max_square(src.dtype))
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
    *,
    k: int | None = None,
    radius: float = np.inf,
    memory: int = MEMORY_BUDGET,
) -> Iterator[PointBlock]:
    """Yield blocks of clouds with the sources that may be near enough: the k nearest,
    if given, or all up to a radius.

    Points are sorted by cloud. Clouds of similar sizes share a block; of a large one a
    tree lists the sources, if scipy is installed.
    """
    size = 1 + max((int(ids[-1]) for ids in (of_src, of_dst) if len(ids)), default=-1)
    counts = [torch.bincount(ids, minlength=size) for ids in (of_src, of_dst)]
    starts = [count.cumsum(0) - count for count in counts]
    pair = bytes_per_pair(src)
    for clouds in _alike(counts[0], counts[1], memory // pair):
        (source, is_source), (target, is_target) = (
            _dense_numbers(start[clouds], count[clouds])
            for start, count in zip(starts, counts, strict=True)
        )
        parts = source, target, is_source, is_target
        step = memory // (pair * source.size(1) * target.size(1))
        if step > 0:
            for rows in row_blocks(len(clouds), 1, step):
                yield PointBlock(*(part[rows] for part in parts))
            continue
        for one in range(len(clouds)):
            numbers = source[one, is_source[one]], target[one, is_target[one]]
            yield from _one_cloud(src, dst, *numbers, k, radius, memory)


def _alike(sources: Tensor, targets: Tensor, most: int) -> Iterator[Tensor]:
    """Yield clouds of similar sizes together, or all if they have few pairs."""
    clouds = ((sources > 0) & (targets > 0)).nonzero().flatten()
    if clouds.numel() == 0:
        return
    if int(sources.amax() * targets.amax()) * clouds.numel() <= most:
        yield clouds
        return
    width = torch.maximum(sources, targets)[clouds].double().log2().ceil()
    for one in width.unique():
        yield clouds[width == one]


def _dense_numbers(start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of each point of each cloud, and the mask of used places."""
    place = torch.arange(int(count.amax()), device=count.device)
    is_there = place < count.unsqueeze(1)
    return (start.unsqueeze(1) + place) * is_there, is_there


def has_tree(src: Tensor, dst: Tensor) -> bool:
    """Return whether scipy's tree can search the points."""
    if src.device.type != 'cpu' or not 0 < src.size(1) <= _TREE_COLUMNS:
        return False
    is_safe = all(bool((rows.abs() < _LARGE).all()) for rows in (src, dst))
    return is_safe and importlib.util.find_spec('scipy') is not None


def _one_cloud(
    src: Tensor,
    dst: Tensor,
    source: Tensor,
    target: Tensor,
    k: int | None,
    radius: float,
    memory: int,
) -> Iterator[PointBlock]:
    """Yield a large cloud in blocks."""
    num_pairs = memory // bytes_per_pair(src)
    own_src, own_dst = src[source], dst[target]
    if not has_tree(own_src, own_dst):
        for rows in row_blocks(len(target), len(source), num_pairs):
            yield PointBlock.of(source.unsqueeze(0), target[rows].unsqueeze(0))
        return
    search = _TreeSearch(own_src.numpy(), own_dst.numpy(), num_pairs)
    lists = search.inside(radius) if k is None else search.nearest(k)
    for near, some in lists:
        listed = torch.from_numpy(near).sort(dim=1).values
        yield PointBlock.of(source[listed], target[torch.from_numpy(some)])


class _TreeSearch:
    """Search near sources [g, m] of targets [g, n], both by their indices."""

    def __init__(self, src: np.ndarray, dst: np.ndarray, num_pairs: int) -> None:
        from scipy.spatial import cKDTree

        self.tree = cKDTree(src)
        self.dst = dst
        self.num_pairs = num_pairs

    def nearest(self, k: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the k nearest sources and all that tie with the last one."""
        size = min(k + _SPARE, self.tree.n)
        for block in row_blocks(len(self.dst), size, self.num_pairs):
            rows = np.arange(block.start, block.stop)
            distance, source = self.tree.query(self.dst[block], [*range(1, size + 1)])
            reach = distance[:, min(k, size) - 1]
            # More sources may tie if the last one found does.
            is_open = (distance[:, -1] <= reach * _MARGIN) & (size < self.tree.n)
            yield source[~is_open], rows[~is_open, None]
            yield from self._inside(rows[is_open], reach[is_open])

    def inside(self, radius: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all sources inside a radius."""
        every = np.arange(len(self.dst))
        yield from self._inside(every, np.full(len(every), radius))

    def _inside(
        self, rows: np.ndarray, radius: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all sources inside a radius around each target, and some others."""
        count = self.tree.query_ball_point(
            self.dst[rows], radius * _MARGIN, return_length=True
        )
        every, is_wide = np.arange(self.tree.n), count > _MAX_LISTED * self.tree.n
        for block in row_blocks(int(is_wide.sum()), self.tree.n, self.num_pairs):
            yield every[None], rows[is_wide][None, block]
        # Targets of one block have about as many sources.
        order = count.argsort(kind='stable')
        order = order[(count[order] > 0) & ~is_wide[order]]
        most = int(count[order].max(initial=1))
        for block in row_blocks(len(order), most, self.num_pairs):
            own, most = rows[order[block]], int(count[order[block]].max())
            source = self.tree.query(self.dst[own], [*range(1, most + 1)])[1]
            yield source, own[:, None]
