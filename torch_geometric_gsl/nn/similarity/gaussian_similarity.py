from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.inits import constant, glorot, zeros

from torch_geometric_gsl._checks import (
    check_flag,
    check_number,
    check_option,
    check_positive,
)
from torch_geometric_gsl.nn.similarity.base import Similarity
from torch_geometric_gsl.ops import scores

# The share of a mixture is the sigmoid of a parameter times this. At 1, relations
# beyond 150 degrees are found by some seeds only: the bell narrows before it falls.
_SHARE_RATE = 4.0


class GaussianSimilarity(Similarity):
    r"""The Gaussian similarity (GauSim) from the `"Neural Gaussian Similarity
    Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \phi_{ij} = \exp \left( - \frac{(z_i z_j^{\top} - b)^2}{c} \right), \qquad
        z_i = \frac{x_i W}{\lVert x_i W \rVert_2}

    where :math:`i` is the target and :math:`j` the candidate neighbour. It is largest
    at a cosine of :math:`b`, not for the nearest nodes, and lies in :math:`[0, 1]`.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size of a projection. (default: :obj:`None`)
        b (float, optional): Centre of the kernel. (default: :obj:`0.5`)
        c (float, optional): Bandwidth of the kernel, in squared cosines.
            (default: :obj:`0.02 * math.e`)
        **kwargs (optional): Arguments of :class:`Similarity`.

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


class NeuralGaussianSimilarity(Similarity):
    r"""The neural Gaussian similarity (NeuralGauSim) from the `"Neural Gaussian
    Similarity Modeling for Differential Graph Structure Learning"
    <https://arxiv.org/abs/2312.09498>`_ paper.

    .. math::
        \phi_{ij} &= \exp \left( - \frac{(z_i z_j^{\top} - b_i)^2}{c_i} \right),
        \qquad z_i = \frac{x_i W}{\lVert x_i W \rVert_2}

        b_i &= \sigma(z_i w_b^{\top} + \beta_b), \qquad
        c_i = \gamma \, \sigma(z_i w_c^{\top} + \beta_c)

    where :math:`i` is the target and :math:`j` the candidate neighbour, the vectors
    :math:`w_b` and :math:`w_c` are learnable and :math:`\gamma` denotes
    :obj:`c_scale`. Each target has a kernel with a learned centre and bandwidth. It
    lies in :math:`[0, 1]`. Bandwidths stay above :math:`10^{-9}`.

    As in the paper, there are no biases :math:`\beta_b, \beta_c` by default: on centred
    features the centres then stay near :math:`0.5`; use :obj:`bias=True` to learn them.
    A sigmoid covers angles below 90 degrees only, :obj:`centre="tanh"` all. As a narrow
    kernel far from the relation gets no gradient towards it, kernels with a bias start
    at one centre, :math:`w_b = 0`, as wide as the range of cosines.

    Args:
        in_channels (int): Size of each input sample.
        out_channels (int, optional): Size of a projection. (default: :obj:`None`)
        c_scale (float, optional): The factor :math:`\gamma` of the bandwidths. If
            :obj:`None`, it is :obj:`0.1`, or :obj:`8.0` with a bias.
            (default: :obj:`None`)
        bias (bool, optional): If :obj:`True`, centres and bandwidths have learned
            biases :math:`\beta_b, \beta_c`. (default: :obj:`False`)
        centre (str, optional): The function :math:`\sigma` of the centres,
            :obj:`"sigmoid"` for cosines in :math:`(0, 1)`, or :obj:`"tanh"` for
            cosines in :math:`(-1, 1)`. (default: :obj:`"sigmoid"`)
        **kwargs (optional): Arguments of :class:`Similarity`.

    Example:
        >>> similarity = NeuralGaussianSimilarity(16)
        >>> similarity(torch.randn(4, 16)).shape
        torch.Size([4, 4])
        >>> # Kernels with a bias, initially centred on nearly opposite vectors.
        >>> similarity = NeuralGaussianSimilarity(16, bias=True, centre='tanh')
        >>> similarity.begin_at(-0.9)
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        c_scale: float | None = None,
        bias: bool = False,
        centre: str = 'sigmoid',
        **kwargs: Any,
    ) -> None:
        check_flag(bias, 'bias')
        if c_scale is None:
            # The paper's, or as wide as the largest gap of two cosines, 2.
            c_scale = 8.0 if bias else 0.1
        check_positive(c_scale, 'c_scale')
        check_option(centre, scores.CENTRES, 'centre')
        super().__init__(in_channels, out_channels, **kwargs)
        self.c_scale = float(c_scale)
        self.centre = centre
        self.w_b = torch.nn.Parameter(torch.empty(1, self.embedding_channels))
        self.w_c = torch.nn.Parameter(torch.empty(1, self.embedding_channels))
        self.bias_b = torch.nn.Parameter(torch.empty(1)) if bias else None
        self.bias_c = torch.nn.Parameter(torch.empty(1)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        glorot(self.w_b)
        glorot(self.w_c)
        if self.bias_b is not None:  # All targets start at one centre.
            zeros(self.w_b)
        zeros(self.bias_b)
        zeros(self.bias_c)

    def begin_at(self, centre: float) -> None:
        r"""Set the initial centre of the kernels of all targets.

        Sets the bias :math:`\beta_b` to match the centre, and :math:`w_b` to zero. A
        narrow kernel must start near the relation, and moves to the nearest of several.

        Args:
            centre (float): The centre, a cosine in :math:`(0, 1)`, or in
                :math:`(-1, 1)` with :obj:`centre="tanh"`.

        Raises:
            ValueError: If :obj:`centre` is out of range, or there is no bias.

        Example:
            >>> similarity = NeuralGaussianSimilarity(2, bias=True, centre='tanh')
            >>> similarity.begin_at(-0.5)
            >>> similarity.response(torch.eye(2)).params[0].flatten().tolist()
            [-0.5, -0.5]
        """
        if self.bias_b is None:
            raise ValueError(
                "'bias' must be True to set the initial centre (got False)"
            )
        check_number(centre, 'centre')
        lowest = self.lowest_centre
        if not lowest < centre < 1:
            raise ValueError(
                f"'centre' must lie between {lowest} and 1 with "
                f'centre={self.centre!r} (got {centre})'
            )
        bias = math.log((centre - lowest) / (1 - centre))
        zeros(self.w_b)
        torch.nn.init.constant_(self.bias_b, bias if lowest == 0 else bias / 2)

    @property
    def lowest_centre(self) -> int:
        r"""Return the lower bound of the centres: 0, or -1."""
        return 0 if self.centre == 'sigmoid' else -1

    def response(self, z: Tensor) -> scores.Response:
        bells = self.w_b, self.w_c, self.c_scale, self.bias_b, self.bias_c
        return scores.neural_gaussian(z, *bells, self.centre)

    def extra_repr(self) -> str:
        text = f'c_scale={self.c_scale:.4g}'
        if self.bias_b is not None:
            text += ', bias=True'
        return text if self.centre == 'sigmoid' else f'{text}, centre={self.centre!r}'


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
        constant(self.raw_share, math.log(share / (1 - share)) / _SHARE_RATE)

    def response(self, z: Tensor) -> scores.Response:
        share = torch.sigmoid(_SHARE_RATE * self.raw_share.to(z.dtype))
        bells = self.bell.response(z).params
        return scores.Mixture(share.expand(z.size(0)), *bells)

    def extra_repr(self) -> str:
        share = torch.sigmoid(_SHARE_RATE * self.raw_share.detach())
        return f'share={float(share):.4g}'
