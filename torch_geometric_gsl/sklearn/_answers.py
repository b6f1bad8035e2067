"""Run the networks of a fitted estimator on rows, and show what these lean on."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl.sklearn._rows import Nearest, Rows, to_csr
from torch_geometric_gsl.sklearn.table_transformer import check_rows, is_frame
from torch_geometric_gsl.visualization.explore import explore

# The most neighbours of a fixed graph.
NEAREST = 12
# Answers are computed in double precision for tables of at most so many rows.
_MOST_IN_DOUBLE = 2**17
# New rows that are answered at once.
_BLOCK = 2048


class Answers:
    """Answer new rows, and those of training among each other."""

    # Parameters and methods of estimators, and what a fit leaves behind.
    device: str
    eval_k: int
    predict: Any
    transduction_: Any
    graph_choice_: str
    graph_losses_: dict[str, float]
    _members: list[Any]
    _net_options: dict[str, Any]
    _num_rows: int
    _rows: Any
    _scaling: Any
    _table: Any
    _targets: Any
    _told: Tensor
    _x: Any

    def _prepare(self) -> None:
        """Index all rows in the networks, in the precision of answers."""
        is_small = self._num_rows <= _MOST_IN_DOUBLE
        is_small = is_small and torch.device(self.device).type == 'cpu'
        self._precision = torch.float64 if is_small else torch.float32
        self._nearest = None
        every = torch.arange(self._num_rows, device=self.device)
        if self.graph_choice_ == 'nearest':
            self._nearest = Nearest(self._x, every, min(NEAREST, self.eval_k))
        rows = self._to_rows(self._x, self._precision).take(every)
        for model in self._members:
            model.to(self._precision).eval().index(rows, self._told.to(self.device))

    # Answers

    def _to_rows(self, x: Any, dtype: Any = torch.float32) -> Rows:
        """Return scaled rows in the precision of a network."""
        if scipy.sparse.issparse(x):
            kind = np.float64 if dtype == torch.float64 else np.float32
            return Rows(scipy.sparse.csr_matrix(x, dtype=kind), self.device)
        return Rows(torch.as_tensor(x, dtype=dtype, device=self.device), self.device)

    def _new_rows(self, X: Any) -> Any:
        check_is_fitted(self)
        x = check_rows(self, X, reset=False, accept_sparse='csr')
        is_sparse = scipy.sparse.issparse(self._x)
        if scipy.sparse.issparse(x) != is_sparse:
            x = scipy.sparse.csr_matrix(x) if is_sparse else x.toarray()
        x = self._scaling.apply(x)
        return x if is_sparse else np.require(x, requirements=['C', 'W'])

    @torch.no_grad()
    def _run(self, x: Any, return_graph: bool = False) -> Any:
        """Return the outputs of each member for scaled new rows, and their graphs."""
        rows = self._to_rows(x, self._precision)
        options: dict[str, Any] = {'return_graph': return_graph}
        if self._nearest is not None:
            source, distance = self._nearest.of_new(x)
            options['given'] = source, distance.to(self._precision)
        taken = rows.take(torch.arange(len(rows), device=self.device))
        found = [model(taken, **options) for model in self._members]
        if not return_graph:
            return torch.stack(found)
        shape = x.shape[0], self._num_rows
        return sum(to_csr(graph, shape) for _, graph in found) / len(found)

    def _outputs(self, X: Any) -> Tensor:
        """Return the outputs of each member for new rows."""
        x = self._new_rows(X)
        blocks = range(0, x.shape[0], _BLOCK)
        return torch.cat([self._run(x[i : i + _BLOCK]) for i in blocks], dim=1).cpu()

    @torch.no_grad()
    def _own(self, return_graph: bool = False) -> Any:
        """Run the networks on the rows of training among each other."""
        every = torch.arange(self._num_rows, device=self.device)
        rows = self._to_rows(self._x, self._precision).take(every)
        options: dict[str, Any] = {'return_graph': return_graph}
        if self._nearest is not None:
            source, distance = self._nearest.of_rows(every)
            options['given'] = source, distance.to(self._precision)
        told = self._told.to(self.device)
        found = [model(rows, told, **options) for model in self._members]
        if not return_graph:
            return torch.stack(found).cpu()
        shape = self._num_rows, self._num_rows
        return sum(to_csr(graph, shape) for _, graph in found) / len(found)

    @property
    def graph_(self) -> Any:
        r"""Return the graph of the training rows.

        Returns:
            scipy.sparse.csr_matrix: In row :math:`i` the weights of the neighbours of
            row :math:`i`, never itself.
        """
        check_is_fitted(self)
        if self.graph_choice_ == 'none':
            return scipy.sparse.csr_matrix((self._num_rows,) * 2)
        return self._own(return_graph=True)

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
        x = self._new_rows(X)
        if self.graph_choice_ == 'none':
            raise ValueError(
                f"'kneighbors' needs a graph, and graph_choice_ is 'none' (validation "
                f"losses: {self.graph_losses_}): fit with graph='learned'"
            )
        num_rows = self._num_rows
        most = NEAREST if self.graph_choice_ == 'nearest' else num_rows
        k = min(n_neighbors, self._net_options['eval_k'], most, num_rows)
        graph = self._run(x, return_graph=True)
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
            weight, none of which is 0, each with its number, target and columns. A
            column of the table that is called as one of these ends in an underscore.

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
        weights, rows = self.kneighbors(row, n_neighbors)
        is_leant_on = weights[0] > 0
        weights, rows = weights[:, is_leant_on], rows[:, is_leant_on]
        neighbours = _taken(self._rows, rows[0])
        known = _columns_of(neighbours)
        columns = _named(_columns_of(row), [*known]), known
        table = pandas.concat([pandas.DataFrame(part) for part in columns])
        target = np.concatenate([self.predict(row), self._targets[rows[0]]])
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
        graph = self.graph_
        x = self._x
        dense = x.toarray() if scipy.sparse.issparse(x) else x
        data = Data(x=torch.from_numpy(dense).float())
        targets = self._targets
        if targets.ndim == 1:
            data.y = targets
            kwargs = {'prediction': self.transduction_} | kwargs
        if self._table is not None:
            columns = self._table.columns_
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
