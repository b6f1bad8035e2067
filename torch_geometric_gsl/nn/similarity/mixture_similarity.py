from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.inits import constant

from torch_geometric_gsl._checks import check_number
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.nn.similarity.gaussian_similarity import (
    NeuralGaussianSimilarity,
)
from torch_geometric_gsl.ops import scores

#: The share is the sigmoid of a parameter times this. At 1, relations beyond 150
#: degrees are found by some seeds only: the bell narrows before the share has fallen.
SHARE_RATE = 4.0


class MixtureSimilarity(Similarity):
    r"""A mixture of the linear and the neural Gaussian similarity from the `"Neural
    Gaussian Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \phi_{ij} = a \, t_{ij} + (1 - a) \exp \left( - \frac{(t_{ij} - b_i)^2}{c_i}
        \right), \qquad t_{ij} = z_i z_j^{\top}, \quad
        z_i = \frac{x_i W}{\lVert x_i W \rVert_2}

    where :math:`i` is the target and :math:`j` the candidate neighbour. The share
    :math:`a` of the linear similarity is :math:`\sigma(4 u)` of a learned number
    :math:`u`; centres and bandwidths are those of the
    :class:`NeuralGaussianSimilarity` :obj:`bell`, with :obj:`bias=True` and
    :obj:`centre="tanh"`. So it joins near nodes from the start, and can learn to join
    nodes at any other angle. It lies in :math:`[-1, 1]`.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size of a projection. (default: :obj:`None`)
        share (float, optional): The initial share :math:`a`, between 0 and 1.
            (default: :obj:`0.5`)
        c_scale (float, optional): The factor of the bandwidths.
            (default: :obj:`8.0`)
        **kwargs (optional): Arguments of :class:`Similarity`.

    Example:
        >>> similarity = MixtureSimilarity(16)
        >>> similarity(torch.randn(4, 16)).shape
        torch.Size([4, 4])
        >>> similarity.bell.begin_at(-0.5)
    """

    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        share: float = 0.5,
        c_scale: float = 8.0,
        **kwargs: Any,
    ) -> None:
        check_number(share, 'share')
        if not 0 < share < 1:
            raise ValueError(f"'share' must lie between 0 and 1 (got {share})")
        super().__init__(in_channels, out_channels, **kwargs)
        self.initial_share = float(share)
        self.bell = NeuralGaussianSimilarity(
            self.embedding_channels, c_scale=c_scale, bias=True, centre='tanh'
        )
        self.raw_share = torch.nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.bell.reset_parameters()
        share = self.initial_share
        constant(self.raw_share, math.log(share / (1 - share)) / SHARE_RATE)

    def _share(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return the present share of the linear similarity."""
        return torch.sigmoid(SHARE_RATE * self.raw_share.to(dtype))

    def response(self, z: Tensor) -> scores.Response:
        share = self._share(z.dtype).expand(z.size(0))
        return scores.Mixture(share, *self.bell.response(z).params)

    def extra_repr(self) -> str:
        return f'share={float(self._share().detach()):.4g}'
