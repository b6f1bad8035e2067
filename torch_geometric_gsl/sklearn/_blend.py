"""Blend the predictions of members by weights of the least loss on held-back rows."""

from __future__ import annotations

from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._members import constant_of, control_outputs
from torch_geometric_gsl.sklearn._splits import MIN_VALIDATION, RowSplit, Table

# Probabilities are at least this large in a loss.
_MIN_PROBABILITY = 1e-7
# The penalty of unequal weights for any number of rows, and that divided by it.
_PENALTY = 0.02
_PENALTY_OF_ROWS = 100.0
# A smaller weight is zero: its member is not worth its time.
_NEGLIGIBLE = 0.01
# With a larger ratio of losses a member has no weight, and would hinder the search.
_MAX_LOSS_RATIO = 1000.0
# A larger share of the loss of a constant is hardly a signal.
_WEAK_SIGNAL = 0.98


class Blend(NamedTuple):
    """Members and the weights of their mean; the losses are those of held-back rows."""

    members: list[Any]  # Those with a weight.
    weights: dict[str, float]
    far_weights: dict[str, float]  # For rows that are far from all training rows.
    losses: dict[str, float]
    constant: NDArray[Any]  # The mean target.
    is_constant: bool  # If True, nothing predicts better.

    @property
    def report(self) -> dict[str, tuple[float, float]]:
        """Return the loss and the weight of each model, or NaN."""
        weights = {'constant': 1.0} if self.is_constant else self.weights
        return {
            name: (self.losses.get(name, np.nan), weights.get(name, np.nan))
            for name in self.losses or weights
        }

    @property
    def learned(self) -> list[Any]:
        """Return the members with neighbours."""
        return [member for member in self.members if member.family == 'learned']

    @property
    def limit(self) -> float | None:
        """Return the learned distance to training rows beyond which rows are far."""
        # Duplicates tell no distance.
        return (self.learned[0].far or None) if self.learned else None

    def nearness(self, distances: Any) -> Any:
        """Return 1 up to the limit of distances, less beyond it."""
        limit: Any = self.limit
        return np.square(limit / np.maximum(distances, limit))

    def is_far(self, x: Any) -> Any:
        """Return which new rows are beyond the limit."""
        if self.limit is None:
            return np.zeros(x.shape[0], dtype=bool)
        return self.nearness(self.learned[0].distances(x)) < 1

    def outputs(self, x: Any) -> tuple[Any, list[Any]]:
        """Compute the nearness of new rows, and the outputs of all members."""
        if self.limit is None:
            nearness = np.ones(x.shape[0])
            return nearness, [member.outputs(x) for member in self.members]
        learned = self.learned[0]
        learned_outputs, distances = learned.outputs_and_distances(x)
        outputs = [
            learned_outputs if member is learned else member.outputs(x)
            for member in self.members
        ]
        return self.nearness(distances), outputs

    def mean(self, nearness: Any, outputs: list[Any]) -> Any:
        """Return the weighted mean over members, or the constant."""
        mean = np.einsum('mn,mnc->nc', self._row_weights(nearness), np.stack(outputs))
        return self.constant + 0 * mean if self.is_constant else mean

    def _row_weights(self, nearness: Any) -> Any:
        """Return the weights of members for each row.

        Those of far rows move to members that need no near rows.
        """
        weight = np.array([self.weights[member.name] for member in self.members])
        weight = np.tile(weight[:, None] / weight.sum(), len(nearness))
        if self.limit is None or not self.far_weights:
            return weight
        far_weight = [
            [self.far_weights.get(member.name, 0.0)] for member in self.members
        ]
        return nearness * weight + (1 - nearness) * np.array(far_weight)

    def contributions(self, x: Any) -> dict[str, Any]:
        """Divide the outputs of new rows into what they come from."""
        nearness, outputs = self.outputs(x)
        outputs_alone = [
            member.without_neighbours(x) if member.family == 'learned' else out
            for member, out in zip(self.members, outputs, strict=True)
        ]
        is_tree = np.array([member.family == 'trees' for member in self.members])
        weight = self._row_weights(nearness) * (not self.is_constant)
        change = np.stack(outputs_alone) - self.constant
        trees, networks = (
            np.einsum('mn,mnc->nc', weight[mask], change[mask])
            for mask in (is_tree, ~is_tree)
        )
        total = self.mean(nearness, outputs)
        return {
            'constant': np.broadcast_to(self.constant, total.shape),
            'trees': trees,
            'own columns': networks,
            'neighbours': total - self.constant - trees - networks,
            'prediction': total,
        }

    def graphs(self, x: Any = None) -> tuple[list[float], list[Any]]:
        """Return the graphs of networks with neighbours, and their shares."""
        shares = []
        graphs = []
        total = sum(self.weights[member.name] for member in self.learned)
        for member in self.learned:
            share = self.weights[member.name] / total / len(member.models)
            shares += [share] * len(member.models)
            graphs += member.graphs(x)
        return shares, graphs

    def graph(self, x: Any = None) -> Any:
        """Return the mean graph of networks, of new rows or of the training rows."""
        return sum(map(mul, *self.graphs(x)))


def fit_blend(
    members: list[Any],
    val_outputs: NDArray[Any],
    x: Any,
    table: Table,
    splits: list[RowSplit],
) -> Blend:
    """Find the weights of members by their outputs of the rows that splits hold back.

    Members without weight are dropped. The rows are numbers, dense or sparse.
    """
    num_outputs = val_outputs.shape[-1]
    if all(split is splits[0] for split in splits):  # The same rows, several times.
        shape = len(val_outputs), len(splits), -1, num_outputs
        val_outputs = val_outputs.reshape(shape).mean(axis=1)
        splits = splits[:1]
    val = np.concatenate([split.val for split in splits])
    y = table.y.cpu().numpy()
    weight = table.weight.cpu().double().numpy()
    labelled = np.flatnonzero(weight > 0)
    constant = constant_of(y[labelled], weight[labelled], num_outputs)
    names = [member.name for member in members]
    far = [i for i, member in enumerate(members) if member.serves_far]
    w = np.full(len(members), 1 / len(members))
    far_w = np.full(len(far), 1 / max(1, len(far)))
    losses: dict[str, float] = {}
    if len(val) >= MIN_VALIDATION:
        controls, rows = control_outputs(x, y, weight, splits, num_outputs)
        control_losses = {
            name: mean_loss(out, y[rows], weight[rows])
            for name, out in controls.items()
        }
        w = weights_above_constant(
            *(val_outputs, y[val], weight[val], control_losses['constant'])
        )
        if far:
            far_w = blend_weights(val_outputs[far], y[val], weight[val])
        of_rows = [
            row_losses(outputs, y[val])
            for outputs in (np.tensordot(w, val_outputs, axes=1), *val_outputs)
        ]
        means = np.average(of_rows, axis=1, weights=weight[val]).tolist()
        losses = dict(zip(['blend', *names], means, strict=True)) | control_losses
        constants = np.tile(constant, (len(val), 1))
        gain = row_losses(constants, y[val]) - of_rows[0]
        _warn_of_signal(losses, is_sure=is_certain(gain, weight[val]))
    elif len(members) > 1:
        warn_caller(
            f"graph='auto' weighs its {len(members)} members alike: too few of "
            f'{len(y)} rows, or of those of a class, are held back for validation',
            UserWarning,
        )
    weights = dict(zip(names, w.tolist(), strict=True))
    far_weights = dict(zip([names[i] for i in far], far_w.tolist(), strict=True))
    return Blend(
        # Those for far rows stay, even without weight.
        [m for m in members if weights[m.name] + far_weights.get(m.name, 0) > 0],
        weights,
        far_weights,
        losses,
        constant,
        is_constant=bool(losses) and losses['blend'] >= losses['constant'],
    )


def _warn_of_signal(losses: dict[str, float], *, is_sure: bool) -> None:
    """Warn if hardly any signal was found, or none that is surely one."""
    loss = losses['blend']
    constant_loss = losses['constant']
    losses_text = f'(loss {loss:.3g}, of the constant {constant_loss:.3g})'
    is_weak = loss > _WEAK_SIGNAL * constant_loss
    if constant_loss == 0:
        return
    if loss >= constant_loss:
        warn_caller(
            'no signal was found: on held-back rows the estimator is no better '
            f'than a constant {losses_text}, which it predicts instead',
            ConvergenceWarning,
        )
    elif is_weak or not is_sure:
        warn_caller(
            'little signal was found: on held-back rows the estimator is '
            f'{"hardly" if is_weak else "not surely"} better than a constant '
            f'{losses_text}',
            ConvergenceWarning,
        )


def row_losses(outputs: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return the log loss of probabilities, or the squared error of numbers, of rows.

    Outputs are :math:`(n, C)`; targets are classes :math:`(n)` or numbers
    :math:`(n, C)`.
    """
    if y.ndim == 1:
        likelihood = np.clip(outputs[np.arange(len(y)), y], _MIN_PROBABILITY, None)
        return np.asarray(-np.log(likelihood))
    return np.asarray(np.square(outputs - y).mean(axis=1))


def mean_loss(outputs: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> float:
    """Return the weighted mean of :func:`row_losses`."""
    losses = row_losses(outputs, y)
    return float(np.average(losses, weights=weight))


def is_certain(gain: NDArray[Any], weight: NDArray[Any]) -> bool:
    """Return whether the mean gain of rows exceeds its standard error."""
    share = weight / weight.sum()
    mean = share @ gain
    return bool(mean > np.sqrt(np.square(share * (gain - mean)).sum()))


def blend_weights(
    outputs: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]
) -> NDArray[Any]:
    r"""Find the weights of members with the least loss of their mean.

    .. math::
        \min_{w \geq 0, \, \sum_m w_m = 1} \frac{L(\sum_m w_m f_m)}{\min_m L(f_m)}
        + \left( 0.02 + \frac{100}{n} \right) \sum_m (w_m - 1 / M)^2

    The fewer rows, the more the weights are alike. A loss below :math:`1 / n` of that
    of the mean target is no better than this.

    Args:
        outputs (numpy.ndarray): The outputs :math:`(M, n, C)` of the members.
        y (numpy.ndarray): Classes :math:`(n)`, with outputs that are probabilities and
            the log loss, or numbers :math:`(n, C)`.
        weight (numpy.ndarray): The weights of the rows.

    Example:
        >>> y = np.arange(4000.0)[:, None]
        >>> outputs = np.stack([y + 1, -y])
        >>> blend_weights(outputs, y, np.ones(4000))
        array([1., 0.])
    """
    is_class = y.ndim == 1
    num_members = len(outputs)
    if num_members == 1:
        return np.ones(1)
    losses = np.array([mean_loss(o, y, weight) for o in outputs])
    share = weight / weight.sum()
    means = np.bincount(y, share, outputs.shape[2]) if is_class else share @ y
    constant = np.broadcast_to(means, outputs.shape[1:])
    rounding = mean_loss(constant, y, weight) / len(y)
    unit = max(losses.min(), rounding)
    if unit == 0:  # Constant targets, known exactly.
        unit = 1.0
    is_excluded = losses > _MAX_LOSS_RATIO * unit
    if is_excluded.any():
        w = np.zeros(num_members)
        w[~is_excluded] = blend_weights(outputs[~is_excluded], y, weight)
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
) -> NDArray[Any]:
    """Find :func:`blend_weights`, of the members that beat a constant if not of all.

    Nearly even weights of few rows include members without signal.
    """
    w = blend_weights(outputs, y, weight)
    losses = [mean_loss(out, y, weight) for out in outputs]
    loss = mean_loss(np.tensordot(w, outputs, axes=1), y, weight)
    is_better = np.less(losses, constant_loss)
    if loss < constant_loss or not is_better.any():
        return w
    w = np.zeros(len(outputs))
    w[is_better] = blend_weights(outputs[is_better], y, weight)
    return w
