r"""Attention over all pairs of nodes in linear time, by random features."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def orthogonal_directions(
    num_features: int,
    channels: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draw standard normal directions :math:`[M, d]` that are orthogonal to each
    other within each block of :math:`d` of them.

    Orthogonal directions cover space more evenly than independent ones, so that
    estimates from them vary less.
    """

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, dtype=dtype, device=device, generator=generator)

    # In one piece, so that the signs make each of them uniform on the sphere.
    num_blocks = math.ceil(num_features / channels)
    basis, upper = torch.linalg.qr(normal(num_blocks, channels, channels))
    basis = basis * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    length = normal(num_features, channels).norm(dim=1, keepdim=True)
    directions: Tensor = basis.mT.flatten(0, 1)[:num_features] * length
    return directions


def feature_exponents(x: Tensor, directions: Tensor) -> Tensor:
    r"""Return the logarithms of positive random features, from the `"Rethinking
    Attention with Performers" <https://arxiv.org/abs/2009.14794>`_ paper.

    .. math::
        \log \varphi_m(x) = w_m \cdot x - \frac{\lVert x \rVert^2}{2}, \qquad
        \mathbb{E}_{w_m} \left[ \varphi_m(x) \, \varphi_m(y) \right] = e^{x \cdot y}

    where :math:`w_m` is a standard normal direction.
    """
    return x @ directions.t() - x.square().sum(dim=-1, keepdim=True) / 2


def kernel_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    directions: Tensor,
    noise: Tensor | None = None,
) -> Tensor:
    r"""Return attention through sums over the keys, averaged over draws of noise.

    .. math::
        y_i = \frac{1}{K} \sum_{k=1}^K \frac{\sum_j \kappa(q_i, k_j) \, e^{g_{jk}}
        v_j}{\sum_j \kappa(q_i, k_j) \, e^{g_{jk}}}, \qquad
        \kappa(q, k) = \sum_m \varphi_m(q) \, \varphi_m(k) \approx M e^{q \cdot k}

    where :math:`\varphi_m` are the features of :func:`feature_exponents`. Time and
    memory are linear in the numbers of queries and of keys. Queries are
    :math:`[n, H, d]`, keys :math:`[N, H, d]`, values :math:`[N, H, c]`, directions
    :math:`[M, d]`, and the noise :math:`g` of the keys :math:`[N, H, K]`.
    """
    if noise is None:
        noise = key.new_zeros(*key.shape[:2], 1)
    left = feature_exponents(query.transpose(0, 1), directions)
    right = feature_exponents(key.transpose(0, 1), directions).mT.contiguous()
    value = value.transpose(0, 1)
    out = torch.zeros((), dtype=value.dtype, device=value.device)
    # Each feature keeps a mean of the values and its mass, and a query mixes the means:
    # the same sums, of numbers that neither overflow nor vanish all at once.
    for gumbel in noise.permute(2, 1, 0).unsqueeze(2):
        exponent = right + gumbel
        shift = exponent.detach().amax(dim=-1, keepdim=True)
        weight = (exponent - shift).exp()
        mass = weight.sum(dim=-1, keepdim=True)
        mixture = (left + (mass.log() + shift).mT).softmax(dim=-1)
        out = out + mixture @ ((weight @ value) / mass)
    return (out / noise.size(2)).transpose(0, 1)
