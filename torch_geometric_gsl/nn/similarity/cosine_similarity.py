from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.inits import glorot

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores


class CosineSimilarity(Similarity):
    r"""The multi-head weighted cosine of IDGL, from the `"Iterative Deep Graph
    Learning for Graph Neural Networks: Better and Robust Node Embeddings"
    <https://arxiv.org/abs/2006.13009>`_ paper.

    .. math::
        \phi_{ij} = \frac{1}{P} \sum_{p=1}^{P} \cos(w_p \odot z_i, w_p \odot z_j)

    where :math:`i` is the target, :math:`j` the candidate neighbour,
    :math:`z_i = x_i W`, and the vectors :math:`w_p` are learnable. It lies in
    :math:`[-1, 1]`.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size of a projection. (default: :obj:`None`)
        heads (int, optional): The number of heads :math:`P`. (default: :obj:`4`)

    Example:
        >>> similarity = CosineSimilarity(16, heads=2)
        >>> similarity(torch.randn(4, 16)).shape
        torch.Size([4, 4])
    """

    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __init__(
        self, in_channels: int, out_channels: int | None = None, *, heads: int = 4
    ) -> None:
        check_count(heads, 'heads')
        super().__init__(in_channels, out_channels)
        self.heads = heads
        self.weight = torch.nn.Parameter(torch.empty(heads, self.embedding_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        glorot(self.weight)

    def encode(self, x: Tensor) -> Tensor:
        x = self.project(x)
        return scores.weighted_heads(x, self.weight.to(x.dtype))

    def extra_repr(self) -> str:
        return f'heads={self.heads}'

    def response(self, z: Tensor) -> scores.Response:
        return scores.Identity()
