from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.models import LINKX

from reproduction.baselines.knn_gcn import NeighbourModel
from torch_geometric_gsl._checks import (
    check_count,
    check_generator,
    check_num_nodes,
    check_probability,
)
from torch_geometric_gsl.nn.linear import apply_linear
from torch_geometric_gsl.ops.generators import GeneratorMode
from torch_geometric_gsl.typing import SampledGraph


class KNNLINKX(NeighbourModel):
    r"""The LINKX model from the `"Large Scale Learning on Non-Homophilous Graphs: New
    Benchmarks and Strong Simple Methods" <https://arxiv.org/abs/2110.14446>`_ paper on
    a graph of nearest neighbours.

    .. math::
        \mathbf{H}_{\mathbf{A}} &= \mathbf{A} \mathbf{W}_{\mathbf{A}} + \mathbf{b}

        \mathbf{H}_{\mathbf{X}} &= \mathbf{X} \mathbf{W}_{\mathbf{X}} + \mathbf{c}

        \mathbf{Y} &= \mathrm{MLP} \left( \mathrm{ReLU} \left( \mathbf{W}
        [\mathbf{H}_{\mathbf{A}}, \mathbf{H}_{\mathbf{X}}] + \mathbf{H}_{\mathbf{A}} +
        \mathbf{H}_{\mathbf{X}} \right) \right)

    where :math:`A_{ij} = 1` if :math:`j` is one of the :obj:`k` nodes whose input
    features have the largest cosine with those of node :math:`i`, and 0 else. The model
    is :class:`torch_geometric.nn.models.LINKX`. The rows of
    :math:`\mathbf{W}_{\mathbf{A}}` belong to the nodes of one data set: the model is
    transductive.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` for lazy initialization.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): The number of layers of :math:`\mathrm{MLP}`.
        out_channels (int): Size of each output sample.
        num_nodes (int): The number of nodes.
        k (int, optional): The number of neighbours. (default: :obj:`5`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.5`)
        cached (bool, optional): As in
            :class:`~reproduction.baselines.KNNGCN`. (default: :obj:`False`)
        task (str, optional): As in GSLNet. (default: :obj:`"classification"`)

    Shapes:
        - **input and output:** as in :class:`~reproduction.baselines.KNNGCN`

    Raises:
        ValueError: If an argument is out of range.

    Example:
        >>> model = KNNLINKX(16, 32, num_layers=2, out_channels=7, num_nodes=100)
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
        num_nodes: int,
        k: int = 5,
        dropout: float = 0.5,
        cached: bool = False,
        task: str = 'classification',
    ) -> None:
        sizes = in_channels, hidden_channels, num_layers, out_channels
        super().__init__(*sizes, k=k, cached=cached, task=task)
        check_count(num_nodes, 'num_nodes')
        check_probability(dropout, 'dropout')
        self.num_nodes = num_nodes
        self.dropout = float(dropout)
        widths = in_channels, hidden_channels, out_channels, num_layers
        self.linkx = LINKX(num_nodes, *widths, dropout=self.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.linkx.reset_parameters()

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
        :meth:`~reproduction.baselines.KNNGCN.forward`.
        """
        linkx: Any = self.linkx
        self._check_input(x, linkx.node_mlp.lins[0], generator)
        check_num_nodes(x, self.num_nodes)
        graph = self._graph(x, edge_index, edge_weight, batch)
        # LINKX itself would multiply sparse features in half precision.
        h_a, h_x = linkx.edge_lin(*graph), apply_linear(linkx.node_mlp.lins[0], x)
        h = h_a + linkx.cat_lin1(h_a) + h_x + linkx.cat_lin2(h_x)
        with nullcontext() if generator is None else GeneratorMode(generator):
            out: Tensor = linkx.final_mlp(h.relu())
        return out

    def graphs(
        self,
        x: Tensor,
        *args: Any,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> list[SampledGraph]:
        r"""Return the graph of the model, without normalisation; the arguments are
        those of :meth:`forward`.
        """
        check_generator(generator, x.device)
        return [self._graph(x, *args, **kwargs)]
