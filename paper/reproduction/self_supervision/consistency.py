"""Consistency of the predictions of several random passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl._checks import check_features, check_positive, check_type
from torch_geometric_gsl.ops.runtime import full_precision


def consistency_loss(outs: Sequence[Tensor], temperature: float = 0.5) -> Tensor:
    r"""Compute the distance of predictions of random passes to their sharpened mean,
    from the `"Graph Random Neural Network for Semi-Supervised Learning on Graphs"
    <https://arxiv.org/abs/2005.11079>`_ paper (equations 3 to 5).

    .. math::
        \mathcal{L} = \frac{1}{S n} \sum_{s=1}^{S} \sum_{i=1}^{n}
        \big\lVert \mathbf{p}_i^{(s)} - \bar{\mathbf{q}}_i \big\rVert^2, \qquad
        \bar{q}_{ic} \propto \Big( \frac{1}{S} \sum_s p_{ic}^{(s)} \Big)^{1 / T}

    where :math:`\mathbf{p}^{(s)}` are the probabilities of pass :math:`s`; no gradient
    flows through :math:`\bar{\mathbf{q}}`. Each pass samples another graph, so that
    unlabelled nodes train the sampler to choose neighbours with equal predictions. With
    few labels, add it to their loss with a growing weight, such as
    :obj:`min(1, epoch / 60)`.

    Args:
        outs (Sequence[torch.Tensor]): The logits of at least two passes,
            :math:`[n, C]` each, or one tensor of shape :math:`[S, n, C]`.
        temperature (float, optional): The temperature :math:`T`; values below one
            sharpen the mean. (default: :obj:`0.5`)

    Returns:
        torch.Tensor: The loss, a scalar; zero without nodes.

    Example:
        >>> outs = torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]]])
        >>> consistency_loss(outs)
        tensor(0.1129)
    """
    check_positive(temperature, 'temperature')
    logits = _stacked(outs)
    if logits.numel() == 0:
        return logits.sum()
    log_share = full_precision(logits).log_softmax(dim=-1)
    with torch.no_grad():
        target = (log_share.logsumexp(dim=0) / temperature).softmax(dim=-1)
    square = (log_share.exp() - target).square().sum(dim=-1)
    return square.mean().to(logits.dtype)


def _stacked(outs: Any) -> Tensor:
    """Check the logits of all passes and stack them [S, n, C]."""
    check_type(outs, (Tensor, Sequence), 'outs', 'a sequence of tensors')
    for part in outs:
        check_features(part, 'outs', is_finite=False)
    if len(outs) < 2:
        raise ValueError(f"'outs' must have at least two passes (got {len(outs)})")
    kinds = {f'{list(part.shape)} of {part.dtype}' for part in outs}
    if len(kinds) > 1:
        found = ' and '.join(sorted(kinds))
        raise ValueError(f"'outs' must have one shape and dtype (got {found})")
    return torch.stack([*outs])
