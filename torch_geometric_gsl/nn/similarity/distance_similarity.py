from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores


class DistanceSimilarity(Similarity):
    r"""The negative squared distance, as TabR compares the rows of a table, from the
    `"TabR: Tabular Deep Learning Meets Nearest Neighbors"
    <https://arxiv.org/abs/2307.14338>`_ paper.

    .. math::
        \phi_{ij} = - \lVert z_i - z_j \rVert^2

    where :math:`i` is the target, :math:`j` the candidate neighbour, and :math:`z_i`
    is :math:`x_i W`, which is not scaled to unit norm. It lies in :math:`(-\infty, 0]`,
    so that no scale of the similarity is needed for a sharp graph: a projection learns
    how fast the weights :math:`\mathrm{softmax}_j(\phi_{ij})` fall.

    Shapes:
        - **input:** node features :math:`(N, F_{in})` or a pair of them, for :math:`N`
          sources and :math:`n` targets, edges :math:`(2, |\mathcal{E}|)` *(optional)*
        - **output:** :math:`(n, N)`, or :math:`(|\mathcal{E}|)` if edges are given

    Example:
        >>> similarity = DistanceSimilarity(2)
        >>> similarity(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([[ -0., -25.],
                [-25.,  -0.]])
    """

    bounds: ClassVar[tuple[float, float]] = (-math.inf, 0.0)
    comparison: ClassVar[str] = 'squared_distance'

    def encode(self, x: Tensor) -> Tensor:
        return self.project(x)

    def response(self, z: Tensor) -> scores.Response:
        return scores.Negative()
