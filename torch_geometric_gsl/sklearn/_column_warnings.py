"""Warn about columns that hide others, or that identify groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._blend import Blend, mean_loss
from torch_geometric_gsl.sklearn._columns import NUMBERS, columns_of
from torch_geometric_gsl.sklearn._runtime import threads_for

# Distance of an outlier from the median, in ranges of the quartiles.
_OUTLIER_RANGES = 1e6
# Its distance in multiples of the largest distance of other values.
_OUTLIER_GAP = 100
# A ratio of columns' largest values that hides the smaller ones in sparse rows.
_LARGE = 1000
# Rows whose neighbours are searched for shared values, at most, and rows of the table,
# at least.
_MAX_TARGETS = 1000
_MIN_TABLE_ROWS = 200
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


def warn_of_columns(x: Any, encoder: Any, scaling: str) -> None:
    """Warn about columns that hide the others, or their own other values.

    Args:
        x (numpy.ndarray or scipy.sparse.csr_matrix): The columns as numbers.
        encoder (TableTransformer or None): The encoder of a DataFrame.
        scaling (str): The scaling of columns.
    """
    if scipy.sparse.issparse(x):
        if scaling != 'none':
            _warn_of_large(x)
        return
    if scaling in ('quantile', 'robust'):
        return
    names = [*range(x.shape[1])]
    if encoder is not None:  # Their numbers come first.
        names = [c.name for c in encoder.columns_ if c.type in NUMBERS]
    for name, values in zip(names, x.T, strict=False):
        if (row := find_far(values)) is not None:
            warn_caller(
                f'column {name!r} has the value {values[row]:g} in row {row}, far '
                'outside of all others: it may flatten them; check it, or '
                "scaling='quantile'",
                UserWarning,
            )


def _warn_of_large(x: Any) -> None:
    """Warn about a column that hides the others of sparse rows of unit norm."""
    largest = np.ravel(abs(x).max(axis=0).toarray())
    column = int(largest.argmax())
    median = np.median(largest[largest > 0]) if largest.any() else 0.0
    if largest[column] > _LARGE * median:
        warn_caller(
            f'column {column} has values up to {largest[column]:g}, and hides the '
            'others in sparse rows, which are scaled to unit norm: scale it, or '
            "pass dense rows ('sparse_threshold=0' of a ColumnTransformer)",
            UserWarning,
        )


def find_far(column: NDArray[Any]) -> int | None:
    """Return the row of a value with a gap to all others, unlike in a heavy tail."""
    low, middle, high = 0.5 * np.percentile(column, (25, 50, 75))
    distance = np.abs(0.5 * column.astype(np.float64) - middle)
    is_far = distance > _OUTLIER_RANGES * (high - low)
    if high == low or not is_far.any():
        return None
    is_apart = distance[is_far].min() > _OUTLIER_GAP * distance[~is_far].max()
    return int(distance.argmax()) if is_apart else None


def warn_of_groups(blend: Blend, table: Any, x: Any, y: Any, labelled: Any) -> None:
    """Warn about a column that identifies groups of rows.

    Args:
        blend (Blend): What was fitted.
        table (dict or numpy.ndarray): The training rows as passed.
        x (numpy.ndarray or scipy.sparse.csr_matrix): The same rows as numbers.
        y (numpy.ndarray): Classes, or numbers :math:`(n, C)`.
        labelled (numpy.ndarray): The indices of the labelled rows.
    """
    if scipy.sparse.issparse(x) or len(y) < _MIN_TABLE_ROWS:
        return
    if not blend.learned or blend.is_constant:
        return
    rows = np.random.RandomState(0).permutation(len(y))[:_MAX_TARGETS]
    with threads_for(len(y)):
        graph = blend.graph(x[rows])
        identifier = find_identifier(columns_of(table), rows, graph, x, y, labelled)
    if identifier is not None:
        name, ratio = identifier
        warn_caller(
            f'column {name!r} may identify groups: neighbours mostly share its '
            f'value, and the loss of boosting is {ratio:.1f} times as large on '
            'values that it has not seen. If new rows have new values, pass '
            f"'groups' to fit, and drop the column",
            UserWarning,
        )


def find_identifier(
    columns: dict[Any, NDArray[Any]],
    rows: NDArray[Any],
    graph: Any,
    x: NDArray[Any],
    y: NDArray[Any],
    labelled: NDArray[Any],
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
        random_loss = _loss(features, y[sample], folds, None)
        group_loss = _loss(features, y[sample], GroupKFold(5), codes[sample])
        ratio = group_loss / max(random_loss, 1e-12)
        if ratio < _MIN_RATIO or (worst is not None and ratio < worst[1]):
            continue
        if values.dtype.kind in 'iufmM':
            # The fifth of the distinct values, in their order, of each row.
            distinct_codes, ranks = np.unique(codes[sample], return_inverse=True)
            intervals = 5 * ranks // len(distinct_codes)
            loss = _loss(features, y[sample], GroupKFold(5), intervals)
            if loss > ratio * group_loss:
                continue
        worst = name, ratio
    return worst


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


def _loss(x: Any, y: Any, folds: Any, groups: Any) -> float:
    """Return the loss of boosting on held-back rows."""
    if y.ndim == 1:
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
        return mean_loss(out, y, np.ones(len(y)))
    model = HistGradientBoostingRegressor(random_state=0)
    target = y[:, 0]
    out = cross_val_predict(model, x, target, cv=folds, groups=groups)
    return mean_loss(out[:, None], y[:, :1], np.ones(len(y)))
