"""Show the training rows that a prediction leans on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from torch_geometric_gsl.sklearn._frames import (
    columns_of,
    distinct,
    is_frame,
    select_columns,
)
from torch_geometric_gsl.sklearn._predictions import Predictions


class ExplainMixin(Predictions):
    """Write tables of a row and its neighbours."""

    def explain(self, row: Any, n_neighbors: int | None = None) -> Any:
        r"""Show the training rows that a prediction leans on, as a table.

        How much of the prediction comes from them tells :meth:`contributions`.

        Args:
            row (array-like or DataFrame): One row.
            n_neighbors (int, optional): As in :meth:`kneighbors`.
                (default: :obj:`None`)

        Returns:
            pandas.DataFrame: First the row with its prediction, then its neighbours of
            non-zero weight, by weight, with target and columns. *Spread* is the
            standard deviation of a weight between networks, if there are several. The
            index has the labels of the rows of a pandas DataFrame, else positions.
            Columns with a name that is already used get a trailing underscore.

        Raises:
            ImportError: If pandas is missing.
            ValueError: If there are several rows, or as in :meth:`kneighbors`.
        """
        import pandas

        self._check_graph('explain')
        if isinstance(row, pandas.Series):
            row = row.to_frame().T.infer_objects()
        if not hasattr(row, 'shape') and np.ndim(row) == 0:
            is_dict = isinstance(row, dict)
            hint = 'pandas.DataFrame([row])' if is_dict else f'X.loc[{row!r}]'
            raise TypeError(
                f"'row' must be a row of a table (got {row!r}): pass {hint}"
            )
        if not is_frame(row) and not scipy.sparse.issparse(row):
            row = np.atleast_2d(np.asarray(row))
        if row.shape[0] != 1:
            raise ValueError(f"'row' must be one row (got {row.shape[0]})")
        weights, rows = (array[0] for array in self.kneighbors(row, n_neighbors))
        weights, rows = weights[weights > 0], rows[weights > 0]
        target = np.concatenate([self.predict(row), self._targets[rows]])
        columns: dict[Any, Any] = {'weight': [np.nan, *weights]}
        shares, graphs = self._graphs(self._new_rows(row))
        if len(graphs) > 1:
            net_weights = np.stack([graph[:, rows].toarray()[0] for graph in graphs])
            variance = np.square(net_weights - weights).T @ shares
            columns['spread'] = [np.nan, *np.sqrt(variance)]
        columns['target'] = target
        if target.ndim == 2:
            del columns['target']
            columns |= {f'target {i}': column for i, column in enumerate(target.T)}
        training = columns_of(self._rows, rows)
        if self._table is not None and is_frame(row):
            row = select_columns(row, [*training])
        names = [*columns, *distinct([*training], {*columns})]
        pairs = zip(columns_of(row).values(), training.values(), strict=True)
        values = [*columns.values()]
        values += [pandas.concat([*map(pandas.Series, pair)]).array for pair in pairs]
        labels = pandas.Index(self._labels)[rows].tolist()
        index = pandas.Index(['prediction', *labels], name='row', tupleize_cols=False)
        table = pandas.DataFrame(dict(enumerate(values)), index=index)
        return table.set_axis(pandas.Index(names, tupleize_cols=False), axis=1)
