r"""Blocks of near points in few columns: boxes exclude distant points, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, row_blocks
from torch_geometric_gsl.ops.scores import (
    max_square,
    squared_distance,
    squared_distance_matrix,
)

# Distances of up to this many columns are summed column by column.
_FEW_COLUMNS = 16
# Boxes pay from this number of pairs on, and up to this number of columns.
_BOXED, _BOXED_COLUMNS = 2**22, 3
# The points per box, and the number of near boxes that bound the distances.
_SIZE, _FIRST = 32, 8
# With more near boxes per box, targets are searched one by one.
_WIDE = 16
# Targets of one block.
_TOGETHER = 512


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


def are_boxed(src: Tensor, dst: Tensor, k: int) -> bool:
    """Return whether boxes find the :obj:`k` nearest faster than all pairs."""
    if src.device.type != 'cpu' or not 0 < src.size(1) <= _BOXED_COLUMNS:
        return False
    return len(src) * len(dst) >= _BOXED and len(src) >= 4 * k


class _Boxes(NamedTuple):
    """Points by boxes of one size, padded with -1, and the sides of the boxes."""

    point: Tensor  # [B, s]
    low: Tensor  # [B, F]
    high: Tensor

    @property
    def middle(self) -> Tensor:
        return (self.low + self.high) / 2

    def take(self, rows: slice | Tensor) -> _Boxes:
        return _Boxes(*(each[rows] for each in self))


class Near(NamedTuple):
    """Definition of near sources: the k nearest, or all up to a squared distance."""

    k: int | None = None
    square: float = math.inf
    memory: int = MEMORY_BUDGET  # Bytes of a block.


def cloud_blocks(
    src: Tensor, dst: Tensor, of_src: Tensor, of_dst: Tensor, near: Near
) -> Iterator[PointBlock]:
    """Yield blocks of clouds with the sources that may be near enough.

    Points are sorted by cloud. Clouds of similar sizes share a block; one that is too
    large for a block is split by rows or boxes.
    """
    size = 1 + max((int(ids[-1]) for ids in (of_src, of_dst) if len(ids)), default=-1)
    counts = [torch.bincount(ids, minlength=size) for ids in (of_src, of_dst)]
    starts = [count.cumsum(0) - count for count in counts]
    pair = bytes_per_pair(src)
    for clouds in _alike(counts[0], counts[1], near.memory // pair):
        (source, is_source), (target, is_target) = (
            _dense_numbers(start[clouds], count[clouds])
            for start, count in zip(starts, counts, strict=True)
        )
        parts = source, target, is_source, is_target
        step = near.memory // (pair * source.size(1) * target.size(1))
        if step > 0:
            for rows in row_blocks(len(clouds), 1, step):
                yield PointBlock(*(part[rows] for part in parts))
            continue
        for one in range(len(clouds)):
            numbers = source[one, is_source[one]], target[one, is_target[one]]
            yield from _one_cloud(src, dst, *numbers, near)


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


def _one_cloud(
    src: Tensor, dst: Tensor, source: Tensor, target: Tensor, near: Near
) -> Iterator[PointBlock]:
    """Yield a large cloud in blocks."""
    own_src = src[source]
    own_dst = own_src if dst is src else dst[target]
    if are_boxed(own_src, own_dst, near.k or 1):
        for own in box_blocks(own_src, own_dst, near):
            numbers = source[own.source], target[own.target]
            yield PointBlock(*numbers, own.is_source, own.is_target)
        return
    bytes_per_row = bytes_per_pair(src) * len(source)
    for rows in row_blocks(len(target), bytes_per_row, near.memory):
        yield PointBlock.of(source.unsqueeze(0), target[rows].unsqueeze(0))


def box_blocks(src: Tensor, dst: Tensor, near: Near) -> Iterator[PointBlock]:
    r"""Yield blocks of targets with all sources that may be near enough.

    Ties with the nearest are near, too. Points are split into boxes at medians. A
    distance to a box is computed like one to a point: rounding keeps the order, so that
    bounds need no margin.
    """
    k, square, memory = near
    sources = _cut_points(src)
    targets = sources if dst is src else _cut_points(dst)
    size = sources.point.size(1)
    first = 1 if k is None else min(len(sources.point), max(_FIRST, -(-4 * k // size)))
    bytes_per_row = bytes_per_pair(src) * max(
        targets.point.size(1) * first * size, len(sources.point)
    )
    for rows in row_blocks(len(targets.point), bytes_per_row, memory):
        own = targets.take(rows)
        if k is None:
            reach = src.new_full((len(own.point), 1), square)
            yield from _near_blocks(own, reach, sources, src, memory)
            continue
        far = squared_distance_matrix(own.middle, sources.middle)
        best = far.nan_to_num(torch.inf).topk(first, largest=False).indices
        block = PointBlock.of(sources.point[best].flatten(1), own.point)
        distance = block.distances(src, dst).kthvalue(k, dim=2).values
        distance = distance.masked_fill(~block.is_target, 0)
        reach = distance.amax(dim=1, keepdim=True)
        is_near = _gap(own, sources.low, sources.high) <= reach
        is_wide = is_near.sum(dim=1) > _WIDE * first
        narrow = own.take(~is_wide), reach[~is_wide]
        yield from _near_blocks(*narrow, sources, src, memory)
        is_single = is_wide.unsqueeze(1) & block.is_target
        point = own.point[is_single]
        single = _Boxes(point.unsqueeze(1), dst[point], dst[point])
        reach = distance[is_single].unsqueeze(1)
        yield from _near_blocks(single, reach, sources, src, memory)


def _near_blocks(
    own: _Boxes, reach: Tensor, sources: _Boxes, src: Tensor, memory: int
) -> Iterator[PointBlock]:
    """Yield blocks of boxes with the sources within their reach [b, 1]."""
    pair, size = bytes_per_pair(src), sources.point.size(1)
    for rows in row_blocks(len(own.point), pair * len(sources.point), memory):
        part, most = own.take(rows), reach[rows]
        is_near = _gap(part, sources.low, sources.high) <= most
        bytes_per_row = pair * size * int(is_near.sum(dim=1).amax())
        for some in row_blocks(len(is_near), bytes_per_row, memory):
            number, box = is_near[some].nonzero().unbind(1)
            group, listed = part.take(some), sources.point[box]
            gap = _gap(group.take(number), src[listed], src[listed])
            is_kept = (gap <= most[some][number]) & (listed >= 0)
            key = (number.unsqueeze(1) * len(src) + listed)[is_kept]
            key = key.sort().values  # Sources in ascending order.
            source, is_source = to_dense_batch(
                key % len(src), key // len(src), batch_size=len(group.point)
            )
            yield from _blocks(source, is_source, group.point, pair, memory)


def _gap(own: _Boxes, low: Tensor, high: Tensor) -> Tensor:
    """Return the squared distances [b, n] from boxes to others [n, F] or [b, n, F]."""
    total = low.new_zeros(())
    for column in range(low.size(-1)):
        first, last = own.low[:, column, None], own.high[:, column, None]
        gap = torch.maximum(low[..., column] - last, first - high[..., column])
        total = total + gap.clamp_(min=0).square_()
    return total.clamp_(max=max_square(low.dtype))


def _cut_points(x: Tensor) -> _Boxes:
    """Halve points at the median of the widest side until about 32 are left."""
    num, depth = len(x), max(0, math.ceil(math.log2(len(x) / _SIZE)))
    order = torch.full((1, -(-num // 2**depth) * 2**depth), -1, device=x.device)
    order[0, :num] = torch.arange(num, device=x.device)
    x = torch.cat([x, x.new_full((1, x.size(1)), torch.inf)])  # Index -1.
    for _ in range(depth):
        widest = (_high(x[order]) - x[order].amin(dim=1)).argmax(dim=1)
        along = x[order, widest.unsqueeze(1)]
        order = order.gather(1, along.argsort(dim=1)).view(2 * len(order), -1)
    return _Boxes(order, x[order].amin(dim=1), _high(x[order]))


def _high(rows: Tensor) -> Tensor:
    return rows.masked_fill(rows.isinf(), -torch.inf).amax(dim=1)


def _blocks(
    source: Tensor, is_source: Tensor, target: Tensor, pair: int, memory: int
) -> Iterator[PointBlock]:
    """Split a block to fit the memory budget, grouping boxes by number of sources."""
    count = is_source.sum(dim=1)
    most = memory // max(1, pair * source.size(1) * target.size(1))
    step = max(1, min(_TOGETHER // target.size(1), most))
    for box in count.argsort().split(step):
        width = int(count[box].amax())
        near, is_near, own = source[box, :width], is_source[box, :width], target[box]
        for rows in row_blocks(own.size(1), pair * near.numel(), memory):
            yield PointBlock(near, own[:, rows], is_near, own[:, rows] >= 0)
