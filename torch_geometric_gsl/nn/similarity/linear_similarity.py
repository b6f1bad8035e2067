from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores


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
