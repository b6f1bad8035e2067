"""Predict from nearest rows, and describe rows by the targets of the nearest ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import Normalizer, QuantileTransformer, StandardScaler

from reproduction.tables_data import Array, Problem, Scores, better, score

#: Ways to compare rows: by all columns, or by latitude and longitude.
COLUMNS, PLACE = 'columns', 'place'


class Options(NamedTuple):
    """Arguments of the fits of all methods: seed, threads, and all settings."""

    seed: int
    threads: int
    setting: dict[str, Any]


class Fitted(NamedTuple):
    """A method that has been fitted.

    Args:
        predict: Predicts numbers, or class probabilities, of new rows.
        val: Predictions of validation rows; absent if the fit has used their
            targets.
        choice: The settings that the validation rows selected.
    """

    predict: Callable[[Array], Array]
    val: Array | None = None
    choice: dict[str, Any] = {}  # noqa: RUF012


def scaler(scaling: str, x: Array) -> Any:
    """Fit the scaler of columns before rows are compared."""
    if scaling == 'unit':
        return Normalizer().fit(x)
    if scaling == 'standard':
        return StandardScaler().fit(x)
    return QuantileTransformer(
        n_quantiles=min(1000, len(x)),
        output_distribution='normal',
        subsample=None,
        random_state=0,
    ).fit(x)


def nearest(
    candidates: Array, rows: Array, k: int, threads: int, is_same: bool = False
) -> tuple[Array, Array]:
    """Return distances and indices of the nearest known rows.

    If the rows are the known ones, none is its own neighbour.
    """
    k = min(k, len(candidates) - is_same)
    search = NearestNeighbors(n_neighbors=k + is_same, n_jobs=threads).fit(candidates)
    distance, index = search.kneighbors(rows)
    if not is_same:
        return distance, index
    is_own = index == np.arange(len(rows))[:, None]
    # With many duplicates a row may not find itself: the last neighbour is dropped.
    is_own[~is_own.any(axis=1), -1] = True
    return distance[~is_own].reshape(-1, k), index[~is_own].reshape(-1, k)


def one_hot(y: Array, num_classes: int) -> Array:
    return np.eye(num_classes)[y] if num_classes else y[:, None]


def neighbour_columns(y: Array, num_classes: int, counts: Sequence[int]) -> Array:
    """Describe targets of the nearest rows, ordered by distance.

    Args:
        y: The targets :math:`(n, k)`.
        num_classes: The number of classes; 0 for numbers.
        counts: The numbers of neighbours that are described.

    Returns:
        Array: The mean and the median for each count, or the class frequencies.
    """
    columns = []
    for count in counts:
        near = y[:, :count]
        if num_classes:
            columns.append(one_hot(near, num_classes).mean(axis=1))
        else:
            columns += [near.mean(axis=1)[:, None], np.median(near, axis=1)[:, None]]
    return np.concatenate(columns, axis=1)


class Described:
    """Tables with added columns that describe the targets of the nearest rows.

    Neighbours of training rows are the other training rows, those of validation rows
    are training rows, and those of new rows are both, as in our learned graphs.

    Args:
        problem: The rows.
        by: Ways to compare rows: `columns`, `place`, both or neither.
        options: The counts of neighbours, and the number of threads.
    """

    def __init__(self, problem: Problem, by: Sequence[str], options: Options) -> None:
        self.problem = problem
        self.options = options
        self.by = tuple(
            comparison
            for comparison in by
            if comparison != PLACE or problem.coordinates
        )
        self.scaler = scaler(problem.scaling, problem.x[0]) if COLUMNS in by else None
        self.counts = options.setting['near']
        train, val, _ = problem.x
        y = problem.y[0]
        self.train = self._add(train, train, y, is_same=True)
        self.val = self._add(val, train, y)

    def new(self, x: Array) -> Array:
        """Return new rows with the added columns."""
        candidates = np.concatenate(self.problem.x[:2])
        return self._add(x, candidates, np.concatenate(self.problem.y))

    def _add(
        self, x: Array, candidates: Array, y: Array, is_same: bool = False
    ) -> Array:
        added = [
            neighbour_columns(
                y[self._index(comparison, x, candidates, is_same)],
                self.problem.num_classes,
                self.counts,
            )
            for comparison in self.by
        ]
        return np.concatenate([x, *added], axis=1) if added else x

    def _index(
        self, comparison: str, x: Array, candidates: Array, is_same: bool
    ) -> Array:
        if comparison == PLACE:
            columns = list(self.problem.coordinates)
            x, candidates = x[:, columns], candidates[:, columns]
        elif self.scaler is not None:
            x, candidates = self.scaler.transform(x), self.scaler.transform(candidates)
        k = max(self.counts)
        return nearest(candidates, x, k, self.options.threads, is_same)[1]


def fit_knn(problem: Problem, method: Any, choice: Any, options: Options) -> Fitted:
    """Search the scaling, the number of neighbours and their weights on validation."""
    best: dict[str, Any] | None = None
    best_val = np.empty(0)
    best_scores = Scores()
    for candidate, val in _candidates(problem, options):
        scores = score(problem.y[1], val, problem.num_classes)
        if best is None or better(scores, best_scores):
            best = candidate
            best_val = val
            best_scores = scores
    assert best is not None  # There are candidates.
    setting = best

    def predict(x: Array) -> Array:
        candidates = np.concatenate(problem.x[:2])
        fitted_scaler = scaler(setting['scaling'], problem.x[0])
        neighbours = nearest(
            fitted_scaler.transform(candidates),
            fitted_scaler.transform(x),
            setting['k'],
            options.threads,
        )
        return average(
            np.concatenate(problem.y), *neighbours, setting, problem.num_classes
        )

    return Fitted(predict, best_val, setting)


def _candidates(
    problem: Problem, options: Options
) -> Iterator[tuple[dict[str, Any], Array]]:
    train, val, _ = problem.x
    counts = [k for k in options.setting['neighbours'] if k <= len(train)]
    for scaling in ('quantile', 'standard', 'unit'):
        fitted_scaler = scaler(scaling, train)
        neighbours = nearest(
            fitted_scaler.transform(train),
            fitted_scaler.transform(val),
            max(counts),
            options.threads,
        )
        for k, weights in itertools.product(counts, ('uniform', 'distance')):
            candidate = {'scaling': scaling, 'k': k, 'weights': weights}
            y = problem.y[0]
            yield candidate, average(y, *neighbours, candidate, problem.num_classes)


def average(
    y: Array, distance: Array, index: Array, choice: dict[str, Any], num_classes: int
) -> Array:
    """Average the targets of the nearest rows.

    An additional row with the frequencies of all classes keeps them positive.
    """
    distance, index = distance[:, : choice['k']], index[:, : choice['k']]
    weight = np.ones_like(distance)
    if choice['weights'] == 'distance':
        is_equal = distance == 0
        weight = 1 / np.where(is_equal, 1, distance)
        weight = np.where(is_equal.any(axis=1, keepdims=True), is_equal, weight)
    weight = weight / weight.sum(axis=1, keepdims=True)
    targets = one_hot(y, num_classes)
    mean = (weight[:, :, None] * targets[index]).sum(axis=1)
    if not num_classes:
        return np.asarray(mean[:, 0])
    k = choice['k']
    return np.asarray((k * mean + targets.mean(axis=0)) / (k + 1))
