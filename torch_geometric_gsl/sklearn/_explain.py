"""Show the rows that a prediction leans on, as a table or as a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_type
from torch_geometric_gsl._labels import UNLABELLED
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._columns import (
    columns_of,
    distinct,
    is_frame,
    parse_column,
    row_labels,
    select_columns,
)
from torch_geometric_gsl.sklearn._predictions import Predictions
from torch_geometric_gsl.sklearn._runtime import default_modes
from torch_geometric_gsl.sklearn._scaling import to_tensor
from torch_geometric_gsl.visualization.explore import explore


class ExplainMixin(Predictions):
    """Write tables of a row and its neighbours, and pages of all rows."""

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
            standard deviation of a weight between networks, if there are several. The
            index has the labels of the rows of a pandas DataFrame, else positions.
            Tables of several rows stand below each other, and the first column,
            *explained*, has the label of each. Columns with a name that is already used
            get a trailing underscore. A training row is its own neighbour, since
            predictions treat all rows as new: a warning names equal training rows.

        Raises:
            ImportError: If pandas is missing.
            ValueError: As in :meth:`kneighbors`.
        """
        import pandas

        self._check_graph('explain')
        row = _as_rows(row)
        weights, neighbours = self.kneighbors(row, n_neighbors)
        x = self._new_rows(row)
        shares, graphs = self._blend.graphs(x)
        prediction = self.predict(row)
        labels = row_labels(row, x.shape[0]).tolist()
        if self._table is not None and is_frame(row):
            row = select_columns(row, [*columns_of(self._rows)])
        tables = []
        equal: list[Any] = []
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
            is_equal = (_dense(self._x[sources]) == _dense(x[[i]])).all(axis=1)
            equal += self._labels_of(sources[is_equal])
            target = np.concatenate([prediction[[i]], self._targets[sources]])
            cells = [column[[i]] for column in columns_of(row).values()]
            tables.append(self._neighbour_table(columns, target, cells, sources))
        if equal:
            shown = ', '.join(map(repr, equal[:5])) + ', ...' * (len(equal) > 5)
            warn_caller(
                f"'row' equals the training rows [{shown}], which are among the "
                f'neighbours, since all rows are treated as new: '
                f"'transduction_' and 'graph_' leave out each row itself",
                UserWarning,
            )
        return pandas.concat(tables) if len(tables) > 1 else tables[0]

    def _labels_of(self, sources: Any) -> list[Any]:
        """Return the labels of some training rows."""
        import pandas

        labels: list[Any] = pandas.Index(self._labels)[sources].tolist()
        return labels

    def _neighbour_table(
        self, columns: dict[str, Any], target: Any, cells: list[Any], sources: Any
    ) -> Any:
        """Return the table of a row and its neighbours, after the given columns."""
        import pandas

        if target.ndim == 1:
            columns = columns | {'target': target}
        else:
            columns = columns | {f'target {i}': y for i, y in enumerate(target.T)}
        training = columns_of(self._rows, sources)
        names = [*columns, *distinct([*training], {*columns})]
        pairs = zip(cells, training.values(), strict=True)
        values = [*columns.values()]
        values += [pandas.concat([*map(pandas.Series, pair)]).array for pair in pairs]
        labels = ['prediction', *self._labels_of(sources)]
        index = pandas.Index(labels, name='row', tupleize_cols=False)
        table = pandas.DataFrame(dict(enumerate(values)), index=index)
        return table.set_axis(pandas.Index(names, tupleize_cols=False), axis=1)

    @default_modes()
    def explore(
        self,
        path: str | os.PathLike[str] = 'graph.html',
        X_new: Any = None,
        **kwargs: Any,
    ) -> Path:
        r"""Write a page to explore the graph of the training rows.

        It shows the target of each row by its name, its prediction from the other rows,
        and its columns. Rows are named as by :meth:`explain`. New rows come last, with
        a ring, their prediction and the part of it that neighbours change, as in
        :meth:`contributions`. Edges lead to them from the training rows that the
        prediction leans on, but from them to no row.

        Args:
            path (str or PathLike, optional): The file. (default: :obj:`"graph.html"`)
            X_new (array-like or DataFrame, optional): New rows, shown beside those of
                training. (default: :obj:`None`)
            **kwargs (optional): Arguments of
                :func:`~torch_geometric_gsl.visualization.explore`.

        Returns:
            pathlib.Path: The file.

        Raises:
            ValueError: If the estimator has no graph, or :obj:`X_new` has no rows, or
                lacks columns of training.
        """
        self._check_graph('explore')
        expected = "a file: pass rows as 'X_new'"
        check_type(path, str | os.PathLike, 'path', expected)
        x = self._x
        graph = self.graph_
        names = [*self._labels]
        options: dict[str, Any] = {}
        if X_new is not None:
            x_new = self._check_new(X_new)
            stack = scipy.sparse.vstack if scipy.sparse.issparse(x) else np.concatenate
            x = stack([x, x_new])
            graph = scipy.sparse.vstack([graph, self._blend.graph(x_new)], format='csr')
            graph.resize(x.shape[0], x.shape[0])  # New rows send nothing.
            names += [f'new {label}' for label in row_labels(X_new, x_new.shape[0])]
            options['new_mask'] = torch.arange(x.shape[0]) >= len(self._targets)
        if not scipy.sparse.issparse(x):
            options['columns'] = self._shown_columns(x, X_new)
            x = self._blend.learned[0].scaling.apply(x)
        data = Data(x=to_tensor(x, 'cpu', torch.float32))
        if self._targets.ndim == 1:
            data.y, options['prediction'] = self._shown_targets(X_new, x.shape[0])
            options['target_name'] = self._target_name
            if self._num_classes:
                options['class_names'] = self.classes_
        options |= {'data': data, 'path': path, 'names': names}
        return explore(graph, **options | kwargs)

    def _check_new(self, X_new: Any) -> Any:
        """Return new rows as numbers, dense or sparse as those of training."""
        try:
            x = self._new_rows(X_new)
        except (TypeError, ValueError) as error:
            error_class = TypeError if isinstance(error, TypeError) else ValueError
            reason = str(error).partition('\n')[0]
            raise error_class(
                f"'X_new' must hold rows as those of training: {reason}"
            ) from error
        if scipy.sparse.issparse(x) == scipy.sparse.issparse(self._x):
            return x
        return x.toarray() if scipy.sparse.issparse(x) else scipy.sparse.csr_matrix(x)

    def _shown_columns(self, x: Any, X_new: Any) -> dict[Any, Any]:
        """Return the columns of all rows, with the values of the tables."""
        if self._table is None:
            return columns_of(x)
        tables = [[*self._rows.values()]]
        if X_new is not None:
            X_new = X_new.toarray() if scipy.sparse.issparse(X_new) else X_new
            tables.append([values for _, values, _ in self._table.read(X_new)])
        columns = {}
        for (name, column_type, _), *blocks in zip(
            self._table.columns_, *tables, strict=True
        ):
            reads = [parse_column(block, repr(name), column_type) for block in blocks]
            values = np.concatenate([read.values for read in reads])
            is_date = column_type == 'dates'
            columns[name] = (1e6 * values).astype('M8[us]') if is_date else values
        return columns

    def _shown_targets(self, X_new: Any, num_nodes: int) -> tuple[Any, dict[str, Any]]:
        """Return targets, unknown of new rows, and predictions by name."""
        num_rows = len(self._targets)
        targets = self._targets
        prediction = self.transduction_
        predictions = {}
        if X_new is not None:
            prediction = np.concatenate([prediction, self.predict(X_new)])
            change = np.full(num_nodes, np.nan)
            components = self._blend.contributions(self._new_rows(X_new))
            change[num_rows:] = self._named_components(components)['neighbours']
            predictions['prediction from neighbours'] = change
        if self._num_classes:
            targets, prediction = map(self._class_indices, (targets, prediction))
        shown = np.full(num_nodes, UNLABELLED if self._num_classes else np.nan)
        shown[:num_rows] = targets
        return shown, {'prediction': prediction, **predictions}

    def _class_indices(self, y: Any) -> Any:
        """Return the indices of classes, -1 of rows without one."""
        is_known = np.isin(y, self.classes_)
        return np.where(is_known, np.searchsorted(self.classes_, y), UNLABELLED)


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
