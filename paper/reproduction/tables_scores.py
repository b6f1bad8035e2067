"""Score predictions of tables."""

from __future__ import annotations

import math

import numpy as np

from reproduction.tables_data import Array

#: Class probabilities are at least this large.
LEAST = 1e-15

Scores = dict[str, float]


def score(y: Array, prediction: Array, num_classes: int) -> Scores:
    """Return the root mean squared error, or the error rate and the log loss.

    Args:
        y: The targets.
        prediction: Numbers, or class probabilities :math:`(n, C)`.
        num_classes: The number of classes; 0 for numbers.
    """
    if not num_classes:
        return {'rmse': float(np.sqrt(np.mean((prediction - y) ** 2)))}
    share = np.clip(prediction, LEAST, None)
    share = share / share.sum(axis=1, keepdims=True)
    own = share[np.arange(len(y)), y]
    return {
        'error': float(np.mean(prediction.argmax(axis=1) != y)),
        'log_loss': float(-np.log(own).mean()),
    }


def better(scores: Scores, than: Scores) -> bool:
    """Return whether scores are lower; the log loss breaks ties of errors."""
    known = list(scores.values())
    if not all(map(math.isfinite, known)):
        return False
    return known < list(than.values())
