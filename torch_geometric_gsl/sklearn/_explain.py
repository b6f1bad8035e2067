"""Show the training rows that a prediction leans on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from torch_geometric_gsl.sklearn._frames import (
    columns_of,
    distinct,
    is_frame,
    row_labels,
    select_columns,
)
from torch_geometric_gsl.sklearn._predictions import Predictions


class ExplainMixin(Predictions):
    """Write tables of a row and its neighbours."""

    def explain(self, row: Any, n_neighbors: int | None = None) -> Any:
        r"""Show the training rows that a prediction leans on, as a table.

        How much of the prediction comes from them tells :meth:`contributions`.

        Args:
            row (array-like or DataFrame): One row, or several.
            n_neighbors (int, optional): As in :meth:`kneighbors`.
                (default: :obj:`None`)

        Returns:
            pandas.DataFrame: First the row with its prediction, then its neighbours of
            non-zero weight, by weight, with target and columns. *Spread* is the
            standard deviation of a weight between networks, if there are several.
            *Equal* marks training rows whose columns equal those of the row, if there
            are any: a training row is its own neighbour, since predictions treat all
            rows as new. :attr:`graph_` and :attr:`transduction_` leave out the row
            itself. The index has the labels of the rows of a pandas DataFrame, else
            positions. Tables of several rows stand below each other, and the first
            column, *explained*, has the label of each. Columns with a name that is
            already used get a trailing underscore.

        Raises:
            ImportError: If pandas is missing.
            ValueError: As in :meth:`kneighbors`.
        """
        import pandas

        self._check_graph('explain')
        row = _as_rows(row)
        weights, neighbours = self.kneighbors(row, n_neighbors)
        x = self._new_rows(row)
        shares, graphs = self._graphs(x)
        prediction = self.predict(row)
        labels = row_labels(row, x.shape[0]).tolist()
        if self._table is not None and is_frame(row):
            row = select_columns(row, [*columns_of(self._rows)])
        is_equal = [
            (_dense(self._x[sources]) == _dense(x[[i]])).all(axis=1)
            for i, sources in enumerate(neighbours)
        ]
        has_equal = bool((np.stack(is_equal) & (weights > 0)).any())
        tables = []
        for i, label in enumerate(labels):
            is_kept = weights[i] > 0
            weight = weights[i][is_kept]
            sources = neighbours[i][is_kept]
            columns: dict[str, Any] = {}
            if len(labels) > 1:
                columns['explained'] = [label] * (1 + len(sources))
            columns['weight'] = [np.nan, *weight]
            if len(graphs) > 1:
                each = [graph[[i]][:, sources].toarray()[0] for graph in graphs]
                variance = np.square(np.stack(each) - weight).T @ shares
                columns['spread'] = [np.nan, *np.sqrt(variance)]
            if has_equal:
                flags = is_equal[i][is_kept].tolist()
                columns['equal'] = pandas.array([None, *flags], dtype='boolean')
            target = np.concatenate([prediction[[i]], self._targets[sources]])
            cells = [column[[i]] for column in columns_of(row).values()]
            tables.append(self._neighbour_table(columns, target, cells, sources))
        return pandas.concat(tables) if len(tables) > 1 else tables[0]

    def _neighbour_table(
        self, columns: dict[str, Any], target: Any, cells: list[Any], sources: Any
    ) -> Any:
        """Return the table of a row and its neighbours, after the given columns."""
        import pandas

        if target.ndim == 1:
            columns = columns | {'target': target}
        else:
            columns = columns | {f'target {i}': one for i, one in enumerate(target.T)}
        training = columns_of(self._rows, sources)
        names = [*columns, *distinct([*training], {*columns})]
        pairs = zip(cells, training.values(), strict=True)
        values = [*columns.values()]
        values += [pandas.concat([*map(pandas.Series, pair)]).array for pair in pairs]
        labels = pandas.Index(self._labels)[sources].tolist()
        index = pandas.Index(['prediction', *labels], name='row', tupleize_cols=False)
        table = pandas.DataFrame(dict(enumerate(values)), index=index)
        return table.set_axis(pandas.Index(names, tupleize_cols=False), axis=1)


def _as_rows(row: Any) -> Any:
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


def _dense(rows: Any) -> Any:
    """Return rows as a dense array."""
    return rows.toarray() if scipy.sparse.issparse(rows) else rows
