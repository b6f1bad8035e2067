r"""Regularizers of a weighted graph, in memory linear in its nodes and edges.

Each takes the edges :obj:`edge_index` :math:`[2, |E|]` from sources to targets, their
weights :obj:`edge_weight` :math:`[|E|]` and the number of nodes :obj:`num_nodes`,
:math:`n`. :math:`A_{ij}` is the weight of the edge from :math:`j` to :math:`i`, or the
sum of the weights if that edge is listed more than once.

A regularizer has one term per target, and :obj:`reduction` is :obj:`"mean"` over the
nodes (the default: a factor in a loss does not depend on the size of the graph),
:obj:`"sum"`, or :obj:`"none"` for all terms. Half-precision weights are summed in
:obj:`torch.float32`, and so is the result. Time is linear for the degrees, else
:math:`O(|E| \log |E|)`, as edges are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from torch_geometric_gsl._checks import (
    check_count,
    check_edge_index,
    check_edge_weight,
    check_features,
    check_number,
    check_option,
    check_positive,
    check_type,
)
from torch_geometric_gsl.ops.edges import find_sorted, merge_edges
from torch_geometric_gsl.ops.neighbours import Neighbours
from torch_geometric_gsl.ops.pair_scores import PairScores
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET, full_dtype, full_precision
from torch_geometric_gsl.ops.scores import Identity
from torch_geometric_gsl.ops.sparse_rows import SparseRows

#: How one value per target becomes a result.
REDUCTIONS = ('mean', 'sum', 'none')


def smoothness(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor,
    *,
    reduction: str = 'mean',
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Compute the Dirichlet energy: small if strong edges join similar nodes.

    .. math::
        \frac{1}{2} \sum_j A_{ij} \lVert x_i - x_j \rVert^2

    for each target :math:`i`. The sum over :math:`i` is
    :math:`\mathrm{tr}(X^{\top} L X)` with the Laplacian :math:`L` of
    :math:`(A + A^{\top}) / 2`. Features :math:`[n, d]` are dense or sparse CSR; no
    gradient flows to sparse ones. A block of edges takes :obj:`memory_budget` bytes.

    Example:
        >>> x, edge_index = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[1, 2],
        ...                                                                    [0, 1]])
        >>> smoothness(x, edge_index, torch.tensor([1.0, 0.5]), reduction='none')
        tensor([0.5000, 1.0000, 0.0000])
    """
    check_features(x)
    weight = _check_edges(edge_index, edge_weight, x.size(0), reduction)
    distance = _edge_distances(x, edge_index, memory_budget)
    term = 0.5 * weight * distance.to(weight.dtype)
    return _reduce(scatter(term, edge_index[1], 0, x.size(0)), reduction)


def degree_log_barrier(
    edge_index: Tensor,
    edge_weight: Tensor,
    num_nodes: int,
    *,
    eps: float = 1e-12,
    reduction: str = 'mean',
) -> Tensor:
    r"""Compute the logarithmic barrier of degrees, which penalises isolated nodes.

    .. math::
        - \log ( d_i + \epsilon ), \qquad d_i = \sum_j A_{ij}

    Weights are not negative; :math:`\epsilon` keeps the barrier of nodes without edges
    finite.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
        >>> weight = torch.tensor([0.25, 0.75, 1.0])
        >>> degree_log_barrier(edge_index, weight, num_nodes=2).abs()
        tensor(0.)
    """
    check_positive(eps, 'eps')
    weight = _check_edges(edge_index, edge_weight, num_nodes, reduction, is_share=True)
    degree = scatter(weight, edge_index[1], 0, num_nodes)
    return _reduce(-(degree + eps).log(), reduction)


def frobenius(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int, *, reduction: str = 'mean'
) -> Tensor:
    r"""Compute the squared Frobenius norm: small if no weight is large.

    .. math::
        \sum_j A_{ij}^2

    for each target :math:`i`; the sum over :math:`i` is
    :math:`\lVert A \rVert_F^2`.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
        >>> weight = torch.tensor([3.0, 4.0, 1.0])
        >>> frobenius(edge_index, weight, num_nodes=2, reduction='none')
        tensor([25.,  1.])
    """
    weight = _check_edges(edge_index, edge_weight, num_nodes, reduction)
    edge_index, weight = merge_edges(edge_index, weight, num_nodes)
    total = scatter(weight.square(), edge_index[1], 0, num_nodes)
    return _reduce(total, reduction)


def edge_entropy(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int, *, reduction: str = 'mean'
) -> Tensor:
    r"""Compute the entropy of each target's weights: small if one of them dominates.

    .. math::
        - \sum_j p_{ij} \log p_{ij}, \qquad p_{ij} = \frac{A_{ij}}{\sum_l A_{il}}

    in nats. Weights must be non-negative. Edges of weight zero, or below
    :obj:`torch.finfo(dtype).tiny`, are ignored and get no gradient. Nodes without edges
    have entropy 0.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
        >>> weight = torch.tensor([0.5, 0.5, 2.0])
        >>> edge_entropy(edge_index, weight, num_nodes=2, reduction='none')
        tensor([0.6931, 0.0000])
    """
    weight = _check_edges(edge_index, edge_weight, num_nodes, reduction, is_share=True)
    edge_index, share, log_share = _shares(edge_index, weight, num_nodes)
    entropy = scatter(-share * log_share, edge_index[1], 0, num_nodes)
    return _reduce(entropy, reduction)


def kl_to_prior(
    edge_index: Tensor,
    edge_weight: Tensor,
    prior_edge_index: Tensor,
    prior_edge_weight: Tensor,
    num_nodes: int,
    *,
    eps: float = 0.01,
    reduction: str = 'mean',
) -> Tensor:
    r"""Compute the KL divergence of each target's weights from those of a prior graph.

    .. math::
        \sum_j p_{ij} \log \frac{p_{ij}}{q_{ij}}, \qquad
        q_{ij} = (1 - \epsilon) \, r_{ij} + \frac{\epsilon}{n}

    where :math:`p_i` and :math:`r_i` are the weights of target :math:`i` in the graph
    and in the prior graph, divided by their sums. An edge missing in the prior graph
    therefore costs a finite :math:`\log (p_{ij} n / \epsilon)`, and targets without
    prior edges have the prior :math:`q_{ij} = 1 / n`. Weights are treated as in
    :func:`edge_entropy`; nodes without edges have divergence 0.

    Example:
        >>> edge_index, weight = torch.tensor([[0, 1], [0, 0]]), torch.tensor([1., 3.])
        >>> kl_to_prior(edge_index, weight, edge_index, 2 * weight, 2, eps=1e-6) < 1e-6
        tensor(True)
    """
    check_number(eps, 'eps')
    if not 0 < eps <= 1:
        raise ValueError(f"'eps' must lie in (0, 1] (got {eps})")
    weight = _check_edges(edge_index, edge_weight, num_nodes, reduction, is_share=True)
    prior_weight = _check_edges(
        prior_edge_index, prior_edge_weight, num_nodes, reduction, 'prior_', True
    )
    edge_index, share, log_share = _shares(edge_index, weight, num_nodes)
    prior_weight = prior_weight.to(weight.dtype)
    prior_index, prior, _ = _shares(prior_edge_index, prior_weight, num_nodes)
    has_prior = torch.bincount(prior_index[1], minlength=num_nodes) > 0
    # Both lists are sorted by target, then by source.
    key, known = (i[1] * num_nodes + i[0] for i in (edge_index, prior_index))
    place, is_found = find_sorted(key, known)
    mass = torch.cat([prior, prior.new_zeros(1)])[place] * is_found
    spread = 1 - (1 - eps) * has_prior[edge_index[1]].to(mass.dtype)
    log_ratio = log_share - ((1 - eps) * mass + spread / num_nodes).log()
    divergence = scatter(share * log_ratio, edge_index[1], 0, num_nodes)
    return _reduce(divergence, reduction)


def relation_overlap(
    graphs: Sequence[tuple[Tensor, Tensor]], num_nodes: int, *, reduction: str = 'mean'
) -> Tensor:
    r"""Compute the overlap of several graphs: small if no two of them share neighbours.

    .. math::
        \frac{2}{R (R - 1)} \sum_{r < s} \frac{\sum_j A^{(r)}_{ij} A^{(s)}_{ij}}
        {\lVert A^{(r)}_i \rVert \lVert A^{(s)}_i \rVert}

    for each target :math:`i`: the mean cosine between its weights in two of the
    :math:`R` graphs. It lies in :math:`[0, 1]`; graphs in which a target has no edges
    add nothing to its sum. The pairs :obj:`graphs` hold the edges and the weights, not
    negative, of at least two graphs.

    Example:
        >>> first = torch.tensor([[0, 1, 0], [0, 0, 1]]), torch.tensor([3.0, 4.0, 1.0])
        >>> second = torch.tensor([[0, 1], [0, 1]]), torch.ones(2)
        >>> relation_overlap([first, second], num_nodes=2, reduction='none')
        tensor([0.6000, 0.0000])
    """
    if len(graphs) < 2:
        raise ValueError(f"'graphs' must hold at least two graphs (got {len(graphs)})")
    units = [
        _unit_weights(edge_index, edge_weight, num_nodes, reduction)
        for edge_index, edge_weight in graphs
    ]
    square = torch.stack(
        [scatter(weight.square(), edges[1], 0, num_nodes) for edges, weight in units]
    )
    edges, weight = (torch.cat(parts, dim=-1) for parts in zip(*units, strict=True))
    edges, weight = merge_edges(edges, weight, num_nodes)
    # The square of a sum has each product of two twice, and all squares.
    products = scatter(weight.square(), edges[1], 0, num_nodes) - square.sum(dim=0)
    return _reduce(products / (len(graphs) * (len(graphs) - 1)), reduction)


def _unit_weights(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int, reduction: str
) -> tuple[Tensor, Tensor]:
    """Return edges whose weights have the norm 1 for each target that has some."""
    weight = _check_edges(edge_index, edge_weight, num_nodes, reduction, is_share=True)
    edge_index, weight = merge_edges(edge_index, weight, num_nodes)
    largest = scatter(weight.detach(), edge_index[1], 0, num_nodes, reduce='max')
    # Zero weights have no direction: their targets get no gradient.
    keep = (largest > 0)[edge_index[1]]
    edge_index, weight = edge_index[:, keep], weight[keep]
    target = edge_index[1]
    # With a largest weight of one no square overflows.
    weight = weight / largest.clamp(min=torch.finfo(weight.dtype).tiny)[target]
    norm = scatter(weight.square(), target, 0, num_nodes).sqrt()
    return edge_index, weight / norm[target]


def _edge_distances(x: Tensor, edge_index: Tensor, memory_budget: int) -> Tensor:
    """Compute the squared distance between the ends of each edge."""
    if x.layout == torch.strided:
        x = full_precision(x)
        pairs = PairScores(x, x, Identity(), 'squared_distance', memory=memory_budget)
        return pairs.compare_edges(edge_index)
    # Expanded in double precision: float32 would lose small distances.
    words = Neighbours(x.col_indices(), x.size(1), x.crow_indices())
    rows: Any = SparseRows(x.values().detach().double(), words)
    square = rows.new_zeros(x.size(0))
    square.index_add_(0, words.target.long(), rows.value.square())
    pairs = PairScores(rows, rows, Identity(), memory=memory_budget)
    product = pairs.compare_edges(edge_index)
    distance: Tensor = square[edge_index].sum(dim=0) - 2 * product
    return distance.clamp_(min=0).to(full_dtype(x.dtype))


def _check_edges(
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
    check_type(edge_index, Tensor, f'{prefix}edge_index', 'a torch.Tensor')
    nodes = edge_index.new_empty(num_nodes, 0)
    check_edge_index(edge_index, nodes, nodes, f'{prefix}edge_index')
    name = f'{prefix}edge_weight'
    check_edge_weight(edge_weight, edge_index, nodes, name, is_signed=not is_share)
    return full_precision(edge_weight)


def _reduce(value: Tensor, reduction: str) -> Tensor:
    """Reduce one value per target."""
    if reduction == 'none':
        return value
    return value.mean() if reduction == 'mean' else value.sum()


def _shares(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return edges, their weights normalised per target, and the logarithms.

    Edges of weight zero, or of one below the normal numbers of its type, are left out.
    """
    edge_index, edge_weight = merge_edges(edge_index, edge_weight, num_nodes)
    # The derivative of p log p has no limit at 0, and overflows below normal numbers.
    keep = edge_weight.detach() >= torch.finfo(edge_weight.dtype).tiny
    edge_index, edge_weight = edge_index[:, keep], edge_weight[keep]
    target, weight = edge_index[1], edge_weight.detach()
    # With a largest weight of one no sum overflows. Only shares may underflow.
    largest = scatter(weight, target, 0, num_nodes, reduce='max')
    scaled = edge_weight / largest[target]
    total = scatter(scaled, target, 0, num_nodes)
    log_total = total.log() + largest.log()
    return edge_index, scaled / total[target], edge_weight.log() - log_total[target]
