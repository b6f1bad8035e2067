"""Check the labels of some nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_index, check_mask, check_value


def chosen_labels(y: Any, mask: Any, out: Tensor) -> Tensor:
    """Return the labels of the chosen nodes, of which there must be one.

    Args:
        y (torch.Tensor): The labels of all nodes; those of others may be any number.
        mask (torch.Tensor): The chosen nodes, as a boolean mask or as indices.
        out (torch.Tensor): The logits of all nodes.
    """
    num_nodes, num_classes = out.shape
    _check_choice(mask, num_nodes)
    check_index(y, 'y', '[num_nodes]', 1, like=out)
    _check_one_per_node(y, 'y', num_nodes)
    labels: Tensor = y[mask]
    low, high = labels.aminmax()
    check_value(
        (low >= 0) & (high < num_classes),
        f"'y' has labels outside 0..{num_classes - 1} where 'mask' chooses",
        got=partial('{}..{}'.format, low, high),
    )
    return labels


def _check_choice(mask: Any, num_nodes: int) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"'mask' must be a torch.Tensor (got {type(mask).__name__})")
    if mask.dtype not in (torch.bool, torch.long):
        raise TypeError(
            f"'mask' must have dtype torch.bool, or torch.int64 for indices "
            f'(got {mask.dtype})'
        )
    if mask.dim() != 1:
        raise ValueError(
            f"'mask' must have shape [num_nodes], or [num_indices] "
            f'(got {list(mask.shape)})'
        )
    check_mask(mask)
    if mask.dtype == torch.bool:
        _check_one_per_node(mask, 'mask', num_nodes)
        return
    low, high = mask.aminmax()
    check_value(
        (low >= 0) & (high < num_nodes),
        f"'mask' has indices outside 0..{num_nodes - 1}",
        got=partial('{}..{}'.format, low, high),
    )
    # Two nodes may be listed in any order, but more of them not by zeros and ones.
    if mask.numel() == num_nodes > 2:
        check_value(
            high > 1,
            "'mask' must have dtype torch.bool where it has a zero or a one per node",
            got=lambda: mask.dtype,
        )


def _check_one_per_node(value: Tensor, name: str, num_nodes: int) -> None:
    if value.numel() != num_nodes:
        raise ValueError(
            f"'{name}' must have one entry per node "
            f'(got {value.numel()} for {num_nodes} nodes)'
        )
