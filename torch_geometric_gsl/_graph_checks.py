"""Checks of a weighted graph and of its labels."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import check_finite, check_index, check_value
from torch_geometric_gsl.typing import SampledGraph


def check_graph(graph: Any) -> SampledGraph:
    """Raise unless weights are finite and not negative; drop their gradient."""
    if not isinstance(graph, tuple | list) or len(graph) != 2:
        raise TypeError(
            f"'graph' must be a SampledGraph or a pair (edge_index, edge_weight) "
            f'(got {type(graph).__name__})'
        )
    edge_index, weight = graph
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(
            f"'edge_weight' must be a floating-point torch.Tensor "
            f'(got {getattr(weight, "dtype", type(weight).__name__)})'
        )
    check_index(edge_index, 'edge_index', '[2, num_edges]', 2, like=weight)
    if weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"'edge_weight' must have one entry per edge "
            f'(got {list(weight.shape)} for {edge_index.size(1)} edges)'
        )
    check_finite(weight, 'edge_weight')
    for value, name in ((weight, 'edge_weight'), (edge_index, 'edge_index')):
        check_value((value >= 0).all(), f"'{name}' must not be negative", got=value.min)
    return SampledGraph(edge_index, weight.detach())


def num_targets(graph: SampledGraph) -> int:
    """Count the targets up to the last that has an edge."""
    return maybe_num_nodes(graph.edge_index[1])


def check_node_labels(y: Any, graph: SampledGraph) -> tuple[Tensor, Tensor]:
    """Return labels of sources and of targets, one tensor twice for one set."""
    pair = tuple(y) if isinstance(y, tuple | list) else (y, y)
    if len(pair) != 2:
        raise ValueError(
            f"'y' must be a tensor or a pair (y_src, y_dst) (got {len(pair)})"
        )
    for labels, index, what in zip(
        pair, graph.edge_index, ('source', 'target'), strict=True
    ):
        if not isinstance(labels, Tensor) or labels.is_floating_point():
            raise TypeError(
                f"'y' must be an integer torch.Tensor "
                f'(got {getattr(labels, "dtype", type(labels).__name__)})'
            )
        if labels.dim() != 1:
            raise ValueError(
                f"'y' must have shape [num_nodes] (got {list(labels.shape)})"
            )
        if index.numel() and int(index.max()) >= labels.numel():
            raise ValueError(
                f"'y' must have one label per node (got {labels.numel()}, but 'graph' "
                f'has {what} {int(index.max())})'
            )
    return pair
