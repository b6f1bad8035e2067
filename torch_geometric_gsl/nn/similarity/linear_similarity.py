from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.inits import glorot

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.runtime import full_dtype


class LinearSimilarity(Similarity):
    r"""The linear similarity (LinSim) from the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper (equation 2).

    .. math::
        \phi_{ij} = z_i z_j^{\top}, \qquad z_i = \frac{x_i W}{\lVert x_i W \rVert_2}

    where :math:`i` is the target and :math:`j` the candidate neighbour. Without a
    projection it is the cosine of the features, dense or sparse CSR. It lies in
    :math:`[-1, 1]`.

    Example:
        >>> similarity = LinearSimilarity(2)
        >>> similarity(torch.tensor([[1.0, 0.0], [3.0, 4.0]]))
        tensor([[1.0000, 0.6000],
                [0.6000, 1.0000]])
    """

    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def response(self, z: Tensor) -> scores.Response:
        return scores.Identity()


class DifferenceSimilarity(Similarity):
    r"""The difference similarity (DiffSim) from the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \phi_{ij} = z_i (z_i - z_j)^{\top} = 1 - z_i z_j^{\top}, \qquad
        z_i = \frac{x_i W}{\lVert x_i W \rVert_2}

    where :math:`i` is the target and :math:`j` the candidate neighbour. It prefers
    *dissimilar* nodes, against the homophily of most graphs, and lies in
    :math:`[0, 2]`.

    Example:
        >>> similarity = DifferenceSimilarity(2)
        >>> similarity(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([[0., 1.],
                [1., 0.]])
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 2.0)

    def response(self, z: Tensor) -> scores.Response:
        return scores.Difference()


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


class UniformSimilarity(Similarity):
    r"""The constant similarity: the control of the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper, where a uniformly random graph replaces
    the learned one.

    .. math::
        \phi_{ij} = 0

    where :math:`i` is the target and :math:`j` the candidate neighbour. In training
    mode a sampler then draws neighbours uniformly at random, and in evaluation mode all
    candidates have the same weight. If a similarity is not better than this one, the
    model has not learned a graph. All candidates tie: the :obj:`eval_k` nearest nodes
    of a sampler are arbitrary.

    Args:
        in_channels (int): Size of each input sample.

    Example:
        >>> similarity = UniformSimilarity(16)
        >>> similarity(torch.randn(2, 16))
        tensor([[0., 0.],
                [0., 0.]])
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels)

    @property
    def embedding_channels(self) -> int:
        return 1

    def encode(self, x: Tensor) -> Tensor:
        # One zero per node is the cheapest to gather.
        return torch.zeros(x.size(0), 1, dtype=full_dtype(x.dtype), device=x.device)

    def response(self, z: Tensor) -> scores.Response:
        return scores.Identity()
