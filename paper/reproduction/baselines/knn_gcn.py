"""Models on a given graph or on the nearest neighbours of the input features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.inits import reset

from torch_geometric_gsl._checks import (
    check_batch,
    check_count,
    check_flag,
    check_generator,
    check_one_graph,
    check_option,
    check_probability,
    check_value,
    check_weighted_edges,
)
from torch_geometric_gsl.nn.linear import apply_linear, check_input, plain_linear
from torch_geometric_gsl.nn.models.base import NodeClassifier, resolve_activation
from torch_geometric_gsl.nn.similarity.resolver import WEIGHTS
from torch_geometric_gsl.ops.generators import dropout
from torch_geometric_gsl.ops.runtime import is_exporting
from torch_geometric_gsl.transforms.feature_graphs import nearest_neighbours
from torch_geometric_gsl.typing import SampledGraph


class NeighbourModel(NodeClassifier):
    r"""Base class of models on a given graph or on nearest neighbours, of weight one
    unless there is a similarity.
    """

    def __init__(
        self,
        *sizes: int,
        k: int,
        cached: bool,
        similarity: str | None = None,
        task: str = 'classification',
    ) -> None:
        super().__init__()
        self.sizes = self._keep_sizes(*sizes, task=task)
        check_count(k, 'k')
        check_flag(cached, 'cached')
        self.k = k
        self.similarity = similarity
        self.cached = cached
        self._cached_index: Tensor | None
        self._cached_weight: Tensor
        self._cached_batch: Tensor
        # Buffers, so that it moves with the model to another device or dtype.
        for name in ('index', 'weight', 'batch'):
            self.register_buffer(f'_cached_{name}', None, persistent=False)

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module, and delete its graph."""
        self._cached_index = None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        # The graph is not part of the state: the next call finds it again.
        self._cached_index = None
        super()._load_from_state_dict(*args, **kwargs)

    def _check_input(
        self, x: Tensor, lin: Any, generator: torch.Generator | None
    ) -> None:
        """Raise unless the first projection accepts the features."""
        if is_exporting():
            raise ValueError(
                f"{type(self).__name__} cannot be exported by 'torch.export': its "
                "edges depend on the values of 'x'"
            )
        check_input(x, lin)
        check_generator(generator, x.device)

    def _graph(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> SampledGraph:
        """Return the given, cached or nearest-neighbour graph, with clamped weights."""
        if edge_index is not None:
            graph = check_weighted_edges(edge_index, edge_weight, x, x)
            if batch is not None:
                check_batch(batch, x)
                check_one_graph(graph.edge_index, batch)
            return graph
        if edge_weight is not None:
            raise ValueError("'edge_weight' needs 'edge_index' (got None)")
        if self._cached_index is not None:
            self._check_cached(x, batch)
            return SampledGraph(self._cached_index, self._cached_weight)
        similarity = self.similarity or 'linear'
        graph = nearest_neighbours(x, self.k, batch, similarity=similarity)
        graph = self._weighted(graph)
        if self.cached:
            # Cloned: inference tensors cannot be trained on.
            with torch.inference_mode(False):
                self._cached_index, self._cached_weight = (t.clone() for t in graph)
                self._cached_batch = _graph_ids(x, batch).clone()
        return graph

    def _weighted(self, graph: SampledGraph) -> SampledGraph:
        """Return the graph with weights suitable for normalisation."""
        weight = graph.edge_weight.clamp(min=0)
        weight = torch.ones_like(weight) if self.similarity is None else weight
        return graph._replace(edge_weight=weight)

    def _check_cached(self, x: Tensor, batch: Tensor | None) -> None:
        """Raise unless the cached graph has these nodes."""
        num_nodes = self._cached_batch.numel()
        if x.size(0) != num_nodes:
            raise ValueError(
                f"'x' must hold the {num_nodes} nodes of the cached graph "
                f'(got {x.size(0)} nodes)'
            )
        differs = _graph_ids(x, batch) != self._cached_batch
        check_value(
            ~differs.any(),
            "'batch' must be that of the cached graph, until reset_parameters()",
            got=lambda: f'another graph for {int(differs.sum())} of {num_nodes} nodes',
        )


def _graph_ids(x: Tensor, batch: Tensor | None) -> Tensor:
    """Return the graph id of each node, zeros without a batch."""
    if batch is not None:
        check_batch(batch, x)
        return batch
    return torch.zeros(x.size(0), dtype=torch.long, device=x.device)


class KNNGCN(NeighbourModel):
    r"""The network of the `"Semi-supervised Classification with Graph Convolutional
    Networks" <https://arxiv.org/abs/1609.02907>`_ paper on a graph of nearest
    neighbours.

    .. math::
        \mathbf{H}^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ELU} \left(
        \mathbf{\hat{D}}^{-1/2} \mathbf{\hat{A}} \mathbf{\hat{D}}^{-1/2}
        \mathbf{H}^{(\ell)} \mathbf{W}^{(\ell)} + \mathbf{H}^{(\ell)}
        \mathbf{W}_{\textrm{root}}^{(\ell)} + \mathbf{b}^{(\ell)} \right) \right),
        \qquad \hat{A}_{ij} = \max(\phi_{ij}, 0)

    where :math:`j` is one of the :obj:`k` nodes whose input features have the largest
    cosine with those of node :math:`i`, :math:`\hat{A}_{ii} = 1` and
    :math:`\hat{D}_{ii} = \sum_j \hat{A}_{ij}`. The last layer has neither activation
    nor dropout. The defaults are the baseline GCN\ :sub:`knn` of graph structure
    learning, :obj:`similarity="heat_kernel"` is HeatGCN\ :sub:`knn`, and
    :obj:`root_weight=True` is the control that a learned graph must beat.

    The graph is directed from neighbours to nodes and carries no gradient to the
    features. For an undirected one, pass the graph of
    :class:`~torch_geometric_gsl.transforms.SimilarityKNNGraph` with
    :obj:`force_undirected=True`.

    Args:
        in_channels, hidden_channels, num_layers, out_channels (int): As in
            :class:`~torch_geometric_gsl.nn.GSLNet`.
        k (int, optional): The number of neighbours. (default: :obj:`5`)
        similarity (str, optional): The weights :math:`\phi_{ij}` of the edges,
            :obj:`"linear"` (the cosine) or :obj:`"heat_kernel"` (with :obj:`t=2.0`,
            on unit rows). (default: :obj:`"linear"`)
        root_weight (bool, optional): If :obj:`True`, the layers add
            :math:`\mathbf{H} \mathbf{W}_{\textrm{root}}`. (default: :obj:`False`)
        dropout (optional): As in :class:`~torch_geometric_gsl.nn.GSLNet`.
        act (str, Callable or None, optional): Activation. (default: :obj:`"elu"`)
        cached (bool, optional): If :obj:`True`, reuses the graph of the first input
            until :meth:`reset_parameters`: for one set of nodes with constant features
            and :obj:`batch`. (default: :obj:`False`)
        task (optional): As in :class:`~torch_geometric_gsl.nn.GSLNet`.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, edges :math:`(2, |\mathcal{E}|)` and their weights
          :math:`(|\mathcal{E}|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Example:
        >>> model = KNNGCN(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        k: int = 5,
        similarity: str = 'linear',
        root_weight: bool = False,
        dropout: float = 0.5,
        act: Any = 'elu',
        cached: bool = False,
        task: str = 'classification',
    ) -> None:
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, k=k, cached=cached, similarity=similarity, task=task)
        check_option(similarity, WEIGHTS, 'similarity')
        check_flag(root_weight, 'root_weight')
        check_probability(dropout, 'dropout')
        self.root_weight = root_weight
        self.dropout = dropout
        self.act = resolve_activation(act)
        self.convs = torch.nn.ModuleList(
            GCNConv(*size)  # type: ignore[abstract]
            for size in self.sizes
        )
        roots = self.sizes if root_weight else []
        self.roots = torch.nn.ModuleList(plain_linear(*size) for size in roots)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for module in (self.act, self.convs, self.roots):
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass; the arguments are those of
        :class:`~torch_geometric_gsl.nn.NodeClassifier`.

        A given graph replaces the nearest neighbours; its weights are ones without
        :obj:`edge_weight`.
        """
        graph, *_ = self.graphs(x, edge_index, edge_weight, batch, generator=generator)
        edge_index, weight = gcn_norm(*graph, num_nodes=x.size(0), dtype=x.dtype)
        convs: Any = self.convs
        for layer, conv in enumerate(convs):
            # GCNConv is slower on sparse features.
            out = apply_linear(conv.lin, x)
            out = conv.propagate(edge_index, x=out, edge_weight=weight) + conv.bias
            if self.root_weight:
                root: Any = self.roots[layer]
                out = out + apply_linear(root, x)
            if layer < self.num_layers - 1:
                out = dropout(self.act(out), self.dropout, self.training, generator)
            x = out
        return x

    def graphs(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the graph of each layer, always the same, before normalisation; the
        arguments are those of :meth:`forward`.
        """
        convs: Any = self.convs
        self._check_input(x, convs[0].lin, generator)
        return [self._graph(x, edge_index, edge_weight, batch)] * self.num_layers
