"""Blend the predictions of several members by their loss on held-back rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

# Probabilities are at least this large in a loss.
_MIN_PROBABILITY = 1e-7
# The penalty of unequal weights for any number of rows, and that divided by it.
_PENALTY = 0.02
_PENALTY_OF_ROWS = 100.0
# A smaller weight is zero: its member is not worth its time.
_NEGLIGIBLE = 0.01
# With a larger ratio of losses a member has no weight, and would hinder the search.
_MAX_LOSS_RATIO = 1000.0


def row_losses(
    outputs: NDArray[Any], y: NDArray[Any], *, is_class: bool
) -> NDArray[Any]:
    """Return the log loss of probabilities, or the squared error of numbers, of rows.

    Outputs are :math:`(n, C)`; targets are classes :math:`(n)` or numbers
    :math:`(n, C)`.
    """
    if is_class:
        likelihood = np.clip(outputs[np.arange(len(y)), y], _MIN_PROBABILITY, None)
        return np.asarray(-np.log(likelihood))
    return np.asarray(np.square(outputs - y).mean(axis=1))


def mean_loss(
    outputs: NDArray[Any], y: NDArray[Any], weight: NDArray[Any], *, is_class: bool
) -> float:
    """Return the weighted mean of :func:`row_losses`."""
    losses = row_losses(outputs, y, is_class=is_class)
    return float(np.average(losses, weights=weight))


def is_certain(gain: NDArray[Any], weight: NDArray[Any]) -> bool:
    """Return whether the mean gain of rows exceeds its standard error."""
    share = weight / weight.sum()
    mean = share @ gain
    return bool(mean > np.sqrt(np.square(share * (gain - mean)).sum()))


def blend_weights(
    outputs: NDArray[Any], y: NDArray[Any], weight: NDArray[Any], *, is_class: bool
) -> NDArray[Any]:
    r"""Find the weights of members with the least loss of their mean.

    .. math::
        \min_{w \geq 0, \, \sum_m w_m = 1} \frac{L(\sum_m w_m f_m)}{\min_m L(f_m)}
        + \left( 0.02 + \frac{100}{n} \right) \sum_m (w_m - 1 / M)^2

    The fewer rows, the more the weights are alike. A loss below :math:`1 / n` of that
    of the mean target is no better than this.

    Args:
        outputs (numpy.ndarray): The outputs :math:`(M, n, C)` of the members.
        y (numpy.ndarray): Classes :math:`(n)`, or numbers :math:`(n, C)`.
        weight (numpy.ndarray): The weights of the rows.
        is_class (bool): If :obj:`True`, outputs are probabilities, and the loss is the
            log loss.

    Example:
        >>> y = np.arange(4000.0)[:, None]
        >>> outputs = np.stack([y + 1, -y])
        >>> blend_weights(outputs, y, np.ones(4000), is_class=False)
        array([1., 0.])
    """
    num_members = len(outputs)
    if num_members == 1:
        return np.ones(1)
    losses = np.array([mean_loss(o, y, weight, is_class=is_class) for o in outputs])
    share = weight / weight.sum()
    means = np.bincount(y, share, outputs.shape[2]) if is_class else share @ y
    constant = np.broadcast_to(means, outputs.shape[1:])
    rounding = mean_loss(constant, y, weight, is_class=is_class) / len(y)
    unit = max(losses.min(), rounding)
    if unit == 0:  # Constant targets, known exactly.
        unit = 1.0
    is_excluded = losses > _MAX_LOSS_RATIO * unit
    if is_excluded.any():
        w = np.zeros(num_members)
        w[~is_excluded] = blend_weights(
            outputs[~is_excluded], y, weight, is_class=is_class
        )
        return w
    penalty = _PENALTY + _PENALTY_OF_ROWS / len(y)
    if is_class:
        likelihood = np.clip(outputs[:, np.arange(len(y)), y], _MIN_PROBABILITY, None)

    def objective(w: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        if is_class:
            mean = w @ likelihood
            loss, slope = -share @ np.log(mean), -likelihood @ (share / mean)
        else:
            error = np.tensordot(w, outputs, axes=1) - y
            loss = share @ np.square(error).mean(axis=1)
            slope = 2 * np.einsum('mnc,nc,n->m', outputs, error, share) / y.shape[1]
        deviation = w - 1 / num_members
        loss = loss / unit + penalty * deviation @ deviation
        return loss, slope / unit + 2 * penalty * deviation

    result = minimize(
        objective,
        np.full(num_members, 1 / num_members),
        jac=True,
        method='SLSQP',
        bounds=[(0.0, 1.0)] * num_members,
        constraints={'type': 'eq', 'fun': lambda w: w.sum() - 1.0},
    )
    w = np.where(result.x < _NEGLIGIBLE, 0.0, result.x)
    return np.asarray(w / w.sum())


def weights_above_constant(
    outputs: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[Any],
    constant_loss: float,
    *,
    is_class: bool,
) -> NDArray[Any]:
    """Find :func:`blend_weights`, of the members that beat a constant if not of all.

    Nearly even weights of few rows include members without signal.
    """
    w = blend_weights(outputs, y, weight, is_class=is_class)
    losses = [mean_loss(out, y, weight, is_class=is_class) for out in outputs]
    loss = mean_loss(np.tensordot(w, outputs, axes=1), y, weight, is_class=is_class)
    is_better = np.less(losses, constant_loss)
    if loss < constant_loss or not is_better.any():
        return w
    w = np.zeros(len(outputs))
    w[is_better] = blend_weights(outputs[is_better], y, weight, is_class=is_class)
    return w
