"""Predict with a fitted estimator, and show the rows that predictions lean on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from torch_geometric_gsl._checks import check_count, check_type
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._blend import Blend
from torch_geometric_gsl.sklearn._columns import is_frame
from torch_geometric_gsl.sklearn._explain import (
    as_rows,
    explanation,
    heaviest,
    page_rows,
    page_targets,
)
from torch_geometric_gsl.sklearn._rows import TrainingRows, check_rows
from torch_geometric_gsl.sklearn._runtime import default_modes, threads_for
from torch_geometric_gsl.visualization.explore import explore

# Warn of more far rows than this number and this share.
_MAX_FAR_ROWS = 1
_MAX_FAR_SHARE = 0.1


class Predictions(BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that predict by a blend, and show its neighbours.

    Subclasses decode outputs of the blend by :meth:`_decode` and
    :meth:`_named_components`.
    """

    # What `fit` and `load` set.
    _rows: TrainingRows
    _blend: Blend
    _net_options: dict[str, Any]

    def __sklearn_is_fitted__(self) -> bool:
        # Pickles of earlier versions have rows without targets.
        return isinstance(getattr(self, '_rows', None), TrainingRows)

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

    def _new_rows(self, X: Any) -> Any:
        """Return checked rows as numbers."""
        check_is_fitted(self)
        return check_rows(self, X, self._rows.encoder)

    def _outputs(self, x: Any) -> Any:
        """Compute probabilities, or scaled targets, of new rows as numbers."""
        with threads_for(max(x.shape[0], self._rows.num_rows)):
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
        x = self._new_rows(X)
        return self._blend.is_far(x)

    def predict(self, X: Any) -> Any:
        r"""Predict the most probable class, or the target, of each row.

        Args:
            X (array-like or DataFrame): The rows.
        """
        return self._decode(self._outputs(self._new_rows(X)))

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
        outputs = [member.own_outputs(self._rows.x) for member in blend.members]
        return self._decode(blend.mean(np.ones(self._rows.num_rows), outputs))

    @property
    def graph_(self) -> Any:
        r"""Return the graph of the training rows.

        Returns:
            scipy.sparse.csr_matrix: In row :math:`i` the weights of its neighbours.
        """
        check_is_fitted(self)
        if not self._blend.learned:
            return scipy.sparse.csr_matrix((self._rows.num_rows,) * 2)
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
        self._check_graph('kneighbors')
        k = self._num_neighbors(n_neighbors)
        return heaviest(self._blend.graph(self._new_rows(X)), k)

    def _num_neighbors(self, n_neighbors: int | None) -> int:
        """Return the number of neighbours to show, at most that of the rows."""
        eval_k: int = self._net_options['eval_k']
        if n_neighbors is None:
            n_neighbors = min(5, eval_k)
        check_count(n_neighbors, 'n_neighbors')
        if n_neighbors > eval_k:
            raise ValueError(
                f"'n_neighbors' must be at most {eval_k}, the neighbours of a "
                f'prediction (got {n_neighbors})'
            )
        return min(n_neighbors, self._rows.num_rows)

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
        x = self._new_rows(X)
        components = self._blend.contributions(x)
        return pandas.DataFrame(self._named_components(components), index=index)

    def explain(self, row: Any, n_neighbors: int | None = None) -> Any:
        r"""Show the training rows that a prediction leans on, as a table.

        :meth:`contributions` reports how much of the prediction comes from them.

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
        self._check_graph('explain')
        row = as_rows(row)
        k = self._num_neighbors(n_neighbors)
        x = self._new_rows(row)
        prediction = self._decode(self._outputs(x))
        return explanation(self._rows, self._blend, row, x, k, prediction)

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
        x_new = None if X_new is None else self._check_new(X_new)
        graph, options = page_rows(self._rows, self._blend, self.graph_, X_new, x_new)
        if self._rows.targets.ndim == 1:
            prediction = self.transduction_
            change = None
            if X_new is not None:
                prediction = np.concatenate([prediction, self.predict(X_new)])
                components = self._blend.contributions(self._new_rows(X_new))
                change = self._named_components(components)['neighbours']
            classes = self.classes_ if is_classifier(self) else None
            targets = page_targets(self._rows, prediction, change, classes)
            options['data'].y = targets.pop('y')
            options |= targets
        return explore(graph, **options | {'path': path} | kwargs)

    def _check_new(self, X_new: Any) -> Any:
        """Return new rows as numbers; name their argument in errors."""
        try:
            return self._new_rows(X_new)
        except (TypeError, ValueError) as error:
            error_class = TypeError if isinstance(error, TypeError) else ValueError
            reason = str(error).partition('\n')[0]
            raise error_class(
                f"'X_new' must hold rows as those of training: {reason}"
            ) from error
