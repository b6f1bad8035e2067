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

# Rows of a group on average, at least.
_MIN_ROWS = 3
_MIN_GROUPS = 5
# Share of the weight on neighbours of the row's own group, beyond that by chance.
_MIN_SHARED = 0.5
# Ratio of the losses of held-back groups and of held-back rows, at least.
_MIN_RATIO = 1.5
# Columns of fewer values are categories, unless they determine another column.
_MANY_GROUPS = 30
# Share of a column's variance within groups that determine it, at most.
_MAX_WITHIN = 0.3
# Rows on which boosting is fitted.
_MAX_ROWS = 4000


def find_identifier(
    columns: dict[Any, NDArray[Any]],
    rows: NDArray[Any],
    graph: Any,
    x: NDArray[Any],
    y: NDArray[Any],
    labelled: NDArray[Any],
    *,
    is_class: bool,
) -> tuple[Any, float] | None:
    """Find a column whose values identify groups that new rows may not belong to.

    Neighbours mostly share its value, and boosting is much worse for rows of values
    that it has not seen than for others. A column of few values is a category, such as
    a month, unless its values also determine another column, as a place its latitude. A
    column of numbers is a quantity, such as an hour, if boosting is much worse still
    where neighbouring values are unseen, too: the loss of unseen values is then nearer
    to that of random rows than to that of unseen intervals.

    Args:
        columns (dict[Any, numpy.ndarray]): The columns by name.
        rows (numpy.ndarray): Some of the rows.
        graph (scipy.sparse.csr_matrix): The weights of their neighbours, one row each.
        x (numpy.ndarray): The same columns as numbers.
        y (numpy.ndarray): Classes, or numbers :math:`(n, C)`.
        labelled (numpy.ndarray): The indices of the labelled rows.
        is_class (bool): Whether targets are classes.

    Returns:
        The name of the column, and the ratio of the two losses.
    """
    sample = np.random.RandomState(0).permutation(labelled)[:_MAX_ROWS]
    worst: tuple[Any, float] | None = None
    source, target = graph.indices, rows.repeat(np.diff(graph.indptr))
    # A row is its own nearest neighbour, which tells nothing.
    weight = graph.data * (source != target)
    for name, values in columns.items():
        codes, counts = _value_codes(values)
        if codes is None or not _MIN_GROUPS <= len(counts) <= len(y) / _MIN_ROWS:
            continue
        if len(np.unique(codes[sample])) < _MIN_GROUPS:
            continue
        other_columns = [
            column for other_name, column in columns.items() if other_name != name
        ]
        if len(counts) < _MANY_GROUPS and not _determines(codes, other_columns):
            continue
        shared = weight @ (codes[source] == codes[target]) / max(weight.sum(), 1e-12)
        chance = np.square(counts / counts.sum()).sum()
        if shared - chance < _MIN_SHARED * (1 - chance):
            continue
        # One number a value: trees cannot use many rare columns of zeros and ones.
        features = np.column_stack([x[sample], codes[sample]])
        folds = KFold(5, shuffle=True, random_state=0)
        random_loss = _loss(features, y[sample], folds, None, is_class)
        group_loss = _loss(features, y[sample], GroupKFold(5), codes[sample], is_class)
        ratio = group_loss / max(random_loss, 1e-12)
        if ratio < _MIN_RATIO or (worst is not None and ratio < worst[1]):
            continue
        if values.dtype.kind in 'iufmM':
            intervals = _fifths(codes[sample])
            loss = _loss(features, y[sample], GroupKFold(5), intervals, is_class)
            if loss > ratio * group_loss:
                continue
        worst = name, ratio
    return worst


def _fifths(codes: NDArray[Any]) -> NDArray[Any]:
    """Return the fifth of the distinct values, in their order, of each row."""
    values, ranks = np.unique(codes, return_inverse=True)
    fifths: NDArray[Any] = 5 * ranks // len(values)
    return fifths


def _value_codes(values: NDArray[Any]) -> tuple[Any, Any]:
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


def _determines(codes: NDArray[Any], columns: list[NDArray[Any]]) -> bool:
    """Return whether another column hardly varies among rows of one code."""
    counts = np.maximum(np.bincount(codes), 1)
    for column in columns:
        values = column.astype(np.float64) if column.dtype.kind in 'biuf' else None
        if values is None:
            values, _ = _value_codes(column)
        if values is None or not np.isfinite(values).all():
            continue
        means = np.bincount(codes, values) / counts
        variance = np.square(values - means[codes]).mean()
        if variance < _MAX_WITHIN * values.var():
            return True
    return False


def _loss(x: Any, y: Any, folds: Any, groups: Any, is_class: bool) -> float:
    """Return the loss of boosting on held-back rows."""
    if is_class:
        classes, y = np.unique(y, return_inverse=True)
        model: Any = HistGradientBoostingClassifier(random_state=0)
        out = np.zeros((len(y), len(classes)))
        for train, val in folds.split(x, y, groups):
            present = np.unique(y[train])
            # Boosting needs two classes; one without rows has probability zero.
            out[np.ix_(val, present)] = (
                model.fit(x[train], y[train]).predict_proba(x[val])
                if len(present) > 1
                else 1.0
            )
        return mean_loss(out, y, np.ones(len(y)), is_class=True)
    model = HistGradientBoostingRegressor(random_state=0)
    target = y[:, 0]
    out = cross_val_predict(model, x, target, cv=folds, groups=groups)
    return mean_loss(out[:, None], y[:, :1], np.ones(len(y)), is_class=False)
