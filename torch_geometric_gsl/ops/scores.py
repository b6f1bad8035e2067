r"""Scores of a pair of nodes: pure functions, elementwise over pairs.

A score is a *comparison* of two embeddings (inner product or squared distance)
followed by a *response* that maps the compared value to :math:`\phi`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# Keeps (t - b)^2 / c and its gradient finite in float32 when c underflows.
MIN_WIDTH = 1e-9
# Beyond this square float32 overflows, and so do gradients.
MAX_SQUARE = 1e36
# Squares of double precision reach further: rankings compare them.
_MAX_DOUBLE_SQUARE = 1e300


def unit_rows(x: Tensor) -> Tensor:
    r"""Scale the rows of :obj:`x` to unit 2-norm; rows of zeros stay zero.

    Unlike :func:`torch.nn.functional.normalize` neither tiny nor huge rows
    underflow or overflow, and the gradient of a row of zeros stays finite.

    Args:
        x (torch.Tensor): Rows :math:`[*, m]`.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    if x.numel() == 0:
        return x
    # The direction does not depend on the length, so neither does the gradient
    # depend on treating this factor as a constant.
    rows = x.detach()
    largest = torch.maximum(rows.amax(-1, keepdim=True), -rows.amin(-1, keepdim=True))
    x = x / largest.masked_fill_(largest == 0, 1)
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    norm = norm.masked_fill(norm == 0, 1)
    # Fresh memory takes longer to get than to fill.
    return x / norm if x.requires_grad else x.div_(norm)


def squared_distance(u: Tensor, v: Tensor) -> Tensor:
    r"""Return :math:`\lVert u - v \rVert^2` over the last dimension.

    Args:
        u (torch.Tensor): Rows :math:`[*, m]`.
        v (torch.Tensor): Rows that broadcast against these.
    """
    return (u - v).square().sum(dim=-1).clamp(max=max_square(u.dtype))


def max_square(dtype: torch.dtype) -> float:
    """Return the largest squared distance that is told from larger ones."""
    return _MAX_DOUBLE_SQUARE if dtype == torch.float64 else MAX_SQUARE


def squared_distance_matrix(u: Tensor, v: Tensor) -> Tensor:
    r"""Return :math:`\lVert u_i - v_j \rVert^2` of all pairs of rows.

    The differences are squared, not the rows: expanding the square would lose the
    distances of near nodes where others are far.

    Args:
        u (torch.Tensor): Rows :math:`[*, n, m]`.
        v (torch.Tensor): Rows :math:`[*, N, m]`.

    Returns:
        torch.Tensor: Squared distances :math:`[*, n, N]`.
    """
    distance = torch.cdist(u, v, compute_mode='donot_use_mm_for_euclid_dist')
    return distance.clamp(max=math.sqrt(max_square(u.dtype))).square()


class Response(NamedTuple):
    r"""A response: a function of compared values, with parameters of each target.

    Kernels know the functions of this module by name (:data:`FORMULAS`); PyTorch
    calls any other.

    Args:
        function (Callable): Maps compared values :math:`[n, q]` and the parameters
            :math:`[n, 1]` to scores :math:`[n, q]`, element by element.
        params (tuple[torch.Tensor, ...], optional): The parameters of each target,
            :math:`[n]` each. (default: :obj:`()`)
        interval (Callable, optional): Maps the ends :math:`[n, q]` of intervals of
            compared values, and the parameters :math:`[n, 1]`, to a lower and an upper
            bound of the scores there. Known functions have one (:data:`INTERVALS`);
            without one a race can only use the bounds of all scores.
            (default: :obj:`None`)

    Example:
        >>> response = Response(gaussian, (torch.tensor([0.5]), torch.tensor([0.04])))
        >>> response(torch.tensor([[0.5, 0.7]]))
        tensor([[1.0000, 0.3679]])
    """

    function: Callable[..., Tensor]
    params: tuple[Tensor, ...] = ()
    interval: Callable[..., tuple[Tensor, Tensor]] | None = None

    def __call__(self, value: Tensor, rows: slice | Tensor = slice(None)) -> Tensor:
        """Map the compared values of some targets, or of pairs of them, to scores.

        Args:
            value (torch.Tensor): Compared values: a row for each of the targets, or
                one value for each.
            rows (slice or torch.Tensor): The targets. (default: :obj:`slice(None)`)
        """
        if value.dim() > 1:
            return self.function(value, *self.params_of(rows))
        return self.function(value, *(param[rows] for param in self.params))

    def bounds(
        self, low: Tensor, high: Tensor, rows: slice | Tensor = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Bound the scores of compared values that lie in intervals.

        Args:
            low (torch.Tensor): The lower ends of the intervals of some targets, a row
                each.
            high (torch.Tensor): Their upper ends.
            rows (slice or torch.Tensor, optional): The targets.
                (default: :obj:`slice(None)`)

        Raises:
            ValueError: If the response has no :obj:`interval`.
        """
        return self.bounded_by(low, high, *self.params_of(rows))

    @property
    def bounded_by(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the function that bounds scores of intervals of values."""
        interval = self.interval or INTERVALS.get(self.function)
        if interval is None:
            raise ValueError("the 'response' has no 'interval' (got None)")
        return interval

    @property
    def ranking(self) -> Response:
        """Return a response that ranks the candidates of each target in the same order.

        It neither saturates nor underflows, so that near candidates are told apart.
        """
        function = RANKINGS.get(self.function)
        if function is None:
            return self
        params = self.params[:1] if function is minus_offset else ()
        return Response(function, params)

    def params_of(self, rows: slice | Tensor) -> list[Tensor]:
        """Return the parameters of some targets, a row each."""
        return [param[rows].unsqueeze(-1) for param in self.params]

    @property
    def has_interval(self) -> bool:
        """Return whether scores of intervals of compared values can be bounded."""
        return self.interval is not None or self.function in INTERVALS

    @property
    def formula(self) -> str | None:
        """Return the name by which kernels know the function, if they do."""
        return FORMULAS.get(self.function)


def identity(t: Tensor) -> Tensor:
    r"""Return the compared values as they are.

    Args:
        t (torch.Tensor): Compared values.
    """
    return t


def gaussian(t: Tensor, b: Tensor | float, c: Tensor | float) -> Tensor:
    r"""Return the bell-shaped response :math:`\exp(-(t - b)^2 / c)`.

    Args:
        t (torch.Tensor): Compared values.
        b (torch.Tensor or float): The centres of the bells.
        c (torch.Tensor or float): Their widths, positive.

    Example:
        >>> gaussian(torch.tensor([0.5, 0.7]), b=0.5, c=0.04)
        tensor([1.0000, 0.3679])
    """
    return torch.exp(-(t - b).square() / c)


def difference(t: Tensor) -> Tensor:
    r"""Return :math:`1 - t`, largest for opposite nodes.

    Args:
        t (torch.Tensor): Compared values.
    """
    return 1 - t


def heat_kernel(distance: Tensor, t: Tensor | float) -> Tensor:
    r"""Return the heat kernel :math:`\exp(-d^2 / t)` of squared distances.

    Args:
        distance (torch.Tensor): Squared distances :math:`d^2`.
        t (torch.Tensor or float): The widths of the kernels, positive.
    """
    return torch.exp(-distance / t)


def minus_offset(t: Tensor, b: Tensor | float) -> Tensor:
    r"""Return :math:`-|t - b|`, which ranks as :func:`gaussian` does.

    Args:
        t (torch.Tensor): Compared values.
        b (torch.Tensor or float): The centres of the bells.
    """
    return -(t - b).abs()


def negative(distance: Tensor) -> Tensor:
    r"""Return :math:`-d^2`, which ranks as :func:`heat_kernel` does.

    Args:
        distance (torch.Tensor): Squared distances :math:`d^2`.
    """
    return -distance


#: What ranks candidates as the known responses do, without an exponential. Each changes
#: by at most as much as the compared value.
RANKINGS: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    identity: identity,
    difference: difference,
    gaussian: minus_offset,
    heat_kernel: negative,
    negative: negative,
}


#: The responses that kernels know, and their names there.
FORMULAS: dict[Callable[..., Tensor], str] = {
    identity: 'identity',
    difference: 'difference',
    gaussian: 'gaussian',
    heat_kernel: 'heat_kernel',
    negative: 'negative',
}


def identity_interval(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    r"""Bound :func:`identity` on intervals."""
    return low, high


def difference_interval(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    r"""Bound :func:`difference` on intervals."""
    return 1 - high, 1 - low


def gaussian_interval(
    low: Tensor, high: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Bound :func:`gaussian` on intervals: largest next to the centre."""
    nearest = torch.minimum(torch.maximum(b, low), high)
    farthest = torch.where(b - low > high - b, low, high)
    return gaussian(farthest, b, c), gaussian(nearest, b, c)


def minus_offset_interval(
    low: Tensor, high: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Bound :func:`minus_offset` on intervals: largest next to the centre."""
    nearest = torch.minimum(torch.maximum(b, low), high)
    return -torch.maximum(b - low, high - b), minus_offset(nearest, b)


def negative_interval(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    r"""Bound :func:`negative` on intervals."""
    return -high, -low


def heat_kernel_interval(low: Tensor, high: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    r"""Bound :func:`heat_kernel` on intervals."""
    return heat_kernel(high, t), heat_kernel(low, t)


#: What bounds the known responses on intervals of compared values.
INTERVALS: dict[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]] = {
    identity: identity_interval,
    difference: difference_interval,
    gaussian: gaussian_interval,
    heat_kernel: heat_kernel_interval,
    minus_offset: minus_offset_interval,
    negative: negative_interval,
}


#: The functions that keep the centres of learned bells among the cosines.
CENTRES: dict[str, Callable[[Tensor], Tensor]] = {
    'sigmoid': torch.sigmoid,
    'tanh': torch.tanh,
}


def neural_centre(
    z: Tensor, w_b: Tensor, bias: Tensor | None = None, centre: str = 'sigmoid'
) -> Tensor:
    r"""Return the centres of the bells, :math:`b_i = \sigma(z_i w_b^{\top} + \beta_b)`.

    Args:
        z (torch.Tensor): Embeddings of the targets :math:`[n, m]`.
        w_b (torch.Tensor): The weights :math:`w_b` of the channels :math:`[1, m]`.
        bias (torch.Tensor, optional): The bias :math:`\beta_b` :math:`[1]`, zero if
            :obj:`None`. (default: :obj:`None`)
        centre (str, optional): The function :math:`\sigma`, :obj:`"sigmoid"` or
            :obj:`"tanh"`. (default: :obj:`"sigmoid"`)
    """
    return CENTRES[centre](_line(z, w_b, bias))


def neural_width(
    z: Tensor, w_c: Tensor, c_scale: float, bias: Tensor | None = None
) -> Tensor:
    r"""Return their widths, :math:`c_i = \gamma \, \sigma(z_i w_c^{\top} + \beta_c)`.

    Args:
        z (torch.Tensor): Embeddings of the targets :math:`[n, m]`.
        w_c (torch.Tensor): The weights :math:`w_c` of the channels :math:`[1, m]`.
        c_scale (float): The largest width :math:`\gamma`.
        bias (torch.Tensor, optional): The bias :math:`\beta_c` :math:`[1]`, zero if
            :obj:`None`. (default: :obj:`None`)
    """
    return (c_scale * torch.sigmoid(_line(z, w_c, bias))).clamp_min(MIN_WIDTH)


def _line(z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    line = z @ weight.view(-1)
    return line if bias is None else line + bias


def weighted_heads(x: Tensor, weight: Tensor) -> Tensor:
    r"""Embed rows so that inner products are multi-head weighted cosines.

    The rows :math:`w_p \odot x_i` of all heads, each scaled to unit norm, stand
    side by side and are divided by :math:`\sqrt{P}`, hence
    :math:`z_i \cdot z_j = \frac{1}{P} \sum_p \cos(w_p \odot x_i, w_p \odot x_j)`.

    Args:
        x (torch.Tensor): Rows :math:`[n, d]`.
        weight (torch.Tensor): Head weights :math:`[P, d]`.
    """
    heads = unit_rows(x.unsqueeze(1) * weight)
    flat: Tensor = heads.flatten(1) / math.sqrt(weight.size(0))
    return flat
