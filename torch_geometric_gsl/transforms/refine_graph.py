"""Refine a given graph: reweight its edges and add nearest rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_gsl._checks import (
    check_batch,
    check_count,
    check_features,
    check_number,
    check_type,
    check_value,
    check_weighted_edges,
)
from torch_geometric_gsl.nn.similarity.resolver import nearness
from torch_geometric_gsl.ops.edges import merge_edges
from torch_geometric_gsl.transforms._graphs import (
    OBSERVED,
    check_data,
    node_features,
    set_graph,
)
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import SampledGraph


@functional_transform('refine_graph')
class RefineGraph(BaseTransform):
    r"""Reweight the edges of a given graph by class agreement, and add nearest
    neighbours (functional name: :obj:`refine_graph`).

    .. math::
        w_{ij} = \left( a_{ij} + [j \in \mathcal{N}(i)] \, c_{ij} +
        [i \in \mathcal{N}(j)] \, c_{ij} \right) \, \mathbf{p}_i^{\top} \mathbf{p}_j,
        \qquad c_{ij} = \max(\cos(\mathbf{x}_i, \mathbf{x}_j), 0)

    where :math:`a_{ij}` are the given weights :obj:`data.edge_weight`, or ones,
    :math:`\mathcal{N}(i)` are the :obj:`k` nearest rows of :math:`i` by the cosine, and
    :math:`\mathbf{p}_i` are class probabilities predicted by a first model, replaced by
    known labels: the product is the probability that two nodes have the same class if
    their classes are independent. It is one without probabilities, and for self-loops.
    If few given edges of a node join equal classes, the added ones outweigh them; if
    none does, layers with self-loops (:class:`~torch_geometric.nn.conv.GCNConv`) rely
    on the node itself. Train a second model that takes edge weights on the refined
    graph, on the labels and on the probabilities of all other nodes:
    :doc:`/guide/mend` has the recipe.

    On one or two columns, the nearest rows are ranked by distance and weighted as in
    :func:`SimilarityKNNGraph`. The edges are sorted by target, duplicates add up, and
    edges of weight zero are dropped. The original graph is kept under names with the
    prefix :obj:`observed_`. If :obj:`data.observed_edge_index` exists, that graph is
    refined instead of :obj:`data.edge_index`: place this transform first.
    Weights in :obj:`data.edge_attr` are ignored. No added edge joins two examples of a
    batch.

    Args:
        k (int, optional): The number of nearest rows of each node, or zero.
            (default: :obj:`10`)
        prob (str, optional): The attribute with the probabilities
            :math:`[|\mathcal{V}|, C]`, or :obj:`None` for none.
            (default: :obj:`None`)
        min_similarity (float, optional): Drops given edges whose
            :math:`\cos(\mathbf{x}_i, \mathbf{x}_j)`, or kernel of the distance, does
            not exceed it. (default: :obj:`None`)
        attr (str, optional): The compared features. (default: :obj:`"x"`)

    Raises:
        ValueError: If :obj:`data` has no edge list, no features or no probabilities.

    Example:
        >>> from torch_geometric.data import Data
        >>> x = torch.tensor([[1.0, 0.0, 0.0], [4.0, 3.0, 0.0], [0.0, 1.0, 0.0]])
        >>> prob = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
        >>> edge_index = torch.tensor([[0, 2], [2, 0]])
        >>> data = Data(x=x, edge_index=edge_index, prob=prob)
        >>> data = RefineGraph(k=1, prob='prob')(data)
        >>> data.edge_index
        tensor([[1, 2, 0, 2, 0, 1],
                [0, 0, 1, 1, 2, 2]])
        >>> data.edge_weight
        tensor([1.1840, 0.1800, 1.1840, 0.1560, 0.1800, 0.1560])
    """

    def __init__(
        self,
        k: int = 10,
        prob: str | None = None,
        *,
        min_similarity: float | None = None,
        attr: str = 'x',
    ) -> None:
        check_count(k, 'k', minimum=0)
        if min_similarity is not None:
            check_number(min_similarity, 'min_similarity')
        check_type(prob, (str, type(None)), 'prob', 'the name of an attribute or None')
        check_type(attr, str, 'attr', 'the name of an attribute')
        self.k = k
        self.prob = prob
        self.min_similarity = min_similarity
        self.attr = attr

    @torch.no_grad()
    def forward(self, data: Data) -> Data:
        check_data(data)
        x = node_features(data, attr=self.attr)
        graph = _observed_graph(data, x)
        if self.min_similarity is not None:
            similarity = nearness(x.size(1))
            rows = x if similarity.comparison == 'dot' else x.to_dense()
            score = similarity(rows, graph.edge_index)
            keep = score > self.min_similarity
            graph = SampledGraph(graph.edge_index[:, keep], graph.edge_weight[keep])
        prob = None if self.prob is None else _probabilities(data, self.prob, x)
        nearest = None
        if self.k > 0 and x.size(0) > 0:
            batch = data.get('batch')
            if batch is not None:
                check_batch(batch, x, 'data.batch')
            nearest = nearest_neighbours(x, self.k, batch)
        set_graph(data, refine(graph, nearest, prob).prune())
        return data

    def __repr__(self) -> str:
        prob = '' if self.prob is None else f', prob={self.prob}'
        minimum = self.min_similarity
        attr = '' if self.attr == 'x' else f', attr={self.attr}'
        text = prob + ('' if minimum is None else f', min_similarity={minimum}') + attr
        return f'{self.__class__.__name__}(k={self.k}{text})'


def refine(
    graph: SampledGraph, nearest: SampledGraph | None, prob: Tensor | None
) -> SampledGraph:
    """Add nearest rows to a graph in both directions; reweight by class agreement.

    Gradients flow to the weights and to the probabilities.
    """
    edge_index, weight = graph
    if nearest is not None:
        directions = [nearest.edge_index, nearest.edge_index.flip(0)]
        cosine = nearest.edge_weight.clamp(min=0).to(weight.dtype)
        edge_index = torch.cat([edge_index, *directions], dim=1)
        weight = torch.cat([weight, cosine, cosine])
    if prob is not None:
        source, target = edge_index
        agreement = (prob[source] * prob[target]).sum(dim=1)
        agreement = agreement.masked_fill(source == target, 1)
        weight = weight * agreement.to(weight.dtype)
    return merge_edges(edge_index, weight)


def _observed_graph(data: Data, x: Tensor) -> SampledGraph:
    """Return the original graph of the data, with weights of one by default."""
    prefix = OBSERVED if f'{OBSERVED}edge_index' in data else ''
    name = f'{prefix}edge_index'
    if data.get(name) is None:
        hint = ", not 'adj_t'" if 'adj_t' in data else ''
        raise ValueError(
            f"'data.{name}' must hold the edges to refine{hint} (got None)"
        )
    weight = data.get(f'{prefix}edge_weight')
    return check_weighted_edges(data[name], weight, x, x, f'data.{name}')


def _probabilities(data: Data, name: str, x: Tensor) -> Tensor:
    """Return class probabilities, one row per node."""
    if name not in data:
        raise ValueError(f"'data.{name}' must hold class probabilities (got None)")
    prob: Tensor = data[name]
    check_features(prob, f'data.{name}')
    if prob.layout != torch.strided or prob.shape != (x.size(0), max(1, prob.size(1))):
        raise ValueError(
            f"'data.{name}' must be dense, of shape [num_nodes, num_classes] (got "
            f'{list(prob.shape)} for {x.size(0)} nodes, {prob.layout})'
        )
    is_prob = (prob >= 0).all() & ((prob.sum(dim=1) - 1).abs() < 0.01).all()
    text = f"'data.{name}' must hold class probabilities, rows that sum to one"
    check_value(is_prob, text, got=lambda: f'{prob.min():.3g}..{prob.max():.3g}')
    return prob
