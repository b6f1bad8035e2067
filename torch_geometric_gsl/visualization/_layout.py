"""Place nodes in the plane."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_NUM_STEPS = 200


def lay_out(
    edge_index: Tensor, nodes: Tensor, pos: Tensor | None, seed: int
) -> tuple[Tensor, dict[str, Any]]:
    """Place the nodes shown; return settings of the axes, too."""
    if pos is None:
        text = 'force-directed layout (no units)'
        place = spring_layout(edge_index, nodes.numel(), seed)
        return place, {'xticks': [], 'yticks': [], 'xlabel': text}
    place = pos.detach().cpu()[nodes].double()
    axis = 'position'
    if place.size(1) != 2:
        place, axis = principal_components(place), 'principal component'
    return place, {'xlabel': f'{axis} 1', 'ylabel': f'{axis} 2'}


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


def spring_layout(edge_index: Tensor, num_nodes: int, seed: int) -> Tensor:
    """Place some hundreds of nodes by the forces of Fruchterman and Reingold.

    Edges attract and nodes repel each other, all pairs in each step. A pull to the
    centre holds parts without edges together.
    """
    generator = torch.Generator().manual_seed(seed)
    position = torch.rand(num_nodes, 2, generator=generator, dtype=torch.double) - 0.5
    # Weights span decades: all pull alike, so that weak edges still gather nodes.
    pull = torch.zeros(num_nodes, num_nodes, dtype=torch.double)
    one = torch.ones((), dtype=torch.double)
    pull.index_put_((edge_index[1], edge_index[0]), one, accumulate=True)
    pull = (pull + pull.t()).fill_diagonal_(0)
    pull = pull / pull.max().clamp_min(1e-12)
    length = 1 / num_nodes**0.5
    for step in range(_NUM_STEPS):
        delta = position.unsqueeze(1) - position
        distance = delta.norm(dim=-1).clamp_min(0.01 * length)
        force = (length / distance).square() - pull * distance / length
        move = (force.unsqueeze(-1) * delta).sum(dim=1) - position
        size = move.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        # Steps shrink, so that the layout settles.
        largest = 0.1 * (1 - step / _NUM_STEPS)
        position = position + move / size * size.clamp(max=largest)
    return position
