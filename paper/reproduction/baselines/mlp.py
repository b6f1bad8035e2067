from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import reset

from torch_geometric_gsl._checks import check_batch, check_generator, check_probability
from torch_geometric_gsl.nn.linear import apply_linear, check_input
from torch_geometric_gsl.nn.models.base import NodeClassifier, resolve_activation
from torch_geometric_gsl.ops.generators import dropout


class MLPClassifier(NodeClassifier):
    r"""Multilayer perceptron, the baseline without a graph, as in the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \mathbf{H}^{(\ell + 1)} = \mathrm{Dropout} \left( \mathrm{ELU} \left(
        \mathbf{H}^{(\ell)} \mathbf{W}^{(\ell)} + \mathbf{b}^{(\ell)} \right) \right)

    where :math:`\mathbf{H}^{(0)}` holds the node features. The last layer has neither
    activation nor dropout. Unlike :class:`torch_geometric.nn.models.MLP` it takes
    sparse CSR features.

    Args:
        in_channels, hidden_channels, num_layers, out_channels (int): As in
            :class:`KNNGCN`.
        dropout, act, task (optional): As in :class:`KNNGCN`.

    Shapes:
        - **input and output:** as in :class:`KNNGCN`, without edges

    Example:
        >>> model = MLPClassifier(16, 32, num_layers=2, out_channels=7)
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
        dropout: float = 0.5,
        act: Any = 'elu',
        task: str = 'classification',
    ) -> None:
        super().__init__()
        widths = in_channels, hidden_channels, num_layers, out_channels
        sizes = self._keep_sizes(*widths, task=task)
        check_probability(dropout, 'dropout')
        self.dropout = dropout
        self.act = resolve_activation(act)
        self.lins = torch.nn.ModuleList(Linear(*size) for size in sizes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        reset(self.act)
        reset(self.lins)

    def forward(
        self,
        x: Tensor,
        *,
        batch: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        r"""Run the forward pass; the arguments are those of
        :class:`~torch_geometric_gsl.nn.NodeClassifier`; :obj:`batch` is ignored.
        """
        lins: Any = self.lins
        check_input(x, lins[0])
        if batch is not None:
            check_batch(batch, x)
        check_generator(generator, x.device)
        for lin in lins[:-1]:
            h = self.act(apply_linear(lin, x))
            x = dropout(h, self.dropout, self.training, generator)
        return apply_linear(lins[-1], x)
