"""Show the rows that a prediction leans on, as a table or as a page."""

from __future__ import annotations

from itertools import pairwise
from operator import mul
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data

from torch_geometric_gsl._labels import UNLABELLED
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._blend import Blend
from torch_geometric_gsl.sklearn._columns import (
    columns_of,
    distinct,
    is_frame,
    parse_column,
    row_labels,
    select_columns,
)
from torch_geometric_gsl.sklearn._rows import TrainingRows
from torch_geometric_gsl.sklearn._scaling import to_tensor


def as_rows(row: Any) -> Any:
    """Return one row, or several, as a table or an array of two dimensions."""
    import pandas

    if isinstance(row, pandas.Series):
        return row.to_frame().T.infer_objects()
    if not hasattr(row, 'shape') and np.ndim(row) == 0:
        is_dict = isinstance(row, dict)
        hint = 'pandas.DataFrame([row])' if is_dict else f'X.loc[{row!r}]'
        raise TypeError(f"'row' must be a row of a table (got {row!r}): pass {hint}")
    if is_frame(row) or scipy.sparse.issparse(row):
        return row
    return np.atleast_2d(np.asarray(row))


def heaviest(graph: Any, k: int) -> tuple[Any, Any]:
    """Return the largest weights of each row of a graph, and their columns.

    Rows with fewer entries are padded with other columns of weight 0.
    """
    weights = np.zeros((graph.shape[0], k))
    columns = np.zeros((graph.shape[0], k), int)
    for i, (start, stop) in enumerate(pairwise(graph.indptr)):
        weight = graph.data[start:stop]
        order = np.argsort(-weight, kind='stable')[:k]
        weights[i, : len(order)] = weight[order]
        sources = graph.indices[start:stop][order]
        if len(order) < k:
            padding = np.setdiff1d(np.arange(graph.shape[1]), sources)
            sources = np.concatenate([sources, padding[: k - len(order)]])
        columns[i] = sources
    return weights, columns


def explanation(
    rows: TrainingRows,
    blend: Blend,
    row: Any,
    x: Any,
    k: int,
    prediction: Any,
) -> Any:
    """Return tables of rows to explain, each followed by its neighbours.

    Args:
        rows (TrainingRows): The rows of training.
        blend (Blend): The fitted members.
        row (DataFrame, numpy.ndarray or scipy.sparse.csr_matrix): The rows to explain.
        x (numpy.ndarray or scipy.sparse.csr_matrix): The same rows as numbers.
        k (int): The number of neighbours of each.
        prediction (numpy.ndarray): Their predictions.
    """
    import pandas

    shares, graphs = blend.graphs(x)
    weights, positions = heaviest(sum(map(mul, shares, graphs)), k)
    labels = row_labels(row, x.shape[0]).tolist()
    if rows.encoder is not None and is_frame(row):
        row = select_columns(row, [*columns_of(rows.columns)])
    tables = []
    equal: list[Any] = []
    for i, label in enumerate(labels):
        is_kept = weights[i] > 0
        weight = weights[i][is_kept]
        sources = positions[i][is_kept]
        columns: dict[str, Any] = {}
        if len(labels) > 1:
            columns['explained'] = [label] * (1 + len(sources))
        columns['weight'] = [np.nan, *weight]
        if len(graphs) > 1:
            each = [graph[[i]][:, sources].toarray()[0] for graph in graphs]
            variance = np.square(np.stack(each) - weight).T @ shares
            columns['spread'] = [np.nan, *np.sqrt(variance)]
        is_equal = (_dense(rows.x[sources]) == _dense(x[[i]])).all(axis=1)
        equal += _labels_of(rows, sources[is_equal])
        target = np.concatenate([prediction[[i]], rows.targets[sources]])
        cells = [column[[i]] for column in columns_of(row).values()]
        tables.append(_neighbour_table(rows, columns, target, cells, sources))
    if equal:
        shown = ', '.join(map(repr, equal[:5])) + ', ...' * (len(equal) > 5)
        warn_caller(
            f"'row' equals the training rows [{shown}], which are among the "
            f'neighbours, since all rows are treated as new: '
            f"'transduction_' and 'graph_' leave out each row itself",
            UserWarning,
        )
    return pandas.concat(tables) if len(tables) > 1 else tables[0]


def _labels_of(rows: TrainingRows, sources: Any) -> list[Any]:
    """Return the labels of some training rows."""
    import pandas

    labels: list[Any] = pandas.Index(rows.labels)[sources].tolist()
    return labels


def _neighbour_table(
    rows: TrainingRows,
    columns: dict[str, Any],
    target: Any,
    cells: list[Any],
    sources: Any,
) -> Any:
    """Return the table of a row and its neighbours, after the given columns."""
    import pandas

    if target.ndim == 1:
        columns = columns | {'target': target}
    else:
        columns = columns | {f'target {i}': y for i, y in enumerate(target.T)}
    training = columns_of(rows.columns, sources)
    names = [*columns, *distinct([*training], {*columns})]
    pairs = zip(cells, training.values(), strict=True)
    values = [*columns.values()]
    values += [pandas.concat([*map(pandas.Series, pair)]).array for pair in pairs]
    labels = ['prediction', *_labels_of(rows, sources)]
    index = pandas.Index(labels, name='row', tupleize_cols=False)
    table = pandas.DataFrame(dict(enumerate(values)), index=index)
    return table.set_axis(pandas.Index(names, tupleize_cols=False), axis=1)


def page_rows(
    rows: TrainingRows, blend: Blend, graph: Any, X_new: Any, x_new: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the graph of a page, and its rows as arguments of :func:`explore`.

    Args:
        rows (TrainingRows): The rows of training.
        blend (Blend): The fitted members.
        graph (scipy.sparse.csr_matrix): The graph of the training rows.
        X_new (array-like, DataFrame or None): New rows, which come last.
        x_new (numpy.ndarray, scipy.sparse.csr_matrix or None): The same as numbers.
    """
    x = rows.x
    names = [*rows.labels]
    options: dict[str, Any] = {}
    if X_new is not None:
        x_new = _in_layout(x_new, x)
        stack = scipy.sparse.vstack if scipy.sparse.issparse(x) else np.concatenate
        x = stack([x, x_new])
        graph = scipy.sparse.vstack([graph, blend.graph(x_new)], format='csr')
        graph.resize(x.shape[0], x.shape[0])  # New rows send nothing.
        names += [f'new {label}' for label in row_labels(X_new, x_new.shape[0])]
        options['new_mask'] = torch.arange(x.shape[0]) >= rows.num_rows
    if not scipy.sparse.issparse(x):
        options['columns'] = _page_columns(rows, x, X_new)
        x = blend.learned[0].scaling.apply(x)
    data = Data(x=to_tensor(x, 'cpu', torch.float32))
    return graph, options | {'data': data, 'names': names}


def _page_columns(rows: TrainingRows, x: Any, X_new: Any) -> dict[Any, Any]:
    """Return the columns of all rows, with the values of the tables."""
    if rows.encoder is None:
        return columns_of(x)
    tables = [[*rows.columns.values()]]
    if X_new is not None:
        X_new = X_new.toarray() if scipy.sparse.issparse(X_new) else X_new
        tables.append([values for _, values, _ in rows.encoder.read(X_new)])
    columns = {}
    for (name, column_type, _), *blocks in zip(
        rows.encoder.columns_, *tables, strict=True
    ):
        parsed = [parse_column(block, repr(name), column_type) for block in blocks]
        values = np.concatenate([column.values for column in parsed])
        is_date = column_type == 'dates'
        columns[name] = (1e6 * values).astype('M8[us]') if is_date else values
    return columns


def page_targets(
    rows: TrainingRows, prediction: Any, change: Any, classes: Any
) -> dict[str, Any]:
    """Return targets, unknown of new rows, and predictions, as arguments of a page.

    Args:
        rows (TrainingRows): The rows of training.
        prediction (numpy.ndarray): The predictions of all rows, new ones last.
        change (numpy.ndarray or None): What neighbours change of those of new rows.
        classes (numpy.ndarray or None): The classes.
    """
    targets = rows.targets
    predictions = {'prediction': prediction}
    options: dict[str, Any] = {'target_name': rows.target_name}
    if classes is not None:
        targets, predictions['prediction'] = (
            np.where(np.isin(y, classes), np.searchsorted(classes, y), UNLABELLED)
            for y in (targets, prediction)
        )
        options['class_names'] = classes
    y = np.full(len(prediction), np.nan if classes is None else UNLABELLED)
    y[: rows.num_rows] = targets
    if change is not None:
        of_neighbours = np.full(len(prediction), np.nan)
        of_neighbours[rows.num_rows :] = change
        predictions['prediction from neighbours'] = of_neighbours
    return options | {'y': y, 'prediction': predictions}


def _in_layout(x: Any, training: Any) -> Any:
    """Return rows dense or sparse as those of training."""
    if scipy.sparse.issparse(x) == scipy.sparse.issparse(training):
        return x
    return x.toarray() if scipy.sparse.issparse(x) else scipy.sparse.csr_matrix(x)


def _dense(rows: Any) -> Any:
    """Return rows as a dense array."""
    return rows.toarray() if scipy.sparse.issparse(rows) else rows
