"""Add random edges to given graphs, or remove some."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected


def sort_pairs(edge_index: Tensor) -> Tensor:
    """Return undirected edges once each, smaller node first, without self-loops."""
    edges, _ = remove_self_loops(edge_index)
    pairs: Tensor = coalesce(torch.stack([edges.amin(dim=0), edges.amax(dim=0)]))
    return pairs


def changed(pairs: Tensor, num_nodes: int, percent: int, seed: int) -> Tensor:
    """Add random pairs, or remove some at random.

    Args:
        pairs: Pairs as :func:`sort_pairs` returns them.
        num_nodes: The number of nodes.
        percent: Added pairs, or removed ones if negative, in percent of all pairs.
        seed: Seed of the choice, which does not use the global random state.
    """
    number = round(pairs.size(1) * abs(percent) / 100)
    generator = torch.Generator().manual_seed(seed)
    if percent < 0:
        order = torch.randperm(pairs.size(1), generator=generator)
        return pairs[:, order[number:].sort().values]
    most = num_nodes * (num_nodes - 1) // 2 - pairs.size(1)
    if number > most:
        raise ValueError(f"'percent' must add at most {most} pairs (got {number})")
    codes = pairs[0] * num_nodes + pairs[1]
    while (missing := pairs.size(1) + number - codes.numel()) > 0:
        drawn = torch.randint(num_nodes, (2, missing), generator=generator)
        drawn = sort_pairs(drawn)
        codes = torch.cat([codes, drawn[0] * num_nodes + drawn[1]]).unique()
    return torch.stack([codes // num_nodes, codes % num_nodes])


def both_ways(pairs: Tensor, num_nodes: int) -> Tensor:
    """Return the edges of pairs, in both directions, sorted by target."""
    edge_index: Tensor = to_undirected(pairs, num_nodes=num_nodes)
    return edge_index.flip(0)
