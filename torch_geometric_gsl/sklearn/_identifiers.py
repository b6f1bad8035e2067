"""Find columns that identify groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict

from torch_geometric_gsl.sklearn._blend import mean_loss

# A group has at least this number of rows on average, and there are so many groups.
_LEAST_ROWS, _LEAST_GROUPS = 3, 5
# The share of the weight of neighbours in the own group, beyond that by chance.
_MOST_SHARED = 0.5
# Losses of held-back groups and of held-back rows differ by this factor.
_WORSE = 1.5
# Columns of fewer values are categories, unless another column varies between values
# much more than within them: it keeps at most this share of its variance.
_MANY_GROUPS, _WITHIN = 30, 0.3
# Rows that are looked at.
_MOST_ROWS = 4000


def find_identifier(
    columns: dict[Any, NDArray[Any]],
    rows: NDArray[Any],
    graph: Any,
    x: NDArray[Any],
    y: NDArray[Any],
    known: NDArray[Any],
    *,
    is_class: bool,
) -> tuple[Any, float] | None:
    """Find a column whose values identify groups that new rows may not belong to.

    Neighbours mostly share its value, and boosting is much worse for rows of values
    that it has not seen than for others. A column of few values is a category, such as
    a month, unless its values also determine another column, as a place its latitude.

    Args:
        columns (dict[Any, numpy.ndarray]): The columns by name.
        rows (numpy.ndarray): Some of the rows.
        graph (scipy.sparse.csr_matrix): The weights of their neighbours, one row each.
        x (numpy.ndarray): The same columns as numbers.
        y (numpy.ndarray): Classes, or numbers :math:`(n, C)`.
        known (numpy.ndarray): The labelled rows.
        is_class (bool): Whether targets are classes.

    Returns:
        The name of the column, and the ratio of the two losses.
    """
    some = np.random.RandomState(0).permutation(known)[:_MOST_ROWS]
    worst: tuple[Any, float] | None = None
    source, target = graph.indices, rows.repeat(np.diff(graph.indptr))
    # A row is its own nearest neighbour, which tells nothing.
    weight = graph.data * (source != target)
    for name, values in columns.items():
        codes, counts = _codes(values)
        if codes is None or not _LEAST_GROUPS <= len(counts) <= len(y) / _LEAST_ROWS:
            continue
        if len(np.unique(codes[some])) < _LEAST_GROUPS:
            continue
        others = [column for other, column in columns.items() if other != name]
        if len(counts) < _MANY_GROUPS and not _determines(codes, others):
            continue
        shared = weight @ (codes[source] == codes[target]) / max(weight.sum(), 1e-12)
        by_chance = np.square(counts / counts.sum()).sum()
        if shared - by_chance < _MOST_SHARED * (1 - by_chance):
            continue
        # One number a value: trees cannot use many rare columns of zeros and ones.
        coded = np.column_stack([x[some], codes[some]])
        folds = KFold(5, shuffle=True, random_state=0)
        at_random = _loss(coded, y[some], folds, None, is_class)
        by_group = _loss(coded, y[some], GroupKFold(5), codes[some], is_class)
        ratio = by_group / max(at_random, 1e-12)
        if ratio > _WORSE and (worst is None or ratio > worst[1]):
            worst = name, ratio
    return worst


def _codes(values: NDArray[Any]) -> tuple[Any, Any]:
    """Return the numbers of distinct values, and their counts, if they compare."""
    try:
        _, codes, counts = np.unique(
            values.astype(str) if values.dtype.kind == 'O' else values,
            return_inverse=True,
            return_counts=True,
        )
    except TypeError:
        return None, None
    return codes, counts


def _determines(codes: NDArray[Any], others: list[NDArray[Any]]) -> bool:
    """Return whether another column hardly varies among rows of one code."""
    counts = np.maximum(np.bincount(codes), 1)
    for column in others:
        values = column.astype(np.float64) if column.dtype.kind in 'biuf' else None
        if values is None:
            values, _ = _codes(column)
        if values is None or not np.isfinite(values).all():
            continue
        means = np.bincount(codes, values) / counts
        within = np.square(values - means[codes]).mean()
        if within < _WITHIN * values.var():
            return True
    return False


def _loss(x: Any, y: Any, folds: Any, groups: Any, is_class: bool) -> float:
    """Return the loss of boosting on held-back rows."""
    if is_class:
        classes, y = np.unique(y, return_inverse=True)
        model: Any = HistGradientBoostingClassifier(random_state=0)
        out = np.zeros((len(y), len(classes)))
        for train, held in folds.split(x, y, groups):
            known = np.unique(y[train])
            # Boosting needs two classes; one without rows has probability zero.
            out[np.ix_(held, known)] = (
                model.fit(x[train], y[train]).predict_proba(x[held])
                if len(known) > 1
                else 1.0
            )
        return mean_loss(out, y, np.ones(len(y)), is_class=True)
    model = HistGradientBoostingRegressor(random_state=0)
    target = y[:, 0]
    out = cross_val_predict(model, x, target, cv=folds, groups=groups)
    return mean_loss(out[:, None], y[:, :1], np.ones(len(y)), is_class=False)
