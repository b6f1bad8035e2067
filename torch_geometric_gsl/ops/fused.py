r"""Scores given by a formula, which a kernel can compute beside its own work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_gsl.ops import scores
from torch_geometric_gsl.ops.compiled import fastest

#: What the response of a :class:`FusedScore` can be.
RESPONSES = ('identity', 'difference', 'gaussian', 'heat_kernel')


class FusedScore(NamedTuple):
    r"""A score as a formula of two embeddings.

    .. math::
        s_{ij} = \mathrm{scale} \cdot \phi(v_{ij}), \qquad
        \phi(v) \in \left\{ v, \; 1 - v, \; e^{-(v - b_i)^2 / c_i}, \;
        e^{-v / c_i} \right\}

    where :math:`v_{ij}` denotes the inner product of target :math:`i` and source
    :math:`j`, or for the heat kernel their squared distance.

    Args:
        dst (torch.Tensor): Embeddings of the targets :math:`[n, m]`.
        src (torch.Tensor): Embeddings of the sources :math:`[N, m]`.
        response (str, optional): The response :math:`\phi`, :obj:`"identity"`,
            :obj:`"difference"`, :obj:`"gaussian"` or :obj:`"heat_kernel"`.
            (default: :obj:`"identity"`)
        b (torch.Tensor, optional): The centre of each bell :math:`[n]`.
            (default: :obj:`None`)
        c (torch.Tensor, optional): The width of each bell or heat kernel
            :math:`[n]`. (default: :obj:`None`)
        scale (float, optional): The factor of all scores. (default: :obj:`1.0`)

    Example:
        >>> fused = FusedScore(torch.eye(2), torch.eye(2), 'difference', scale=3.0)
        >>> fused.score(slice(0, 2), torch.tensor([[0, 1], [0, 1]]))
        tensor([[0., 3.],
                [3., 0.]])
    """

    dst: Tensor
    src: Tensor
    response: str = 'identity'
    b: Tensor | None = None
    c: Tensor | None = None
    scale: float = 1.0

    def score(self, rows: slice, source: Tensor) -> Tensor:
        r"""Scores the sources that each target of a block lists: the definition.

        Args:
            rows (slice): The targets.
            source (torch.Tensor): Their sources :math:`[|\mathrm{rows}|, q]`.
        """
        target, gathered = self.dst[rows].unsqueeze(1), self.src[source]
        if self.response == 'heat_kernel':
            value = scores.squared_distance(target, gathered)
        else:
            value = scores.dot(target, gathered)
        return self.scale * self._respond(value, rows)

    def _respond(self, value: Tensor, rows: slice) -> Tensor:
        self.check()
        if self.response == 'difference':
            return scores.difference(value)
        if self.c is None:
            return value
        c = self.c[rows].unsqueeze(1)
        if self.b is None:
            return scores.heat_kernel(value, c)
        return scores.gaussian(value, self.b[rows].unsqueeze(1), c)

    def weights(self, rows: slice, columns: slice, tau: float, upper: float) -> Tensor:
        r"""Weights :math:`e^{(s_{ij} - s_{\max}) / \tau}` of all pairs of two blocks.

        Args:
            rows (slice): The targets.
            columns (slice): The sources.
            tau (float): The temperature :math:`\tau`.
            upper (float): An upper bound :math:`s_{\max}` of the scores.
        """
        self.check()
        dst, src = self.dst[rows], self.src[columns]
        is_distance = self.response == 'heat_kernel'
        compare = scores.squared_distance_matrix if is_distance else scores.dot_matrix
        factor, shift = self.scale / tau, -upper / tau
        if self.response == 'difference':  # scale * (1 - v)
            factor, shift = -factor, shift + factor
        params = (p[rows].unsqueeze(1) for p in (self.b, self.c) if p is not None)
        line = (dst.new_full((), factor), dst.new_full((), shift))
        value = compare(dst, src)
        function = _WEIGHTS.get(self.response, exp_line)
        return fastest(function, value.numel(), dst.device)(value, *line, *params)

    def check(self) -> None:
        r"""Checks that the response is known and has its parameters.

        Raises:
            ValueError: If it is unknown, or :obj:`b` or :obj:`c` is missing or has no
                meaning for it.
        """
        if self.response not in RESPONSES:
            raise ValueError(
                f"'response' must be one of {RESPONSES} (got '{self.response}')"
            )
        wanted = {'gaussian': (True, True), 'heat_kernel': (False, True)}
        given = self.b is not None, self.c is not None
        if given != wanted.get(self.response, (False, False)):
            raise ValueError(
                f"'gaussian' takes 'b' and 'c', 'heat_kernel' takes 'c', and other "
                f"responses take neither (got '{self.response}' with "
                f'b={self.b is not None}, c={self.c is not None})'
            )


def exp_line(value: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    r"""The exponential of a linear function of the scores."""
    return (value * factor + shift).exp()


def exp_gaussian(
    value: Tensor, factor: Tensor, shift: Tensor, b: Tensor, c: Tensor
) -> Tensor:
    r"""The same of bells."""
    return exp_line(scores.gaussian(value, b, c), factor, shift)


def exp_heat_kernel(value: Tensor, factor: Tensor, shift: Tensor, c: Tensor) -> Tensor:
    r"""The same of heat kernels with a width of each target."""
    return exp_line(scores.heat_kernel(value, c), factor, shift)


_WEIGHTS: dict[str, Callable[..., Tensor]] = {
    'gaussian': exp_gaussian,
    'heat_kernel': exp_heat_kernel,
}


def has_triton(device: torch.device) -> bool:
    r"""Whether Triton kernels can run on a device.

    It takes an installed Triton and a GPU of compute capability 8.0 or later.

    Args:
        device (torch.device): The device.

    Example:
        >>> has_triton(torch.device('cpu'))
        False
    """
    if device.type != 'cuda' or not _is_installed():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def _is_installed() -> bool:
    return find_spec('triton') is not None
