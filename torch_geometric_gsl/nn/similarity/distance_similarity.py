from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from torch_geometric_gsl._checks import check_flag, check_positive
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores


class DistanceSimilarity(Similarity):
    r"""The negative squared distance that TabR uses on tables, from the
    `"TabR: Tabular Deep Learning Meets Nearest Neighbors"
    <https://arxiv.org/abs/2307.14338>`_ paper.

    .. math::
        \phi_{ij} = - \lVert z_i - z_j \rVert^2

    where :math:`i` is the target, :math:`j` the candidate neighbour, and :math:`z_i` is
    :math:`x_i W`, not scaled to unit norm. It lies in :math:`(-\infty, 0]`. No scale is
    needed: the projection learns how fast the weights
    :math:`\mathrm{softmax}_j(\phi_{ij})` decay.

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


class HeatKernelSimilarity(Similarity):
    r"""The heat kernel of AM-GCN, from the `"AM-GCN: Adaptive Multi-channel Graph
    Convolutional Networks" <https://arxiv.org/abs/2007.02265>`_ paper.

    .. math::
        \phi_{ij} = \exp \left( - \frac{\lVert z_i - z_j \rVert^2}{t} \right)

    where :math:`i` is the target, :math:`j` the candidate neighbour, and :math:`z_i`
    is :math:`x_i W`, scaled to unit 2-norm if :obj:`normalize` is set. It is then a
    monotone function of the cosine and ranks neighbours as
    :class:`LinearSimilarity` does. It lies in :math:`[0, 1]`.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size of a projection. (default: :obj:`None`)
        t (float, optional): Bandwidth of the kernel, in squared distances.
            (default: :obj:`2.0`)
        normalize (bool, optional): If :obj:`False`, the rows are not scaled to unit
            norm. (default: :obj:`True`)
        **kwargs (optional): Arguments of :class:`Similarity`.

    Example:
        >>> similarity = HeatKernelSimilarity(2)
        >>> similarity(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    comparison: ClassVar[str] = 'squared_distance'

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        t: float = 2.0,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        check_positive(t, 't')
        check_flag(normalize, 'normalize')
        super().__init__(in_channels, out_channels, **kwargs)
        self.t = float(t)
        self.normalize = normalize

    def encode(self, x: Tensor) -> Tensor:
        return super().encode(x) if self.normalize else self.project(x)

    def response(self, z: Tensor) -> scores.Response:
        t = z.new_full((), self.t).expand(z.size(0))
        return scores.HeatKernel(t)

    def extra_repr(self) -> str:
        return f't={self.t:.4g}, normalize={self.normalize}'
