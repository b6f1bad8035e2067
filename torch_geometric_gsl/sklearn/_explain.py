"""The rows of training that predictions lean on."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_is_fitted
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.sklearn._answers import NEAREST
from torch_geometric_gsl.sklearn.table_transformer import is_frame
from torch_geometric_gsl.visualization.explore import explore


class Explains:
    """Show the graph of an estimator, and the neighbours of new rows in it."""

    @property
    def graph_(self) -> Any:
        r"""Return the graph of the training rows.

        Returns:
            scipy.sparse.csr_matrix: In row :math:`i` the weights of the neighbours of
            row :math:`i`, never itself.
        """
        check_is_fitted(self)
        estimator: Any = self
        if estimator.graph_choice_ == 'none':
            return scipy.sparse.csr_matrix((estimator._num_rows,) * 2)
        return estimator._own(return_graph=True)

    def kneighbors(self, X: Any, n_neighbors: int = 5) -> tuple[Any, Any]:
        r"""Return the training rows that predictions lean on most.

        Args:
            X (array-like or DataFrame): The rows that are predicted.
            n_neighbors (int, optional): The number of neighbours of each, at most
                :obj:`eval_k`, and 12 of a graph of nearest rows. (default: :obj:`5`)

        Returns:
            tuple[numpy.ndarray, numpy.ndarray]: Weights, the largest first, and numbers
            of training rows, both :math:`[n, k]`. The weights of all neighbours of a
            row sum to 1; rows without a weight fill up where a row has fewer.

        Raises:
            ValueError: If the estimator has no graph.
        """
        check_count(n_neighbors, 'n_neighbors')
        estimator: Any = self
        x = estimator._new_rows(X)
        if estimator.graph_choice_ == 'none':
            raise ValueError(
                f"'kneighbors' needs a graph, and graph_choice_ is 'none' (validation "
                f"losses: {estimator.graph_losses_}): fit with graph='learned'"
            )
        num_rows = estimator._num_rows
        most = NEAREST if estimator.graph_choice_ == 'nearest' else num_rows
        k = min(n_neighbors, estimator._net_options['eval_k'], most, num_rows)
        graph = estimator._run(x, return_graph=True)
        # Rows of one matrix: the largest weights of each come first.
        row = np.repeat(np.arange(x.shape[0]), np.diff(graph.indptr))
        order = np.lexsort((-graph.data, row))
        weights, rows = np.zeros((x.shape[0], k)), np.zeros((x.shape[0], k), int)
        for i, (start, stop) in enumerate(pairwise(graph.indptr)):
            best = order[start : min(stop, start + k)]
            weights[i, : len(best)], found = graph.data[best], graph.indices[best]
            if len(best) < k:
                others = np.setdiff1d(np.arange(num_rows), found)
                found = np.concatenate([found, others[: k - len(best)]])
            rows[i] = found
        return weights, rows

    def explain(self, row: Any, n_neighbors: int = 5) -> Any:
        r"""Return one prediction with the training rows that it leans on, as a table.

        Args:
            row (array-like or DataFrame): One row.
            n_neighbors (int, optional): The number of neighbours.
                (default: :obj:`5`)

        Returns:
            pandas.DataFrame: First the row with its prediction, then its neighbours by
            weight, each with its number, target and columns. A column of the table that
            is called as one of these ends in an underscore.

        Raises:
            ImportError: If pandas is missing.
            ValueError: If there are several rows, or the estimator has no graph.
        """
        import pandas

        if isinstance(row, pandas.Series):
            row = row.to_frame().T.infer_objects()
        if not is_frame(row) and not scipy.sparse.issparse(row):
            row = np.atleast_2d(np.asarray(row))
        if row.shape[0] != 1:
            raise ValueError(f"'row' must be one row (got {row.shape[0]})")
        estimator: Any = self
        weights, rows = self.kneighbors(row, n_neighbors)
        neighbours = _taken(estimator._rows, rows[0])
        known = _columns_of(neighbours)
        columns = _named(_columns_of(row), [*known]), known
        table = pandas.concat([pandas.DataFrame(part) for part in columns])
        target = np.concatenate([estimator.predict(row), estimator._targets[rows[0]]])
        targets = {'target': target}
        if target.ndim == 2:
            targets = {f'target {i}': column for i, column in enumerate(target.T)}
        table.index = pandas.Index(['prediction', *rows[0].tolist()], name='row')
        front = pandas.DataFrame(
            {'weight': [np.nan, *weights[0]], **targets}, index=table.index
        )
        table = table.rename(columns={name: f'{name}_' for name in front})
        return pandas.concat([front, table], axis=1)

    def explore(
        self, path: str | os.PathLike[str] = 'graph.html', **kwargs: Any
    ) -> Path:
        r"""Write a page to look around in the graph of the training rows.

        It shows the target of each row, what is predicted of it from the others, and
        its scaled columns.

        Args:
            path (str or os.PathLike, optional): The file.
                (default: :obj:`"graph.html"`)
            **kwargs (optional): Arguments of
                :func:`~torch_geometric_gsl.visualization.explore`, such as
                :obj:`names`.

        Returns:
            pathlib.Path: The file.
        """
        estimator: Any = self
        graph = self.graph_
        x = estimator._x
        dense = x.toarray() if scipy.sparse.issparse(x) else x
        data = Data(x=torch.from_numpy(dense).float())
        targets = estimator._targets
        if targets.ndim == 1:
            data.y = targets
            kwargs = {'prediction': estimator.transduction_} | kwargs
        if estimator._table is not None:
            columns = estimator._table.columns_
            names = [name for c in columns for name in c.names(str(c.name))]
            kwargs = {'feature_names': names} | kwargs
        return explore(graph, **{'data': data, 'path': path} | kwargs)


def _taken(rows: Any, numbers: Any) -> Any:
    """Return some rows of a table of any kind."""
    if isinstance(rows, dict):
        return {name: [column[i] for i in numbers] for name, column in rows.items()}
    if is_frame(rows):
        return rows.iloc[numbers] if hasattr(rows, 'iloc') else rows[numbers.tolist()]
    return rows[numbers]


def _named(columns: dict[Any, Any], names: list[Any]) -> dict[Any, Any]:
    """Return the columns of a row under the names of the table of training."""
    for known in (columns, {str(name): c for name, c in columns.items()}):
        if known.keys() >= set(names):
            return {name: known[name] for name in names}
    return dict(zip(names, columns.values(), strict=True))


def _columns_of(rows: Any) -> dict[Any, Any]:
    """Return the columns of a table by their names."""
    if isinstance(rows, dict):
        return rows
    if is_frame(rows):
        return {name: rows[name].to_numpy() for name in rows.columns}
    rows = rows.toarray() if scipy.sparse.issparse(rows) else rows
    return {f'x{i}': column for i, column in enumerate(np.asarray(rows).T)}
