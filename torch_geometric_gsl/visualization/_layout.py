"""Place nodes in the plane."""

from __future__ import annotations

import torch
from torch import Tensor


def principal_components(x: Tensor) -> Tensor:
    r"""Project rows on their two principal axes; a missing axis is zero.

    The sign of an axis is such that its largest entry is positive.

    Args:
        x (torch.Tensor): Rows :math:`[n, d]`.

    Returns:
        torch.Tensor: Positions :math:`[n, 2]`.

    Example:
        >>> principal_components(torch.tensor([[0.0, 3.0], [0.0, -3.0]])).abs()
        tensor([[3., 0.],
                [3., 0.]])
    """
    x = x - x.mean(dim=0)
    if x.numel() == 0:
        return x.new_zeros(x.size(0), 2)
    axes = torch.linalg.svd(x, full_matrices=False).Vh[:2]
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    position = x @ (axes * largest.sign()).t()
    padding = x.new_zeros(x.size(0), 2 - position.size(1))
    return torch.cat([position, padding], dim=1)


def spring_layout(
    edge_index: Tensor,
    weight: Tensor,
    num_nodes: int,
    *,
    seed: int = 0,
    num_steps: int = 200,
) -> Tensor:
    r"""Lay out nodes by forces: edges attract, nodes repel each other.

    All pairs of nodes meet in each step, so use it for some hundreds of nodes. The
    forces are those of Fruchterman and Reingold, with a pull to the centre that holds
    parts without edges together.

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        weight (torch.Tensor): The weights :math:`[|E|]`.
        num_nodes (int): The number of nodes.
        seed (int, optional): The seed of the first positions.
            (default: :obj:`0`)
        num_steps (int, optional): The number of steps. (default: :obj:`200`)

    Returns:
        torch.Tensor: Positions :math:`[n, 2]` on the CPU.

    Example:
        >>> edge_index = torch.tensor([[0, 1], [1, 2]])
        >>> spring_layout(edge_index, torch.ones(2), num_nodes=4).shape
        torch.Size([4, 2])
    """
    generator = torch.Generator().manual_seed(seed)
    position = torch.rand(num_nodes, 2, generator=generator, dtype=torch.double) - 0.5
    pull = torch.zeros(num_nodes, num_nodes, dtype=torch.double)
    source, target = edge_index.detach().cpu()
    pull.index_put_((target, source), weight.detach().cpu().double(), accumulate=True)
    pull = (pull + pull.t()).fill_diagonal_(0)
    pull = pull / pull.max().clamp_min(1e-12) if pull.numel() else pull
    length = 1 / max(num_nodes, 1) ** 0.5
    for step in range(num_steps):
        delta = position.unsqueeze(1) - position
        distance = delta.norm(dim=-1).clamp_min(0.01 * length)
        force = (length / distance).square() - pull * distance / length
        move = (force.unsqueeze(-1) * delta).sum(dim=1) - position
        size = move.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        # Steps shrink, so that the layout settles.
        largest = 0.1 * (1 - step / num_steps)
        position = position + move / size * size.clamp(max=largest)
    return position
