"""Positions of the nodes of a graph, and their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl.typing import PairGraph

# Steps of the layout of a plot.
_NUM_STEPS = 200


def check_one_set(graph: Any) -> None:
    """Raise if the sources of a graph are other nodes than its targets."""
    if isinstance(graph, PairGraph):
        raise ValueError(
            "'graph' must join the nodes of one set (got edges from sources to other "
            "targets): call 'clear_index' on a model with an index, or pass a pair "
            '(edge_index, edge_weight) that numbers the targets after the sources'
        )


def agreed_count(edge_index: Tensor, sizes: Mapping[str, int], minimum: int = 0) -> int:
    """Count the nodes of a graph; raise unless all named sizes agree."""
    num_nodes = max([minimum, maybe_num_nodes(edge_index), *sizes.values()])
    for name, size in sizes.items():
        if size != num_nodes:
            raise ValueError(
                f"'{name}' must have one row per node "
                f'(got {size} for {num_nodes} nodes)'
            )
    if num_nodes == 0:
        raise ValueError("'graph' must have nodes (got none)")
    return num_nodes


def principal_components(x: Tensor) -> Tensor:
    """Project rows on their two principal axes; a missing axis is zero."""
    x = x - x.mean(dim=0)
    if x.numel() == 0:
        return x.new_zeros(x.size(0), 2)
    axes = torch.linalg.svd(x, full_matrices=False).Vh[:2]
    # The sign of an axis is such that its largest entry is positive.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    position = x @ (axes * largest.sign()).t()
    padding = x.new_zeros(x.size(0), 2 - position.size(1))
    return torch.cat([position, padding], dim=1)


def initial_positions(
    pos: Tensor | None, x: Tensor | None, num_nodes: int, seed: int
) -> Tensor:
    """Return the given or initial positions of the nodes."""
    if pos is not None:
        if pos.dim() != 2 or pos.size(1) != 2 or not bool(pos.isfinite().all()):
            raise ValueError(
                "'data.pos' must be finite and have shape [n, 2] "
                f'(got {list(pos.shape)})'
            )
        return pos.detach().cpu()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_nodes, 2, generator=generator, dtype=torch.double)
    if x is None or x.layout != torch.strided or not bool(x.isfinite().all()):
        return noise
    # Equal rows need distinct positions: no force would separate them.
    spread = principal_components(x.double())
    return 0.01 * noise + spread / spread.std().clamp_min(1e-9)


def spring_layout(edge_index: Tensor, num_nodes: int, seed: int) -> Tensor:
    """Lay out some hundreds of nodes with the Fruchterman-Reingold algorithm.

    Each step computes the forces of all pairs. A pull to the centre keeps components
    together, which the layout of NetworkX drives apart.
    """
    generator = torch.Generator().manual_seed(seed)
    position = torch.rand(num_nodes, 2, generator=generator, dtype=torch.double) - 0.5
    # Weights span decades: all pull alike, so that weak edges still gather nodes.
    attraction = torch.zeros(num_nodes, num_nodes, dtype=torch.double)
    ones = torch.ones((), dtype=torch.double)
    attraction.index_put_((edge_index[1], edge_index[0]), ones, accumulate=True)
    attraction = (attraction + attraction.t()).fill_diagonal_(0)
    attraction = attraction / attraction.max().clamp_min(1e-12)
    length = 1 / num_nodes**0.5
    for step in range(_NUM_STEPS):
        delta = position.unsqueeze(1) - position
        distance = delta.norm(dim=-1).clamp_min(0.01 * length)
        force = (length / distance).square() - attraction * distance / length
        move = (force.unsqueeze(-1) * delta).sum(dim=1) - position
        size = move.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        # Steps shrink, so that the layout settles.
        largest = 0.1 * (1 - step / _NUM_STEPS)
        position = position + move / size * size.clamp(max=largest)
    return position
