from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import EdgeConv
from torch_geometric.utils import softmax

from torch_geometric_gsl._checks import (
    Ends,
    check_compared,
    check_count,
    check_ends,
    check_flag,
    check_positive,
)
from torch_geometric_gsl.nn.points import knn_graph
from torch_geometric_gsl.ops.runtime import check_not_batched
from torch_geometric_gsl.ops.scores import squared_distance
from torch_geometric_gsl.typing import Batch, Features


class KNNEdgeConv(EdgeConv):
    r"""Dynamic edge convolution from the `"Dynamic Graph CNN for Learning on Point
    Clouds" <https://arxiv.org/abs/1801.07829>`_ paper on the graph of
    :func:`~torch_geometric_gsl.nn.points.knn_graph`.

    .. math::
        x'_i = \max_{j \in \mathcal{N}(i)} h_{\Theta}(x_i \, \Vert \, x_j - x_i)

    where :math:`\mathcal{N}(i)` are the :obj:`k` points nearest to :math:`i`, as in
    :class:`torch_geometric.nn.conv.DynamicEdgeConv`, without pyg-lib and torch-cluster.
    Models exported by :func:`torch.export.export` or ONNX take one cloud.

    The choice of neighbours has no gradient. With :obj:`tau` messages are multiplied by
    :math:`1 + w_{ij} - \mathrm{sg}(w_{ij})`, where :math:`w_{ij} =
    \mathrm{softmax}_j(-d_{ij}^2 / \tau)` over the neighbours and :math:`\mathrm{sg}`
    stops the gradient: the output is unchanged, and gradients flow to the compared rows
    (straight-through).

    Args:
        nn (torch.nn.Module): The network :math:`h_{\Theta}`, for rows
            :math:`[E, 2 F_{in}]`.
        k (int): The number of neighbours.
        aggr (str, optional): The aggregation. (default: :obj:`"max"`)
        loop (bool, optional): If :obj:`False`, a point is not its own neighbour.
            (default: :obj:`True`)
        tau (float, optional): The temperature :math:`\tau` of the gradient to the
            compared rows, in squared distances, or :obj:`None` for none.
            (default: :obj:`None`)
        **kwargs (optional): Arguments of
            :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **input:** points :math:`(|\mathcal{V}|, F_{in})` or a pair of sources and
          targets, batch vector :math:`(|\mathcal{V}|)` *(optional)*, compared rows
          :math:`(|\mathcal{V}|, F_z)` *(optional)*, a pair for a pair
        - **output:** rows :math:`(|\mathcal{V}|, F_{out})` of the targets

    Example:
        >>> conv = KNNEdgeConv(torch.nn.Linear(2 * 3, 16), k=8)
        >>> batch = torch.tensor([0, 1]).repeat_interleave(50)
        >>> conv(torch.randn(100, 3), batch).shape
        torch.Size([100, 16])
    """

    def __init__(
        self,
        nn: torch.nn.Module,
        k: int,
        aggr: str = 'max',
        *,
        loop: bool = True,
        tau: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_count(k, 'k')
        check_flag(loop, 'loop')
        if tau is not None:
            check_positive(tau, 'tau')
        super().__init__(nn, aggr, **kwargs)
        self.k = k
        self.loop = loop
        self.tau = tau

    def reset_parameters(self) -> None:
        r"""Reset all learnable parameters of the module."""
        super().reset_parameters()  # type: ignore[no-untyped-call]

    def forward(
        self, x: Features, batch: Batch | None = None, *, z: Features | None = None
    ) -> Tensor:
        r"""Run the forward pass.

        Args:
            x (torch.Tensor or tuple[torch.Tensor, torch.Tensor]): The points, or a pair
                :obj:`(x_src, x_dst)`.
            batch (torch.Tensor or tuple, optional): Sorted ids of the clouds, a pair
                for a pair. (default: :obj:`None`)
            z (torch.Tensor or tuple[torch.Tensor, torch.Tensor], optional): The rows
                that determine the neighbours; :obj:`x` if :obj:`None`.
                (default: :obj:`None`)
        """
        check_not_batched(self, (x, z))
        x_src, x_dst, _ = compared = Ends.of(x)
        if z is not None:
            compared = check_ends(x).like(z, 'z')
            for rows, points in ((compared.src, x_src), (compared.dst, x_dst)):
                check_compared(rows, -1, points)
        z_src, z_dst, _ = compared
        edge_index = knn_graph(compared.features, self.k, batch, self.loop)
        weight = z_src.new_ones(edge_index.size(1), 1)
        if self.tau is not None:
            source, target = edge_index
            distance = squared_distance(z_src[source], z_dst[target])
            share = softmax(-distance / self.tau, target, num_nodes=z_dst.size(0))
            weight = weight + (share - share.detach()).unsqueeze(1)
        # propagate_type: (x: PairTensor, weight: Tensor)
        return self.propagate(edge_index, x=(x_src, x_dst), weight=weight)

    def message(  # type: ignore[override]
        self, x_i: Tensor, x_j: Tensor, weight: Tensor
    ) -> Tensor:
        r"""Multiply the messages by the weights of the edges."""
        return super().message(x_i, x_j) * weight

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(nn={self.nn}, k={self.k})'
