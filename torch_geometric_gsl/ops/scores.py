r"""Scores of a pair of nodes: pure functions, elementwise over pairs.

A score is a *comparison* of two embeddings (inner product or squared distance)
followed by a *response* that maps the compared value to :math:`\phi`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

# Keeps (t - b)^2 / c and its gradient finite in float32 when c underflows.
MIN_WIDTH = 1e-9
# Beyond this square float32 and gradients overflow.
MAX_SQUARE = 1e36
# Double precision allows larger squares, for rankings.
_MAX_DOUBLE_SQUARE = 1e300


def unit_rows(x: Tensor) -> Tensor:
    """Scale the rows :math:`[*, m]` to unit 2-norm; rows of zeros stay zero.

    Unlike :func:`torch.nn.functional.normalize` neither tiny nor huge rows
    underflow or overflow, and the gradient of a row of zeros stays finite.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    if x.numel() == 0:
        return x
    # The direction does not depend on the length, so the gradient is the same if this
    # factor is a constant.
    rows = x.detach()
    largest = torch.maximum(rows.amax(-1, keepdim=True), -rows.amin(-1, keepdim=True))
    x = x / largest.masked_fill_(largest == 0, 1)
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    norm = norm.masked_fill(norm == 0, 1)
    # In place: allocation takes longer than the computation.
    return x / norm if x.requires_grad else x.div_(norm)


def squared_distance(u: Tensor, v: Tensor) -> Tensor:
    r"""Return :math:`\lVert u - v \rVert^2` over the last dimension; rows broadcast."""
    return (u - v).square().sum(dim=-1).clamp(max=max_square(u.dtype))


def max_square(dtype: torch.dtype) -> float:
    """Return the largest squared distance; larger ones are clamped."""
    if dtype == torch.float64:
        return _MAX_DOUBLE_SQUARE
    return min(MAX_SQUARE, torch.finfo(dtype).max)


def squared_distance_matrix(u: Tensor, v: Tensor) -> Tensor:
    r"""Return :math:`\lVert u_i - v_j \rVert^2` of all pairs of rows :math:`[*, n, N]`.

    Differences are squared, not rows: an expanded square would lose the distances of
    near nodes far from the origin.
    """
    distance = torch.cdist(u, v, compute_mode='donot_use_mm_for_euclid_dist')
    return distance.clamp(max=math.sqrt(max_square(u.dtype))).square()


class Response(ABC):
    r"""Base class of responses, which map compared values to scores elementwise.

    A subclass implements :meth:`value`, and declares :obj:`monotonic` or implements
    :meth:`interval`, so that clusters of sources bound its scores.

    Args:
        *params (torch.Tensor): The parameters of each target, :math:`[n]` each.

    Example:
        >>> class Student(Response):
        ...     monotonic = -1
        ...     @staticmethod
        ...     def value(distance, v):
        ...         return 1 / (1 + distance / v)
        >>> response = Student(torch.tensor([0.5, 2.0]))
        >>> response(torch.tensor([[0.0, 0.5], [2.0, 6.0]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 0.2500]])
    """

    #: 1 if scores rise with the compared value, -1 if they fall, 0 if neither.
    monotonic: ClassVar[int] = 0
    #: The name of the formula in the kernels of a race, which runs in PyTorch without.
    formula: ClassVar[str | None] = None
    #: Whether a score changes by at most as much as the compared value.
    is_lipschitz: ClassVar[bool] = False
    #: What compared values lie between, where this bounds the scores of a target.
    span: ClassVar[tuple[float, float] | None] = None

    params: tuple[Tensor, ...] = ()

    def __init__(self, *params: Tensor) -> None:
        self.params = params

    def map(self, function: Callable[[Tensor], Tensor]) -> Response:
        """Apply a function to each parameter."""
        return type(self)(*map(function, self.params))

    @staticmethod
    @abstractmethod
    def value(*args: Any, **kwargs: Any) -> Tensor:
        r"""Compute the scores of compared values :math:`[n, q]`, the first argument,
        with parameters :math:`[n, 1]`.
        """

    @classmethod
    def interval(
        cls, low: Tensor, high: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        r"""Bound the scores of compared values between two ends.

        The ends are :math:`[n, q]` each, and the parameters :math:`[n, 1]` follow.

        Raises:
            ValueError: If the response is not monotonic, and bounds no intervals.
        """
        if cls.monotonic == 0:
            raise ValueError(f"'{cls.__name__}' must have an 'interval' (got none)")
        bounds = cls.value(low, *args), cls.value(high, *args)
        return bounds if cls.monotonic > 0 else bounds[::-1]

    @property
    def kernel_formula(self) -> str | None:
        """Return the formula that the class itself declares, as a subclass may have
        another :meth:`value`.
        """
        return vars(type(self)).get('formula')

    @property
    def has_interval(self) -> bool:
        """Return whether :meth:`interval` is available."""
        subclasses = (base for base in type(self).__mro__ if base is not Response)
        declared = any('interval' in vars(base) for base in subclasses)
        return self.monotonic != 0 or declared

    @property
    def head_sign(self) -> int:
        """Return 1 if large compared values may outweigh all others, -1 if small
        ones may, and 0 if neither.
        """
        return self.monotonic

    @property
    def ranking(self) -> Response:
        """Return a response that ranks the candidates of each target in the same order.

        It neither saturates nor underflows, so that near candidates stay distinct.
        """
        if self.monotonic == 0:
            return self
        return Identity() if self.monotonic > 0 else Negative()

    def __call__(self, value: Tensor) -> Tensor:
        """Compute the scores of compared values, a row or a number per target."""
        if value.dim() == 1:
            return self.value(value, *self.params)
        return self.value(value, *(param.unsqueeze(-1) for param in self.params))

    def bounds_of_all(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor] | None:
        """Bound the scores of all targets between two ends :math:`[q]`, if possible."""
        if any(bool(param.amin() != param.amax()) for param in self.params):
            return None
        params = (param[:1].unsqueeze(1) for param in self.params)
        lower, upper = self.interval(low.unsqueeze(0), high.unsqueeze(0), *params)
        return lower[0], upper[0]


class Identity(Response):
    """The identity: compared values are scores."""

    monotonic = 1
    formula = 'identity'
    is_lipschitz = True

    @staticmethod
    def value(t: Tensor) -> Tensor:
        return t


class Negative(Response):
    r"""The response :math:`-t`, largest for small distances."""

    monotonic = -1
    formula = 'negative'
    is_lipschitz = True

    @staticmethod
    def value(t: Tensor) -> Tensor:
        return -t


class Difference(Response):
    r"""The response :math:`1 - t`, largest for opposite nodes."""

    monotonic = -1
    formula = 'difference'
    is_lipschitz = True

    @staticmethod
    def value(t: Tensor) -> Tensor:
        return 1 - t


class HeatKernel(Response):
    r"""The heat kernel :math:`\exp(-d^2 / t)` of squared distances."""

    monotonic = -1
    formula = 'heat_kernel'

    @staticmethod
    def value(distance: Tensor, t: Tensor | float) -> Tensor:
        return torch.exp(-distance / t)

    def bounds_of_all(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        (t,) = self.params
        return self.value(high, t.amin()), self.value(low, t.amax())


class Gaussian(Response):
    r"""The bell :math:`\exp(-(t - b)^2 / c)` of centre :math:`b` and width :math:`c`.

    Example:
        >>> Gaussian.value(torch.tensor([0.5, 0.7]), 0.5, 0.04)
        tensor([1.0000, 0.3679])
    """

    formula = 'gaussian'

    @staticmethod
    def value(t: Tensor, b: Tensor | float, c: Tensor | float) -> Tensor:
        return torch.exp((t - b).square() / -c)  # Negate c [n, 1], not the matrix.

    @classmethod
    def interval(
        cls, low: Tensor, high: Tensor, b: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        nearest = torch.minimum(torch.maximum(b, low), high)
        farthest = torch.where(b - low > high - b, low, high)
        return cls.value(farthest, b, c), cls.value(nearest, b, c)

    @property
    def ranking(self) -> Response:
        return MinusOffset(self.params[0])

    def bounds_of_all(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        b, c = self.params
        low, high = _offsets(low, high, b)
        zero = torch.zeros_like(c[0])
        lower, _ = self.interval(low, high, zero, c.amin())
        return lower, self.interval(low, high, zero, c.amax())[1]


class Mixture(Response):
    r"""The mixture :math:`a t + (1 - a) \exp(-(t - b)^2 / c)` of line and bell.

    The share :math:`a` of the line lies between 0 and 1, and :math:`t` is a cosine.

    Example:
        >>> Mixture.value(torch.tensor([0.5, 0.7]), 0.5, 0.5, 0.04)
        tensor([0.7500, 0.5339])
    """

    formula = 'mixture'
    head_sign = 1
    span = -1.0, 1.0

    @staticmethod
    def value(
        t: Tensor, a: Tensor | float, b: Tensor | float, c: Tensor | float
    ) -> Tensor:
        return a * t + (1 - a) * Gaussian.value(t, b, c)

    @classmethod
    def interval(
        cls, low: Tensor, high: Tensor, a: Tensor, b: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        lower, _ = Gaussian.interval(low, high, b, c)  # Each part by itself.
        peak = torch.minimum(torch.maximum(cls.peak(a, b, c), low), high)
        upper = torch.maximum(cls.value(peak, a, b, c), cls.value(high, a, b, c))
        return a * low + (1 - a) * lower, upper

    @staticmethod
    def peak(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        r"""Return where the mixture is largest near the centre of its bell.

        With :math:`t = b + u \sqrt{c}` it rises up to the first root of :math:`2 u
        e^{-u^2} = a \sqrt{c} / (1 - a)`, and everywhere if there is none.
        """
        width = c.sqrt()
        slope = a * width / (1 - a)
        last = math.sqrt(0.5)  # The left side rises up to here, and is concave.
        u = torch.zeros_like(slope)
        tiny = torch.finfo(u.dtype).tiny
        for _ in range(20):  # Newton's method; a double root gains one bit a step.
            bell = (-u.square()).exp()
            rise = (2 * bell * (1 - 2 * u.square())).clamp(min=tiny)
            u = (u + (slope - 2 * u * bell) / rise).clamp(max=last)
        return b + u * width

    def bounds_of_all(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        share, b, c = self.params
        lowest, highest = b.aminmax()
        width = c.amax()
        lower, _ = Gaussian(b, c).bounds_of_all(low, high)
        eps = 4 * torch.finfo(low.dtype).eps

        def largest(a: Tensor, t: Tensor) -> Tensor:
            offset = (t - t.clamp(lowest, highest)).abs() - eps * (
                t.abs() + highest.abs()
            )
            return a * t + (1 - a) * Gaussian.value(offset.clamp(min=0), 0, width)

        bounds = []
        for a in share.aminmax():
            peak = torch.minimum(torch.maximum(self.peak(a, highest, width), low), high)
            upper = torch.maximum(largest(a, peak), largest(a, high))
            bounds.append((a * low + (1 - a) * lower, upper))
        (lower, upper), (other_lower, other_upper) = bounds
        return torch.minimum(lower, other_lower), torch.maximum(upper, other_upper)


class MinusOffset(Response):
    r"""The response :math:`-|t - b|`, which ranks as :class:`Gaussian` does."""

    is_lipschitz = True

    @staticmethod
    def value(t: Tensor, b: Tensor | float) -> Tensor:
        return -(t - b).abs()

    @classmethod
    def interval(cls, low: Tensor, high: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        nearest = torch.minimum(torch.maximum(b, low), high)
        return -torch.maximum(b - low, high - b), cls.value(nearest, b)

    def bounds_of_all(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        (b,) = self.params
        return self.interval(*_offsets(low, high, b), torch.zeros_like(b[0]))


def _offsets(low: Tensor, high: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute intervals of the offsets of compared values from all centres."""
    lowest, highest = b.aminmax()
    eps = 4 * torch.finfo(low.dtype).eps
    low = low - highest - eps * (low.abs() + highest.abs())
    return low, high - lowest + eps * (high.abs() + lowest.abs())


#: The functions that keep the centres of learned bells among the cosines.
CENTRES: dict[str, Callable[[Tensor], Tensor]] = {
    'sigmoid': torch.sigmoid,
    'tanh': torch.tanh,
}


def neural_gaussian(
    z: Tensor,
    w_b: Tensor,
    w_c: Tensor,
    c_scale: float,
    bias_b: Tensor | None = None,
    bias_c: Tensor | None = None,
    centre: str = 'sigmoid',
) -> Gaussian:
    r"""Compute bells whose centres and widths depend on the targets' embeddings.

    .. math::
        b_i = \sigma(z_i w_b^{\top} + \beta_b), \qquad
        c_i = \gamma \, \mathrm{sigmoid}(z_i w_c^{\top} + \beta_c)

    Weights are :math:`[1, m]` and biases :math:`[1]`, zero by default; :math:`\sigma`
    is a function in :obj:`CENTRES`.
    """
    b, c = z @ w_b.to(z.dtype).view(-1), z @ w_c.to(z.dtype).view(-1)
    if bias_b is not None:
        b = b + bias_b.to(z.dtype)
    if bias_c is not None:
        c = c + bias_c.to(z.dtype)
    return Gaussian(CENTRES[centre](b), (c_scale * c.sigmoid()).clamp_min(MIN_WIDTH))


def weighted_heads(x: Tensor, weight: Tensor) -> Tensor:
    r"""Embed rows :math:`[n, d]` so that products are weighted cosines of heads.

    The rows :math:`w_p \odot x_i` of all heads, with weights :math:`[P, d]`, are scaled
    to unit norm, concatenated and divided by :math:`\sqrt{P}`, hence :math:`z_i \cdot
    z_j = \frac{1}{P} \sum_p \cos(w_p \odot x_i, w_p \odot x_j)`.
    """
    heads = unit_rows(x.unsqueeze(1) * weight)
    return heads.flatten(1) / math.sqrt(weight.size(0))
