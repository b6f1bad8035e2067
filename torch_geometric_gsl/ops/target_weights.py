r"""Weights of the edges of each target: checks, sums and shares."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import coalesce, scatter

from torch_geometric_gsl._checks import (
    check_count,
    check_edge_index,
    check_finite,
    check_option,
    check_value,
)
from torch_geometric_gsl.ops.runtime import full_precision
from torch_geometric_gsl.typing import plain_edges

#: How one value per target becomes a result.
REDUCTIONS = ('mean', 'sum', 'none')


def check_weighted_edges(
    edge_index: Tensor,
    edge_weight: Tensor,
    num_nodes: int,
    reduction: str,
    prefix: str = '',
    is_share: bool = False,
) -> Tensor:
    """Raise unless edges join existing nodes; return weights to compute with."""
    check_option(reduction, REDUCTIONS, 'reduction')
    check_count(num_nodes, 'num_nodes')
    name = f'{prefix}edge_weight'
    if not isinstance(edge_weight, Tensor) or not edge_weight.is_floating_point():
        raise TypeError(
            f"'{name}' must be a floating-point torch.Tensor "
            f'(got {getattr(edge_weight, "dtype", type(edge_weight).__name__)})'
        )
    nodes = edge_weight.new_empty(num_nodes, 0)
    check_edge_index(edge_index, nodes, nodes, f'{prefix}edge_index')
    if edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"'{name}' must have one entry per edge "
            f'(got {list(edge_weight.shape)} for {edge_index.size(1)} edges)'
        )
    check_finite(edge_weight, name)
    if is_share and edge_weight.numel():
        is_valid = (edge_weight >= 0).all()
        check_value(is_valid, f"'{name}' must not be negative", got=edge_weight.min)
    return full_precision(edge_weight)


def reduce_targets(value: Tensor, reduction: str) -> Tensor:
    """Reduce one value per target."""
    if reduction == 'none':
        return value
    return value.mean() if reduction == 'mean' else value.sum()


def merge_edges(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int
) -> tuple[Tensor, Tensor]:
    """Return one edge per pair of nodes, sorted by target and then by source."""
    merged: tuple[Tensor, Tensor] = coalesce(
        plain_edges(edge_index), edge_weight, num_nodes=num_nodes, sort_by_row=False
    )
    return merged


def target_shares(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return edges, their weights divided by the sums of targets, and logarithms.

    Edges of weight zero, or of one below the normal numbers of its type, are left out.
    """
    edge_index, edge_weight = merge_edges(edge_index, edge_weight, num_nodes)
    # The derivative of p log p has no limit at 0, and overflows below normal numbers.
    keep = edge_weight.detach() >= torch.finfo(edge_weight.dtype).tiny
    edge_index, edge_weight = edge_index[:, keep], edge_weight[keep]
    target, weight = edge_index[1], edge_weight.detach()
    # No sum overflows where the largest is one. A share may vanish, its logarithm not.
    largest = scatter(weight, target, 0, num_nodes, reduce='max')
    scaled = edge_weight / largest[target]
    total = scatter(scaled, target, 0, num_nodes)
    log_total = total.log() + largest.log()
    return edge_index, scaled / total[target], edge_weight.log() - log_total[target]
