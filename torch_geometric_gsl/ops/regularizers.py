r"""Regularizers of a weighted graph, in memory linear in its nodes and edges.

An edge runs from the source :obj:`edge_index[0]` to the target :obj:`edge_index[1]`.
:math:`A_{ij}` is the weight of the edge from :math:`j` to :math:`i`, or the sum of the
weights if that edge is listed more than once. Each regularizer is a sum of one term per
target; the default is its mean over all nodes, so that its factor in a loss does not
depend on the size of the graph. Half-precision weights are summed in
:obj:`torch.float32`, and so is the result. Time is linear as well, apart from sorting
the edges in :math:`O(|E| \log |E|)` where a function says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from torch_geometric_gsl._checks import check_features, check_number, check_positive
from torch_geometric_gsl.ops.distances import edge_distances
from torch_geometric_gsl.ops.runtime import MEMORY_BUDGET
from torch_geometric_gsl.ops.target_weights import (
    check_weighted_edges,
    merge_edges,
    reduce_targets,
    target_shares,
)


def smoothness(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor,
    *,
    reduction: str = 'mean',
    memory_budget: int = MEMORY_BUDGET,
) -> Tensor:
    r"""Return the Dirichlet energy: small if strong edges join similar nodes.

    .. math::
        \frac{1}{2} \sum_j A_{ij} \lVert x_i - x_j \rVert^2

    for each target :math:`i`. The sum over :math:`i` is
    :math:`\mathrm{tr}(X^{\top} L X)` with the Laplacian :math:`L` of
    :math:`(A + A^{\top}) / 2`. Edges are sorted, in :math:`O(|E| \log |E|)`.

    Args:
        x (torch.Tensor): The node features :math:`[n, d]`, dense or sparse CSR; no
            gradient flows to sparse ones.
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        edge_weight (torch.Tensor): The weights :math:`[|E|]`.
        reduction (str, optional): :obj:`"mean"` over the nodes, :obj:`"sum"`, or
            :obj:`"none"` for one value per node. (default: :obj:`"mean"`)
        memory_budget (int, optional): Bytes for one block of edges.
            (default: :obj:`2**25`)

    Example:
        >>> x, edge_index = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[1, 2],
        ...                                                                    [0, 1]])
        >>> smoothness(x, edge_index, torch.tensor([1.0, 0.5]), reduction='none')
        tensor([0.5000, 1.0000, 0.0000])
    """
    check_features(x)
    weight = check_weighted_edges(edge_index, edge_weight, x.size(0), reduction)
    distance = edge_distances(x, edge_index, memory_budget=memory_budget)
    term = 0.5 * weight * distance.to(weight.dtype)
    return reduce_targets(scatter(term, edge_index[1], 0, x.size(0)), reduction)


def degree_log_barrier(
    edge_index: Tensor,
    edge_weight: Tensor,
    num_nodes: int,
    *,
    eps: float = 1e-12,
    reduction: str = 'mean',
) -> Tensor:
    r"""Return the logarithmic barrier of degrees, which keeps nodes from isolation.

    .. math::
        - \log ( d_i + \epsilon ), \qquad d_i = \sum_j A_{ij}

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        edge_weight (torch.Tensor): The weights :math:`[|E|]`, not negative.
        num_nodes (int): The number of nodes :math:`n`.
        eps (float, optional): Keeps the barrier of nodes without edges finite.
            (default: :obj:`1e-12`)
        reduction (str, optional): :obj:`"mean"` over the nodes, :obj:`"sum"`, or
            :obj:`"none"` for one value per node. (default: :obj:`"mean"`)

    Example:
        >>> edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
        >>> weight = torch.tensor([0.25, 0.75, 1.0])
        >>> degree_log_barrier(edge_index, weight, num_nodes=2).abs()
        tensor(0.)
    """
    check_positive(eps, 'eps')
    weight = check_weighted_edges(
        edge_index, edge_weight, num_nodes, reduction, is_share=True
    )
    degree = scatter(weight, edge_index[1], 0, num_nodes)
    return reduce_targets(-(degree + eps).log(), reduction)


def frobenius(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int, *, reduction: str = 'mean'
) -> Tensor:
    r"""Return the squared Frobenius norm: small if no weight is large.

    .. math::
        \sum_j A_{ij}^2

    for each target :math:`i`; the sum over :math:`i` is
    :math:`\lVert A \rVert_F^2`. Edges are sorted, in :math:`O(|E| \log |E|)`.

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        edge_weight (torch.Tensor): The weights :math:`[|E|]`.
        num_nodes (int): The number of nodes :math:`n`.
        reduction (str, optional): :obj:`"mean"` over the nodes, :obj:`"sum"`, or
            :obj:`"none"` for one value per node. (default: :obj:`"mean"`)

    Example:
        >>> edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
        >>> weight = torch.tensor([3.0, 4.0, 1.0])
        >>> frobenius(edge_index, weight, num_nodes=2, reduction='none')
        tensor([25.,  1.])
    """
    weight = check_weighted_edges(edge_index, edge_weight, num_nodes, reduction)
    edge_index, weight = merge_edges(edge_index, weight, num_nodes)
    total = scatter(weight.square(), edge_index[1], 0, num_nodes)
    return reduce_targets(total, reduction)


def edge_entropy(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int, *, reduction: str = 'mean'
) -> Tensor:
    r"""Return the entropy of each target's weights: small if one of them dominates.

    .. math::
        - \sum_j p_{ij} \log p_{ij}, \qquad p_{ij} = \frac{A_{ij}}{\sum_l A_{il}}

    in nats. Edges of weight zero, or below :obj:`torch.finfo(dtype).tiny`, count as
    absent, without gradient. Nodes without edges have the entropy 0. Edges are sorted,
    in :math:`O(|E| \log |E|)`.

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        edge_weight (torch.Tensor): The weights :math:`[|E|]`, not negative.
        num_nodes (int): The number of nodes :math:`n`.
        reduction (str, optional): :obj:`"mean"` over the nodes, :obj:`"sum"`, or
            :obj:`"none"` for one value per node. (default: :obj:`"mean"`)

    Example:
        >>> edge_index = torch.tensor([[0, 1, 0], [0, 0, 1]])
        >>> weight = torch.tensor([0.5, 0.5, 2.0])
        >>> edge_entropy(edge_index, weight, num_nodes=2, reduction='none')
        tensor([0.6931, 0.0000])
    """
    weight = check_weighted_edges(
        edge_index, edge_weight, num_nodes, reduction, is_share=True
    )
    edge_index, share, log_share = target_shares(edge_index, weight, num_nodes)
    entropy = scatter(-share * log_share, edge_index[1], 0, num_nodes)
    return reduce_targets(entropy, reduction)


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
    r"""Return the divergence of each target's weights from those of another graph.

    .. math::
        \sum_j p_{ij} \log \frac{p_{ij}}{q_{ij}}, \qquad
        q_{ij} = (1 - \epsilon) \, r_{ij} + \frac{\epsilon}{n}

    where :math:`p_i` and :math:`r_i` are the weights of target :math:`i` in the graph
    and in the prior graph, divided by their sums. An edge that the prior graph lacks
    therefore costs a finite :math:`\log (p_{ij} n / \epsilon)`, and a target without
    prior edges is drawn to equal weights, :math:`q_{ij} = 1 / n`. Edges of weight
    zero, or below :obj:`torch.finfo(dtype).tiny`, count as absent, without gradient.
    Nodes without edges have the divergence 0. Edges are sorted and looked up, in
    :math:`O(|E| \log |E|)`.

    Args:
        edge_index (torch.Tensor): The edges :math:`[2, |E|]`.
        edge_weight (torch.Tensor): The weights :math:`[|E|]`, not negative.
        prior_edge_index (torch.Tensor): The edges of the prior graph.
        prior_edge_weight (torch.Tensor): The weights of the prior graph, not negative.
        num_nodes (int): The number of nodes :math:`n`.
        eps (float, optional): The share :math:`\epsilon` of the prior that is spread
            over all nodes. (default: :obj:`0.01`)
        reduction (str, optional): :obj:`"mean"` over the nodes, :obj:`"sum"`, or
            :obj:`"none"` for one value per node. (default: :obj:`"mean"`)

    Example:
        >>> edge_index, weight = torch.tensor([[0, 1], [0, 0]]), torch.tensor([1., 3.])
        >>> kl_to_prior(edge_index, weight, edge_index, 2 * weight, 2, eps=1e-6) < 1e-6
        tensor(True)
    """
    check_number(eps, 'eps')
    if not 0 < eps <= 1:
        raise ValueError(f"'eps' must lie in (0, 1] (got {eps})")
    weight = check_weighted_edges(
        edge_index, edge_weight, num_nodes, reduction, is_share=True
    )
    prior_weight = check_weighted_edges(
        prior_edge_index, prior_edge_weight, num_nodes, reduction, 'prior_', True
    )
    edge_index, share, log_share = target_shares(edge_index, weight, num_nodes)
    prior_weight = prior_weight.to(weight.dtype)
    prior_index, prior, _ = target_shares(prior_edge_index, prior_weight, num_nodes)
    has_prior = torch.bincount(prior_index[1], minlength=num_nodes) > 0
    # Both lists are sorted by target and then by source.
    key, known = (i[1] * num_nodes + i[0] for i in (edge_index, prior_index))
    place = torch.searchsorted(known, key)
    is_found = torch.cat([known, known.new_full((1,), -1)])[place] == key
    mass = torch.cat([prior, prior.new_zeros(1)])[place] * is_found
    spread = 1 - (1 - eps) * has_prior[edge_index[1]].to(mass.dtype)
    log_ratio = log_share - ((1 - eps) * mass + spread / num_nodes).log()
    divergence = scatter(share * log_ratio, edge_index[1], 0, num_nodes)
    return reduce_targets(divergence, reduction)


def relation_overlap(
    graphs: Sequence[tuple[Tensor, Tensor]], num_nodes: int, *, reduction: str = 'mean'
) -> Tensor:
    r"""Return the overlap of several graphs: small if no two of them share neighbours.

    .. math::
        \frac{2}{R (R - 1)} \sum_{r < s} \frac{\sum_j A^{(r)}_{ij} A^{(s)}_{ij}}
        {\lVert A^{(r)}_i \rVert \lVert A^{(s)}_i \rVert}

    for each target :math:`i`: the mean cosine between its weights in two of the
    :math:`R` graphs. It lies in :math:`[0, 1]`; graphs in which a target has no edges
    add nothing to its sum. Edges are sorted, in :math:`O(|E| \log |E|)`.

    Args:
        graphs (Sequence[tuple[torch.Tensor, torch.Tensor]]): The edges :math:`[2, |E|]`
            and the weights :math:`[|E|]`, not negative, of at least two graphs.
        num_nodes (int): The number of nodes :math:`n`.
        reduction (str, optional): :obj:`"mean"` over the nodes, :obj:`"sum"`, or
            :obj:`"none"` for one value per node. (default: :obj:`"mean"`)

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
    # The square of a sum holds each product of two twice, beside all squares.
    products = scatter(weight.square(), edges[1], 0, num_nodes) - square.sum(dim=0)
    return reduce_targets(products / (len(graphs) * (len(graphs) - 1)), reduction)


def _unit_weights(
    edge_index: Tensor, edge_weight: Tensor, num_nodes: int, reduction: str
) -> tuple[Tensor, Tensor]:
    """Return edges whose weights have the norm 1 for each target that has some."""
    weight = check_weighted_edges(
        edge_index, edge_weight, num_nodes, reduction, is_share=True
    )
    edge_index, weight = merge_edges(edge_index, weight, num_nodes)
    largest = scatter(weight.detach(), edge_index[1], 0, num_nodes, reduce='max')
    # The direction of weights that are zero has no derivative: such a target has none.
    keep = (largest > 0)[edge_index[1]]
    edge_index, weight = edge_index[:, keep], weight[keep]
    target = edge_index[1]
    # No square overflows where the largest weight is one.
    weight = weight / largest.clamp(min=torch.finfo(weight.dtype).tiny)[target]
    norm = scatter(weight.square(), target, 0, num_nodes).sqrt()
    return edge_index, weight / norm[target]
