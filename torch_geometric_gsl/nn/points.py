r"""Graphs of points: k nearest neighbours, or all points within a radius."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_geometric_gsl._checks import (
    Ends,
    check_count,
    check_ends,
    check_flag,
    check_graph_ids,
    check_positive,
)
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.points import (
    PointBlock,
    bytes_per_pair,
    cloud_blocks,
    has_tree,
)
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, is_exporting, row_blocks
from torch_geometric_gsl.ops.scores import (
    Negative,
    max_square,
    squared_distance,
    unit_rows,
)
from torch_geometric_gsl.ops.search import best_sources, ranked
from torch_geometric_gsl.typing import Batch, Features

# From this number of pairs on, search with bounds.
_BOUNDED = 2**27
# Neighbours searched beyond the k nearest, which may tie with the last.
_SPARE = 8
# Relative error between two ways to compute a distance in double precision.
_ROUNDING = 1e-12


@torch.no_grad()
def knn_graph(
    x: Features,
    k: int,
    batch: Batch | None = None,
    loop: bool = False,
    *,
    cosine: bool = False,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Join each point to its :obj:`k` nearest ones, as PyG's
    :func:`~torch_geometric.nn.pool.knn_graph` does, in pure PyTorch.

    Distances are computed in double precision, and ties go to the lowest index, on
    every device. :func:`torch.export.export` and ONNX support one cloud of at least
    :obj:`k` candidates.

    Args:
        x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The points
            :math:`[N, F]`, or a pair :obj:`(x_src, x_dst)`, which joins each target
            to its nearest sources.
        k (int): The number of neighbours. A point with fewer candidates is joined to
            all of them.
        batch (torch.Tensor or tuple, optional): Sorted ids of the clouds, a pair for a
            pair. (default: :obj:`None`)
        loop (bool, optional): If :obj:`True`, a point is its own candidate. A pair has
            no loops. (default: :obj:`False`)
        cosine (bool, optional): If :obj:`True`, uses the cosine distance.
            (default: :obj:`False`)
        memory_budget (int, optional): Bytes of a block of distances.
            (default: :obj:`2**25`)

    Returns:
        torch.Tensor: The edges :math:`[2, E]` from sources to targets, sorted by
        target, the nearest source first.

    Example:
        >>> x = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> knn_graph(x, k=2)
        tensor([[1, 2, 0, 3, 0, 3, 1, 2],
                [0, 0, 1, 1, 2, 2, 3, 3]])
    """
    check_count(k, 'k')
    check_count(memory_budget, 'memory_budget')
    src, dst, is_pair = nodes = _points(x, loop, cosine)
    has_loops = loop or is_pair
    if is_exporting():
        if batch is not None:
            raise ValueError(
                "'batch' must be None during export: the number of edges depends on "
                'its values (got a batch)'
            )
        return _exported(src, dst, k, has_loops)
    is_large = len(src) * len(dst) >= _BOUNDED and len(src) > 2 * k + _SPARE
    if batch is None and is_large and not has_tree(src, dst):
        return _search(src, dst, k, has_loops, memory_budget)
    return _join(nodes, batch, has_loops, k, math.inf, memory_budget)


@torch.no_grad()
def radius_graph(
    x: Features,
    r: float,
    batch: Batch | None = None,
    loop: bool = False,
    *,
    max_num_neighbors: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Join each point to all points at a distance of at most :obj:`r`, as PyG's
    :func:`~torch_geometric.nn.pool.radius_graph` does, in pure PyTorch.

    Args:
        x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): As in :func:`knn_graph`.
        r (float): The radius, in the unit of the points.
        batch (torch.Tensor or tuple, optional): As in :func:`knn_graph`.
            (default: :obj:`None`)
        loop (bool, optional): As in :func:`knn_graph`. (default: :obj:`False`)
        max_num_neighbors (int, optional): If given, keeps at most this many nearest
            sources per target. (default: :obj:`None`)
        memory_budget (int, optional): Bytes of a block of distances.
            (default: :obj:`2**25`)

    Returns:
        torch.Tensor: The edges, as in :func:`knn_graph`.

    Example:
        >>> radius_graph(torch.tensor([[0.0], [1.0], [3.0]]), r=2.0)
        tensor([[1, 0, 2, 1],
                [0, 1, 1, 2]])
    """
    check_positive(r, 'r')
    if max_num_neighbors is not None:
        check_count(max_num_neighbors, 'max_num_neighbors')
    check_count(memory_budget, 'memory_budget')
    if is_exporting():
        raise ValueError(
            "'radius_graph' cannot be exported by 'torch.export': the number of edges "
            "depends on the values of 'x'; use 'knn_graph'"
        )
    nodes = _points(x, loop, False)
    has_loops = loop or nodes.is_pair
    return _join(nodes, batch, has_loops, max_num_neighbors, r, memory_budget)


def _points(x: Features, loop: bool, cosine: bool) -> Ends:
    """Check points; return sources and targets in double precision."""
    check_flag(loop, 'loop')
    check_flag(cosine, 'cosine')
    src, dst, is_pair = check_ends(x)
    for rows in (src, dst):
        if rows.layout != torch.strided:
            raise ValueError(f"'x' must be dense (got {rows.layout})")
        if rows.size(1) == 0:
            raise ValueError(f"'x' must have columns (got {list(rows.shape)})")
    # Apple's GPUs have no double precision.
    dtype = torch.float32 if src.device.type == 'mps' else torch.float64
    ends = [rows.to(dtype) for rows in ((src, dst) if is_pair else (src,))]
    ends = [*map(unit_rows, ends)] if cosine else ends
    return Ends(ends[0], ends[-1], is_pair)


def _join(
    nodes: Ends,
    batch: Batch | None,
    has_loops: bool,
    k: int | None,
    radius: float,
    memory: int,
) -> Tensor:
    """Join each target to its sources inside a radius, or the k nearest of them."""
    src, dst, _ = nodes
    if batch is None:
        of_src, of_dst = (rows.new_zeros(len(rows)).long() for rows in (src, dst))
    else:
        of_src, of_dst = check_graph_ids(batch, nodes)
    # A point is among its own nearest, with or without loops.
    num_near = None if k is None else k + (not has_loops)
    edges_of_blocks = [torch.empty(2, 0, dtype=torch.long, device=src.device)]
    for block in cloud_blocks(src, dst, of_src, of_dst, num_near, radius, memory):
        distance = block.distances(src, dst, has_loops)
        is_near = distance <= min(radius * radius, max_square(src.dtype))
        if k is None or block.source.size(1) == 1:  # A list of pairs.
            edges = _sorted_edges(block, distance, is_near, k)
        else:
            column = _k_nearest(distance, min(k, distance.size(-1)))
            source = block.source.unsqueeze(1).expand_as(distance).gather(-1, column)
            target = block.target.unsqueeze(2).expand_as(source)
            edges = torch.stack([source, target])[:, is_near.gather(-1, column)]
        edges_of_blocks.append(edges)
    edges = torch.cat(edges_of_blocks, dim=1)
    if bool((edges[1].diff() < 0).any()):
        edges = edges[:, edges[1].argsort(stable=True)]
    return edges


def _sorted_edges(
    block: PointBlock, distance: Tensor, is_near: Tensor, k: int | None
) -> Tensor:
    """Return the edges of near pairs, sorted by target and distance."""
    cloud, row, column = is_near.nonzero(as_tuple=True)
    edges = torch.stack([block.source[cloud, column], block.target[cloud, row]])
    # The bits of positive numbers are in order, and integers are sorted faster.
    bits = torch.int64 if distance.itemsize == 8 else torch.int32
    order = distance[is_near].view(bits).sort(stable=True).indices
    edges = edges[:, order[edges[1, order].sort(stable=True).indices]]
    if k is None:
        return edges
    is_further = torch.zeros_like(edges[1], dtype=torch.bool)
    is_further[k:] = edges[1, k:] == edges[1, :-k]
    return edges[:, ~is_further]


def _k_nearest(distance: Tensor, k: int) -> Tensor:
    """Return the indices of the k smallest distances of each row; the first on ties.

    :func:`torch.topk` leaves the order of ties undefined.
    """
    if is_exporting():
        # ONNX has no stable sort: count the smaller values of each.
        index = _k_nearest_by_index(distance, k)
        value = distance.gather(-1, index)
        row, column = value.unsqueeze(-1), value.unsqueeze(-2)
        is_before = (column < row) | (column == row).tril(-1)
        return torch.zeros_like(index).scatter(-1, is_before.sum(dim=-1), index)
    if k == distance.size(-1):
        return distance.sort(dim=-1, stable=True).indices
    value, index = distance.topk(k + 1, largest=False)
    index = index[..., :k].sort(dim=-1).values
    is_tied = value[..., k] == value[..., k - 1]
    index[is_tied] = _k_nearest_by_index(distance[is_tied], k)
    order = distance.gather(-1, index).sort(dim=-1, stable=True).indices
    return index.gather(-1, order)


def _k_nearest_by_index(distance: Tensor, k: int) -> Tensor:
    """Return the same indices in ascending order, by two calls of `torch.topk`."""
    last = distance.topk(k, largest=False).values[..., -1:]
    is_before, is_tied = distance < last, distance == last
    missing = k - is_before.sum(dim=-1, keepdim=True)
    is_nearest = is_before | (is_tied & (is_tied.cumsum(dim=-1) <= missing))
    size = distance.size(-1)
    rank = torch.arange(size, 0, -1, device=distance.device)
    return size - (rank * is_nearest).topk(k).values


def _exported(src: Tensor, dst: Tensor, k: int, has_loops: bool) -> Tensor:
    """Return the k edges of each target of one cloud."""
    distance = squared_distance(dst.unsqueeze(1), src)
    target = torch.arange(dst.size(0), device=dst.device).unsqueeze(1)
    if not has_loops:
        distance = distance.masked_fill(target == target.T, torch.inf)
    source = _k_nearest(distance, k)
    return torch.stack([source, target.expand_as(source)]).flatten(1)


def _search(
    src: Tensor, dst: Tensor, k: int, has_loops: bool, memory_budget: int
) -> Tensor:
    """Search many pairs using bounds, then break ties."""
    pairs = PairScores(dst, src, Negative(), 'squared_distance', memory=memory_budget)
    target = torch.arange(len(dst), device=dst.device)
    if not has_loops:
        pairs = pairs._replace(excluded=target)
    source, score = ranked(pairs, best_sources(pairs, k + _SPARE))
    source = source[:, :k]
    # More sources may tie with the last one of the k nearest if the last one does.
    is_open = score[:, -1] >= score[:, k - 1] * (1 + _ROUNDING)
    open_rows = is_open.nonzero().squeeze(1)
    all_sources = torch.arange(len(src), device=src.device).unsqueeze(0)
    bytes_per_row = bytes_per_pair(src) * len(src)
    for rows in row_blocks(len(open_rows), bytes_per_row, memory_budget):
        block = PointBlock.of(all_sources, open_rows[rows].unsqueeze(0))
        source[open_rows[rows]] = _k_nearest(block.distances(src, dst, has_loops), k)[0]
    return torch.stack([source, target.unsqueeze(1).expand_as(source)]).flatten(1)
