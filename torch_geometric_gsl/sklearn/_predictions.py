"""Predict with the blend of a fitted estimator, and retrieve neighbours."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from torch_geometric_gsl._checks import check_count
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._blend import Blend
from torch_geometric_gsl.sklearn._columns import is_frame
from torch_geometric_gsl.sklearn._runtime import threads_for
from torch_geometric_gsl.sklearn.table_transformer import check_rows

# Warn of more far rows than this number and this share.
_MAX_FAR_ROWS = 1
_MAX_FAR_SHARE = 0.1


class Predictions(BaseEstimator):  # type: ignore[misc]
    """Predict new rows, and training rows from each other."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, '_blend')

    def __str__(self) -> str:
        """Return the parameters, and of a fitted estimator the members."""
        lines = [repr(self)]
        if self.__sklearn_is_fitted__():
            report = self._blend.report
            width = max(map(len, report))
            lines.append(f'{"":{width}}  loss     weight')
            for name, row in sorted(report.items(), key=lambda item: item[1][0]):
                loss = '' if np.isnan(row[0]) else f'{row[0]:.4g}'
                weight = '' if np.isnan(row[1]) else f'{row[1]:.2f}'
                lines.append(f'{name:{width}}  {loss:<9} {weight}'.rstrip())
        return '\n'.join(lines)

    # What `fit` sets: the blend, the training rows as numbers, their groups and order,
    _blend: Blend
    _x: Any
    _seen: list[Any]
    # and the same rows as passed to it: columns, targets and names.
    _rows: Any
    _targets: Any
    _labels: Any
    _target_name: str

    def _new_rows(self, X: Any) -> Any:
        """Return checked rows as numbers."""
        check_is_fitted(self)
        return check_rows(self, X, reset=False, accept_sparse='csr')

    def _outputs(self, X: Any) -> Any:
        """Compute probabilities, or scaled targets, of new rows."""
        x = self._new_rows(X)
        with threads_for(max(x.shape[0], self._x.shape[0])):
            nearness, outputs = self._blend.outputs(x)
        num_far = int((nearness < 1).sum())
        if num_far > _MAX_FAR_ROWS + _MAX_FAR_SHARE * len(nearness):
            warn_caller(
                f'{num_far} of {len(nearness)} rows are far from all training rows, '
                "where 1 % of those held back in training are: see 'is_far'",
                UserWarning,
            )
        return self._blend.mean(nearness, outputs)

    def is_far(self, X: Any) -> Any:
        r"""Return which rows are far from all training rows.

        Their learned distance to the nearest training row is larger than that of 99 %
        of the rows held back in training. The farther a row, the more its prediction
        is that of a second blend, of boosting, the linear model and the network without
        a graph.

        Args:
            X (array-like or DataFrame): The rows.

        Returns:
            numpy.ndarray: A flag for each row. None is set if no learned graph has a
            weight, or if nearly all rows held back equal a training row.
        """
        return self._blend.is_far(self._new_rows(X))

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
        blend = self._blend
        outputs = [member.own_outputs(self._x) for member in blend.members]
        return self._decode(blend.mean(np.ones(len(self._targets)), outputs))

    @property
    def graph_(self) -> Any:
        r"""Return the graph of the training rows.

        Returns:
            scipy.sparse.csr_matrix: In row :math:`i` the weights of its neighbours.
        """
        check_is_fitted(self)
        if not self._blend.learned:
            return scipy.sparse.csr_matrix((self._x.shape[0],) * 2)
        return self._blend.graph()

    @property
    def report_(self) -> Any:
        r"""Return the losses of members and of simple models on held-back rows.

        Losses are squared errors of standardized targets, or log losses. Controls that
        are not members are fitted on at most 20,000 rows.

        Returns:
            pandas.DataFrame: The loss of each model, and its weight in the blend.
        """
        import pandas

        check_is_fitted(self)
        report = self._blend.report
        index = pandas.Index([*report], name='model')
        table = pandas.DataFrame([*report.values()], index, ['loss', 'weight'])
        return table.sort_values('loss')

    def _check_graph(self, name: str) -> None:
        """Raise if there is no graph."""
        check_is_fitted(self)
        if not self._blend.learned:
            raise ValueError(
                f'{name!r} needs a graph, and no member with neighbours has a weight '
                f"(got {self._blend.weights}): fit with graph='learned'"
            )
        if self._blend.is_constant:
            warn_caller(
                'no signal was found in training: predictions are a constant, and the '
                'neighbours of a row do not change its own',
                UserWarning,
            )

    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[Any, Any]:
        r"""Retrieve the training rows with the largest weight in predictions.

        A training row is its own first neighbour, since predictions treat all rows as
        new; :attr:`graph_` leaves it out.

        Args:
            X (array-like or DataFrame): The rows to predict.
            n_neighbors (int, optional): The number of neighbours per row, at most
                :obj:`eval_k`; five, if there are as many, for :obj:`None`.
                (default: :obj:`None`)

        Returns:
            tuple[numpy.ndarray, numpy.ndarray]: Weights in descending order, and
            positions of training rows, both :math:`[n, k]`. The weights of all
            neighbours of a row sum to 1, or less where a null neighbour has a share, as
            with groups; missing ones are padded with rows of weight 0.

        Raises:
            ValueError: If the estimator has no graph, or not so many neighbours.
        """
        if n_neighbors is not None:
            check_count(n_neighbors, 'n_neighbors')
        x = self._new_rows(X)
        self._check_graph('kneighbors')
        num_rows = self._x.shape[0]
        eval_k = self._net_options['eval_k']
        n_neighbors = min(5, eval_k) if n_neighbors is None else n_neighbors
        if n_neighbors > eval_k:
            raise ValueError(
                f"'n_neighbors' must be at most {eval_k}, the neighbours of a "
                f'prediction (got {n_neighbors})'
            )
        k = min(n_neighbors, num_rows)
        graph = self._blend.graph(x)
        weights = np.zeros((x.shape[0], k))
        rows = np.zeros((x.shape[0], k), int)
        for i, (start, stop) in enumerate(pairwise(graph.indptr)):
            weight = graph.data[start:stop]
            sources = graph.indices[start:stop]
            order = np.argsort(-weight, kind='stable')[:k]
            weights[i, : len(order)] = weight[order]
            sources = sources[order]
            if len(order) < k:
                padding = np.setdiff1d(np.arange(num_rows), sources)
                sources = np.concatenate([sources, padding[: k - len(order)]])
            rows[i] = sources
        return weights, rows

    def contributions(self, X: Any) -> Any:
        r"""Divide predictions into what they come from.

        The parts sum to the prediction of a row, or to the probability of its class:

        * **constant** is the mean target of the training rows, or the share of the
          class;
        * **trees** is what boosting changes;
        * **own columns** is what networks and the linear model change by the columns of
          a row, while its neighbours are replaced by the mean of all rows;
        * **neighbours** is what the neighbours of the row change then.

        Args:
            X (array-like or DataFrame): The rows to predict.

        Returns:
            pandas.DataFrame: The parts of each row and their sum, the prediction or
            its probability, with the index of a DataFrame. Parts of several targets
            have one column each.

        Raises:
            ImportError: If pandas is missing.
        """
        import pandas

        index = getattr(X, 'index', None) if is_frame(X) else None
        components = self._blend.contributions(self._new_rows(X))
        return pandas.DataFrame(self._named_components(components), index=index)
