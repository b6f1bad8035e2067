"""Divide the rows of a table into blocks of near rows."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def near_blocks(z: Tensor, size: int, generator: torch.Generator) -> list[Tensor]:
    """Divide rows into blocks of about one size, by a tree of random projections.

    Each node of the tree splits its rows along the difference of two of them, drawn at
    random, so that near rows mostly end in the same block. Returns indices.

    Example:
        >>> z, generator = torch.randn(100, 4), torch.Generator().manual_seed(0)
        >>> [len(block) for block in near_blocks(z, 25, generator)]
        [25, 25, 25, 25]
    """
    blocks = []
    all_rows = torch.arange(z.size(0), device=z.device)
    nodes = [(all_rows, max(1, round(z.size(0) / size)))]
    while nodes:
        rows, num_blocks = nodes.pop()
        if num_blocks == 1:
            blocks.append(rows)
            continue
        keys = z[rows]
        pair = torch.randint(
            len(rows), (2,), generator=generator, device=generator.device
        )
        order = rows[(keys @ (keys[pair[0]] - keys[pair[1]])).argsort(stable=True)]
        num_left = num_blocks // 2
        cut = len(rows) * num_left // num_blocks
        nodes += [(order[cut:], num_blocks - num_left), (order[:cut], num_left)]
    return blocks
