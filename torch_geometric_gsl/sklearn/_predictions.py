"""Predict with the networks of a fitted estimator, and retrieve neighbours."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_gsl._checks import check_count, check_type
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._frames import (
    columns_of,
    distinct,
    is_frame,
    select_columns,
)
from torch_geometric_gsl.sklearn._rows import (
    Nearest,
    read_column,
    to_csr,
    to_tensor,
)
from torch_geometric_gsl.sklearn._transaction import default_modes
from torch_geometric_gsl.sklearn.table_transformer import check_rows
from torch_geometric_gsl.visualization.explore import explore

# The largest number of neighbours of a fixed graph.
FIXED_NEIGHBORS = 12
# Tables of at most this many rows are predicted in double precision.
_MOST_IN_DOUBLE = 2**17
# New rows predicted at once.
_BLOCK = 2048


class Predictions(BaseEstimator):  # type: ignore[misc]
    """Predict new rows, and training rows from each other."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, '_members')

    # The device and the options of the networks, and whether they learned nothing.
    _device: torch.device
    _net_options: dict[str, Any]
    _is_constant: bool
    # The training rows as the networks take them, and their labels, or NaN or -1.
    _x: Any
    _known_y: Tensor
    # The same rows as passed to `fit`: columns, targets and names.
    _rows: Any
    _targets: Any
    _labels: Any

    def _prepare(self) -> None:
        """Index all rows in the networks, in the precision of predictions."""
        num_rows = self._x.shape[0]
        is_double = self._device.type == 'cpu' and num_rows <= _MOST_IN_DOUBLE
        self._precision = torch.float64 if is_double else torch.float32
        self._nearest = None
        if self.graph_choice_ == 'nearest':
            every = torch.arange(num_rows, device=self._device)
            k = min(FIXED_NEIGHBORS, self._net_options['eval_k'])
            self._nearest = Nearest(self._x, every, k)
        rows = to_tensor(self._x, self._device, self._precision)
        for model in self._members:
            model.to(self._precision).eval()
            model.index(rows, self._known_y.to(self._device))

    def _new_rows(self, X: Any) -> Any:
        """Return checked and scaled rows, sparse if the training rows are."""
        check_is_fitted(self)
        return self._scaling.apply(
            check_rows(self, X, reset=False, accept_sparse='csr')
        )

    @default_modes()
    @torch.no_grad()
    def _run(self, x: Any = None, return_graph: bool = False) -> Any:
        """Compute the outputs of each member, or the mean of their graphs.

        Without new rows, predicts training rows from each other.
        """
        is_own, near, given = x is None, self._nearest, None
        x = self._x if is_own else x
        rows = to_tensor(x, self._device, self._precision)
        known_y = self._known_y.to(self._device) if is_own else None
        if near is not None:
            every = torch.arange(x.shape[0])
            source, distance = near.of_rows(every) if is_own else near.of_new(x)
            given = source, distance.to(self._precision)
        found = [
            model(rows, known_y, given=given, return_graph=return_graph)
            for model in self._members
        ]
        if not return_graph:
            return torch.stack(found).cpu()
        shape = x.shape[0], self._x.shape[0]
        return sum(to_csr(graph, shape) for _, graph in found) / len(found)

    def _outputs(self, X: Any) -> Tensor:
        """Compute the outputs of each member for new rows."""
        x = self._new_rows(X)
        blocks = range(0, x.shape[0], _BLOCK)
        return torch.cat([self._run(x[i : i + _BLOCK]) for i in blocks], dim=1)

    def predict(self, X: Any) -> Any:
        r"""Predict the most probable class, or the target, of each row.

        Args:
            X (array-like or DataFrame): The rows.
        """
        return self._decode(self._outputs(X))

    @property
    def transduction_(self) -> Any:
        r"""Return the predictions of the training rows, labelled or not.

        Each row's neighbours are the other rows, while :meth:`predict` treats all rows
        as new, so that a training row would be its own neighbour. The networks were
        trained on these labels: this is no estimate of the error.

        Returns:
            numpy.ndarray: A class or a target per row.
        """
        check_is_fitted(self)
        return self._decode(self._run())

    @property
    def n_members_(self) -> int:
        r"""Return the number of networks that are kept."""
        check_is_fitted(self)
        return len(self._members)

    @property
    def graph_(self) -> Any:
        r"""Return the graph of the training rows.

        Returns:
            scipy.sparse.csr_matrix: In row :math:`i` the weights of its neighbours.
        """
        check_is_fitted(self)
        if self.graph_choice_ == 'none':
            return scipy.sparse.csr_matrix((self._x.shape[0],) * 2)
        return self._run(return_graph=True)

    def _check_graph(self, name: str) -> None:
        """Raise if there is no graph."""
        check_is_fitted(self)
        if self.graph_choice_ == 'none':
            got, losses = "graph='none'", self.graph_losses_
            if len(losses) > 1:
                got = f"graph_choice_='none' by validation losses {losses}"
            raise ValueError(
                f"{name!r} needs a graph (got {got}): fit with graph='learned'"
            )
        if self._is_constant:
            warn_caller(
                'no signal was found in training: predictions are a constant, and the '
                'neighbours of a row do not change its own',
                UserWarning,
            )

    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[Any, Any]:
        r"""Retrieve the training rows with the largest weight in predictions.

        Args:
            X (array-like or DataFrame): The rows to predict.
            n_neighbors (int, optional): The number of neighbours per row, at most
                :obj:`eval_k`, or 12 with a graph of nearest rows; five, if there are
                as many, for :obj:`None`. (default: :obj:`None`)

        Returns:
            tuple[numpy.ndarray, numpy.ndarray]: Weights in descending order, and
            positions of training rows, both :math:`[n, k]`. The weights of all
            neighbours of a row sum to 1; missing ones are padded with rows of weight 0.

        Raises:
            ValueError: If the estimator has no graph, or not so many neighbours.
        """
        if n_neighbors is not None:
            check_count(n_neighbors, 'n_neighbors')
        x = self._new_rows(X)
        self._check_graph('kneighbors')
        num_rows = self._x.shape[0]
        most = self._net_options['eval_k']
        if self.graph_choice_ == 'nearest':
            most = min(most, FIXED_NEIGHBORS)
        n_neighbors = min(5, most) if n_neighbors is None else n_neighbors
        if n_neighbors > most:
            raise ValueError(
                f"'n_neighbors' must be at most {most}, the neighbours of a prediction "
                f'(got {n_neighbors})'
            )
        k = min(n_neighbors, num_rows)
        graph = self._run(x, return_graph=True)
        weights, rows = np.zeros((x.shape[0], k)), np.zeros((x.shape[0], k), int)
        for i, (start, stop) in enumerate(pairwise(graph.indptr)):
            weight, found = graph.data[start:stop], graph.indices[start:stop]
            best = np.argsort(-weight, kind='stable')[:k]
            weights[i, : len(best)], found = weight[best], found[best]
            if len(best) < k:
                others = np.setdiff1d(np.arange(num_rows), found)
                found = np.concatenate([found, others[: k - len(best)]])
            rows[i] = found
        return weights, rows

    def explain(self, row: Any, n_neighbors: int | None = None) -> Any:
        r"""Explain a prediction by its most important training rows, as a table.

        Args:
            row (array-like or DataFrame): One row.
            n_neighbors (int, optional): As in :meth:`kneighbors`.
                (default: :obj:`None`)

        Returns:
            pandas.DataFrame: First the row with its prediction, then its neighbours of
            non-zero weight, by weight, with target and columns. The index has the
            labels of the rows of a pandas DataFrame, else positions. Columns with a
            name that is already used get a trailing underscore.

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
            way = 'pandas.DataFrame([row])' if is_dict else f'X.loc[{row!r}]'
            raise TypeError(f"'row' must be a row of a table (got {row!r}): pass {way}")
        if not is_frame(row) and not scipy.sparse.issparse(row):
            row = np.atleast_2d(np.asarray(row))
        if row.shape[0] != 1:
            raise ValueError(f"'row' must be one row (got {row.shape[0]})")
        weights, rows = (part[0] for part in self.kneighbors(row, n_neighbors))
        weights, rows = weights[weights > 0], rows[weights > 0]
        target = np.concatenate([self.predict(row), self._targets[rows]])
        columns: dict[Any, Any] = {'weight': [np.nan, *weights], 'target': target}
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

    @default_modes()
    def explore(
        self, path: str | os.PathLike[str] = 'graph.html', **kwargs: Any
    ) -> Path:
        r"""Write a page to explore the graph of the training rows.

        It shows the target of each row, its prediction from the other rows, and its
        columns. Rows are named as by :meth:`explain`.

        Args:
            path (str or PathLike, optional): The file. (default: :obj:`"graph.html"`)
            **kwargs (optional): Arguments of
                :func:`~torch_geometric_gsl.visualization.explore`.

        Returns:
            pathlib.Path: The file.
        """
        self._check_graph('explore')
        what = "a file: 'explore' shows the rows of training"
        check_type(path, str | os.PathLike, 'path', what)
        is_sparse = scipy.sparse.issparse(self._x)
        x = to_tensor(self._rows if is_sparse else self._x, 'cpu', torch.float32)
        data = Data(x=x)
        is_learned = self.graph_choice_ == 'learned'
        title = 'Learned graph' if is_learned else 'Graph of the nearest rows'
        shown: Any = {'data': data, 'path': path, 'names': self._labels, 'title': title}
        if self._targets.ndim == 1:
            data.y = self._targets
            shown['prediction'] = self.transduction_
        if not is_sparse:
            shown['columns'] = columns = columns_of(self._rows)
            fitted = [] if self._table is None else self._table.columns_
            for name, column in zip(columns, fitted, strict=False):
                if column.kind == 'dates':  # Also those with a zone, and objects.
                    read = read_column(columns[name], repr(name), 'dates')
                    columns[name] = (1e6 * read.content).astype('M8[us]')
        return explore(self.graph_, **shown | kwargs)
