from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from torch_geometric_gsl._checks import (
    check_flag,
    check_generator,
    check_option,
    check_pair,
    check_probability,
    split_pair,
)
from torch_geometric_gsl.baselines._base import plain_linear
from torch_geometric_gsl.baselines._neighbour_model import NeighbourModel, given_graph
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.nn.models.layers import (
    reset_activation,
    resolve_activation,
)
from torch_geometric_gsl.nn.models.row_index import IndexesRows
from torch_geometric_gsl.nn.nearest_neighbours import WEIGHTS, nearest_in_context
from torch_geometric_gsl.ops.local_random import dropout
from torch_geometric_gsl.ops.sparse_rows import stack_rows
from torch_geometric_gsl.typing import Features, SampledGraph


class KNNGCN(IndexesRows, NeighbourModel):
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
    :obj:`root_weight=True` is the control that a learned graph has to beat.

    .. note::
        Edges and their weights are constants: no gradient flows to the features through
        the graph, which is directed from neighbours to nodes. For an undirected one,
        pass the graph of :class:`~torch_geometric_gsl.transforms.SimilarityKNNGraph`
        with :obj:`force_undirected=True`.

    Args:
        in_channels (int): Size of each input sample, or :obj:`-1` to derive the size
            from the first input to the forward method.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers.
        out_channels (int): Size of each output sample.
        k (int, optional): The number of neighbours. (default: :obj:`5`)
        similarity (str, optional): The weights :math:`\phi_{ij}` of the edges,
            :obj:`"linear"` (the cosine) or :obj:`"heat_kernel"` (with :obj:`t=2.0`,
            on unit rows). (default: :obj:`"linear"`)
        root_weight (bool, optional): If :obj:`True`, the layers add
            :math:`\mathbf{H} \mathbf{W}_{\textrm{root}}`. (default: :obj:`False`)
        dropout (float, optional): Dropout probability of the hidden samples.
            (default: :obj:`0.5`)
        act (str, Callable or None, optional): The activation, or :obj:`None` for none.
            (default: :obj:`"elu"`)
        cached (bool, optional): If :obj:`True`, the graph of the first input serves
            all later ones, until :meth:`reset_parameters`: for one set of nodes whose
            features and :obj:`batch` stay as they are. (default: :obj:`False`)
        task (str, optional): The task, as in :class:`~torch_geometric_gsl.nn.GSLNet`.
            (default: :obj:`"classification"`)

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F_{in})`, dense or sparse
          CSR, edges :math:`(2, |\mathcal{E}|)` and their weights
          :math:`(|\mathcal{E}|)` *(optional)*, batch vector
          :math:`(|\mathcal{V}|)` *(optional)*
        - **output:** node features :math:`(|\mathcal{V}|, F_{out})`

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> model = KNNGCN(16, 32, num_layers=2, out_channels=7)
        >>> model(torch.randn(100, 16)).shape
        torch.Size([100, 7])
    """

    shown = ('k', 'similarity', 'root_weight')

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
        self.roots = torch.nn.ModuleList(map(plain_linear, roots))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        reset_activation(self.act)
        for layer in (*self.convs, *self.roots):
            layer.reset_parameters()

    def forward(
        self,
        x: Features,
        edge_index: Any = None,
        edge_weight: Any = None,
        batch: Any = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The node features,
                dense or sparse CSR, or a pair :obj:`(x_src, x_dst)`, whose targets have
                their neighbours among the sources. What else is given of a pair is a
                pair, too: edges are those between sources, and those to targets.
            edge_index (torch.Tensor or tuple, optional): If given, this graph is used
                instead of that of the nearest neighbours. (default: :obj:`None`)
            edge_weight (torch.Tensor or tuple, optional): The weights of
                :obj:`edge_index`, not negative; ones if :obj:`None`.
                (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): Sorted graph ids of the nodes: no
                edge joins two graphs. (default: :obj:`None`)
            generator (torch.Generator, optional): Source of randomness of dropout; the
                global one if :obj:`None`. (default: :obj:`None`)
        """
        convs: Any = self.convs
        src, dst = self._ends(x, edge_index, batch)
        self._check_input(dst, convs[0].lin, generator)
        if src is None:
            graph = self._graph(dst, edge_index, edge_weight, batch)
            return self._logits(dst, graph, generator)
        own, new = self._pair_graphs(src, dst, edge_index, edge_weight, batch)
        target = new.edge_index[1] + src.size(0)
        edges = [own.edge_index, torch.stack([new.edge_index[0], target])]
        weight = torch.cat([own.edge_weight, new.edge_weight])
        graph = SampledGraph(torch.cat(edges, dim=1), weight)
        out = self._logits(stack_rows(src, dst), graph, generator)
        return out[src.size(0) :]

    def graphs(
        self,
        x: Features,
        edge_index: Any = None,
        edge_weight: Any = None,
        batch: Any = None,
        *,
        generator: torch.Generator | None = None,
    ) -> list[SampledGraph]:
        r"""Return the graph of each layer, which is the same, before it is normalised;
        the arguments are those of :meth:`forward`.
        """
        src, dst = self._ends(x, edge_index, batch)
        check_generator(generator, dst.device)
        args = edge_index, edge_weight, batch
        graph = (
            self._graph(dst, *args)
            if src is None
            else self._pair_graphs(src, dst, *args)[1]
        )
        return [graph] * self.num_layers

    def _ends(
        self, x: Features, edge_index: Any, batch: Any
    ) -> tuple[Tensor | None, Tensor]:
        """Return the sources, if they are others than the targets, and the targets."""
        if isinstance(x, tuple | list):
            return check_pair(x)
        return self._indexed(x, edge_index if batch is None else batch), x

    def _pair_graphs(
        self, src: Tensor, dst: Tensor, edge_index: Any, edge_weight: Any, batch: Any
    ) -> tuple[SampledGraph, SampledGraph]:
        """Return the graph of the sources, and that from them to the targets."""
        edges, ids = split_pair(edge_index, 'edge_index'), split_pair(batch, 'batch')
        weights = split_pair(edge_weight, 'edge_weight')
        own = self._graph(src, edges[0], weights[0], ids[0])
        if edges[1] is not None:
            return own, given_graph((src, dst), edges[1], weights[1], batch)
        options: Any = {'similarity': self.similarity}
        new = nearest_in_context(dst, src, self.k, batch, **options)
        return own, self._weighted(new)

    def _logits(
        self, x: Tensor, graph: SampledGraph, generator: torch.Generator | None
    ) -> Tensor:
        edge_index, weight = gcn_norm(*graph, num_nodes=x.size(0), dtype=x.dtype)
        convs: Any = self.convs
        for number, conv in enumerate(convs, start=1):
            # GCNConv itself would multiply sparse features less quickly.
            h = apply_linear(conv.lin, x)
            h = conv.propagate(edge_index, x=h, edge_weight=weight) + conv.bias
            if self.root_weight:
                root: Any = self.roots[number - 1]
                h = h + apply_linear(root, x)
            if number < self.num_layers:
                h = dropout(self.act(h), self.dropout, self.training, generator)
            x = h
        return x
