"""What regularizers, by their names, add to the loss of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_number, check_option
from torch_geometric_gsl.ops import regularizers as ops
from torch_geometric_gsl.typing import SampledGraph

Term = Callable[[Tensor, SampledGraph, 'Tensor | None'], Tensor]


def _to_prior(x: Tensor, graph: SampledGraph, edge_index: Tensor | None) -> Tensor:
    if edge_index is None:
        raise ValueError("'edge_index' must be given to the regularizer 'prior'")
    weight = graph.edge_weight.new_ones(edge_index.size(1))
    return ops.kl_to_prior(*graph, edge_index, weight, x.size(0))


#: Each takes the features of a model, one of its graphs, and given edges.
REGULARIZERS: dict[str, Term] = {
    'smoothness': lambda x, graph, _: ops.smoothness(x, *graph),
    'degree': lambda x, graph, _: ops.degree_log_barrier(*graph, x.size(0)),
    'frobenius': lambda x, graph, _: ops.frobenius(*graph, x.size(0)),
    'entropy': lambda x, graph, _: ops.edge_entropy(*graph, x.size(0)),
    'prior': _to_prior,
}
#: The one that takes all graphs of a layer of several relations.
OVERLAP = 'overlap'


def check_regularizers(
    regularizers: Any,
    num_transition_nodes: int | None,
    num_relations: int | None = None,
) -> dict[str, float]:
    """Return the weights of regularizers by their names; raise if they make no sense.

    Args:
        regularizers (dict or None): The weights.
        num_transition_nodes (int or None): The number of transition nodes, if any.
        num_relations (int, optional): The number of relations of each layer.
            (default: :obj:`None`)
    """
    if regularizers is None:
        return {}
    if not isinstance(regularizers, Mapping):
        raise TypeError(
            f"'regularizers' must be a dict (got {type(regularizers).__name__})"
        )
    for name, weight in regularizers.items():
        check_option(name, (*REGULARIZERS, OVERLAP), 'regularizers')
        check_number(weight, f'regularizers[{name!r}]')
    if regularizers and num_transition_nodes is not None:
        raise ValueError(
            "'regularizers' have no meaning with transition nodes "
            f'(got {dict(regularizers)})'
        )
    if OVERLAP in regularizers and num_relations in (None, 1):
        raise ValueError(
            f"'num_relations' must be at least 2 with the regularizer {OVERLAP!r} "
            f'(got {num_relations})'
        )
    return {name: float(weight) for name, weight in regularizers.items()}


def penalty(
    regularizers: dict[str, float],
    x: Tensor,
    graphs: Sequence[SampledGraph | list[SampledGraph]],
    edge_index: Tensor | None,
) -> Tensor:
    """Return the weighted sum of regularizers: means over the nodes and the graphs.

    Args:
        regularizers (dict): The weights by their names.
        x (torch.Tensor): The features of the nodes, dense or sparse CSR.
        graphs (list): The graphs of the layers, or for each those of its relations.
        edge_index (torch.Tensor or None): Given edges.
    """
    drawn = [graph if isinstance(graph, list) else [graph] for graph in graphs]
    terms = [
        weight * _term(name, x, relations, edge_index)
        for relations in drawn
        for name, weight in regularizers.items()
    ]
    return torch.stack(terms).sum() / len(graphs)


def _term(
    name: str, x: Tensor, relations: list[SampledGraph], edge_index: Tensor | None
) -> Tensor:
    """Return a regularizer of the graphs of a layer: a mean over them, but for one."""
    if name == OVERLAP:
        return ops.relation_overlap(relations, x.size(0))
    terms = [REGULARIZERS[name](x, graph, edge_index) for graph in relations]
    return torch.stack(terms).mean()
