from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from torch_geometric_gsl._checks import check_number, check_positive
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores


class GaussianSimilarity(Similarity):
    r"""The Gaussian similarity (GauSim) from the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \phi_{ij} = \exp \left( - \frac{(z_i z_j^{\top} - b)^2}{c} \right), \qquad
        z_i = \frac{x_i W}{\lVert x_i W \rVert_2}

    where :math:`i` is the target and :math:`j` the candidate neighbour. The bell
    prefers nodes at a cosine of :math:`b`, neither the nearest nor the farthest,
    and lies in :math:`[0, 1]`.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size of a projection. (default: :obj:`None`)
        b (float, optional): Centre of the bell. (default: :obj:`0.5`)
        c (float, optional): Width of the bell, in squared cosines.
            (default: :obj:`0.02 * math.e`)
        **kwargs (optional): Arguments of :class:`Similarity`.

    Shapes:
        - **input:** node features :math:`(N, F_{in})` or a pair of them, for :math:`N`
          sources and :math:`n` targets, edges :math:`(2, |\mathcal{E}|)` *(optional)*
        - **output:** :math:`(n, N)`, or :math:`(|\mathcal{E}|)` if edges are given

    Example:
        >>> similarity = GaussianSimilarity(2, b=0.6, c=0.16)
        >>> similarity(torch.tensor([[1.0, 0.0], [3.0, 4.0]]))
        tensor([[0.3679, 1.0000],
                [1.0000, 0.3679]])
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        b: float = 0.5,
        c: float = 0.02 * math.e,
        **kwargs: Any,
    ) -> None:
        check_number(b, 'b')
        check_positive(c, 'c')
        super().__init__(in_channels, out_channels, **kwargs)
        self.b = float(b)
        self.c = float(c)

    def response(self, z: Tensor) -> scores.Response:
        b, c = (z.new_full((), value).expand(z.size(0)) for value in (self.b, self.c))
        return scores.Gaussian(b, c)

    def extra_repr(self) -> str:
        return f'b={self.b:.4g}, c={self.c:.4g}'
