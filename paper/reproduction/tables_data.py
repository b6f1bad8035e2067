"""Read tables, and split their rows at random, by place or by time."""

from __future__ import annotations

import csv
import gzip
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn import datasets as sklearn_datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD

from reproduction.datasets import load_dataset

Array = np.ndarray[Any, Any]

#: Where the files are, unless `GSL_DATA` names another folder.
BESIDE = Path(__file__).resolve().parents[3] / 'shared' / 'data'
#: Fractions of the rows for training, and for training and validation together.
TRAIN, TRAIN_AND_VAL = 0.64, 0.80
#: Number of clusters that define places, and of those for the test.
PLACES, TEST_PLACES = 10, 2
PLACE, TIME = 'place', 'time'
RANDOM_SPLITS = tuple(map(str, range(10)))
#: All splits, in the order in which they are run.
SPLITS = ('0', PLACE, TIME, *RANDOM_SPLITS[1:])
#: Values of the text columns of the diamonds, from the worst to the best.
GRADES = (
    ('Fair', 'Good', 'Very Good', 'Premium', 'Ideal'),
    ('J', 'I', 'H', 'G', 'F', 'E', 'D'),
    ('I1', 'SI2', 'SI1', 'VS2', 'VS1', 'VVS2', 'VVS1', 'IF'),
)


class Table(NamedTuple):
    """Rows and their targets.

    Args:
        x: The columns; a sparse matrix if they are to be reduced.
        y: Numbers, or indices of classes.
        num_classes: The number of classes; 0 for a regression.
    """

    x: Any
    y: Array
    num_classes: int = 0


class Source(NamedTuple):
    """A table that can be read.

    Args:
        read: Function that reads it.
        is_regression: If `True`, the target is a number.
        unit: The unit of the target, for titles.
        coordinates: The columns of latitude and longitude.
        time: The columns of the calendar, the coarsest first.
        scaling: How columns are scaled before rows are compared: `quantile` (each to
            a normal distribution) or `unit` (each row to unit norm).
        reduce: The number of singular vectors of the training rows that replace the
            columns; 0 keeps the columns.
    """

    read: Callable[[], Table]
    is_regression: bool = True
    unit: str = ''
    coordinates: tuple[int, ...] = ()
    time: tuple[int, ...] = ()
    scaling: str = 'quantile'
    reduce: int = 0

    def splits(self) -> tuple[str, ...]:
        """Return the names of the splits that the table has."""
        absent = {PLACE: not self.coordinates, TIME: not self.time}
        return tuple(name for name in SPLITS if not absent.get(name, False))


class Problem(NamedTuple):
    """The data of a split that a method sees: no labels of test rows.

    Args:
        x: The columns of rows for training, validation and test.
        y: The targets of rows for training and validation.
        num_classes: The number of classes; 0 for a regression.
        coordinates: The columns of latitude and longitude.
        scaling: How columns are scaled before rows are compared.
    """

    x: tuple[Array, Array, Array]
    y: tuple[Array, Array]
    num_classes: int = 0
    coordinates: tuple[int, ...] = ()
    scaling: str = 'quantile'


def data_folder() -> Path:
    """Return the folder of the raw files."""
    return Path(os.environ.get('GSL_DATA', BESIDE))


def _text(name: str) -> list[list[str]]:
    """Read the rows of a compressed CSV file."""
    path = data_folder() / 'tables' / name
    if not path.is_file():
        raise OSError(f"'{path}' was not found: let 'GSL_DATA' name its folder")
    with gzip.open(path, 'rt', encoding='utf-8', newline='') as file:
        return list(csv.reader(file))


def california() -> Table:
    """Read the districts of California, with values in 100,000 dollars."""
    rows = np.array(_text('cal_housing.data.gz')[1:], dtype=float)
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = (
        rows.T
    )
    columns = [
        *(income, age, rooms / households, bedrooms / households),
        *(people, people / households, latitude, longitude),
    ]
    return Table(np.stack(columns, axis=1), value / 1e5)


def diamonds() -> Table:
    """Read the diamonds; the grades of cut, colour and clarity become numbers."""
    head, *rows = _text('diamonds.csv.gz')
    grades = dict(zip(('cut', 'color', 'clarity'), GRADES, strict=True))
    columns = [
        [grades[name].index(row[column]) if name in grades else row[column]
         for row in rows]
        for column, name in enumerate(head)
    ]  # fmt: skip
    values = np.array(columns, dtype=float).T
    target = head.index('price')
    return Table(np.delete(values, target, axis=1), values[:, target])


def _numbers(name: str, dropped: int = 0) -> Table:
    """Read a file whose last column is the target; drop some columns before it."""
    rows = np.array(_text(f'{name}.csv.gz'), dtype=float)
    return Table(rows[:, : -1 - dropped], rows[:, -1])


def _diabetes() -> Table:
    return Table(*sklearn_datasets.load_diabetes(return_X_y=True, scaled=False))


def _sklearn(name: str) -> Table:
    x, y = getattr(sklearn_datasets, f'load_{name}')(return_X_y=True)
    return Table(x, y, int(y.max()) + 1)


def _words(name: str) -> Table:
    """Read the features and the classes of documents."""
    if 'GSL_DATA' not in os.environ and BESIDE.is_dir():
        os.environ['GSL_DATA'] = str(BESIDE)
    data = load_dataset(name)
    x, y = data['x'], data['y'].numpy()
    if x.layout == torch.strided:
        return Table(x.numpy().astype(np.float32), y, int(y.max()) + 1)
    arrays = x.values(), x.col_indices(), x.crow_indices()
    matrix = sparse.csr_matrix(tuple(array.numpy() for array in arrays), tuple(x.shape))
    if SOURCES[name].reduce:
        return Table(matrix, y, int(y.max()) + 1)
    return Table(matrix.toarray().astype(np.float32), y, int(y.max()) + 1)


SOURCES = {
    'california': Source(california, unit='100,000 dollars', coordinates=(6, 7)),
    'diamonds': Source(diamonds, unit='dollars'),
    # The last two inputs sum to the target. Times are year, month, day, hour.
    'bike': Source(partial(_numbers, 'bike', 2), time=(0, 1, 2, 6)),
    'pol': Source(partial(_numbers, 'pol')),
    'kin40k': Source(partial(_numbers, 'kin40k')),
    'elevators': Source(partial(_numbers, 'elevators')),
    'skillcraft': Source(partial(_numbers, 'skillcraft')),
    # Month, day, hour, minute.
    'sml': Source(partial(_numbers, 'sml'), time=(1, 0, 3, 4)),
    'diabetes': Source(_diabetes),
    'digits': Source(partial(_sklearn, 'digits'), False, scaling='unit'),
    'wine': Source(partial(_sklearn, 'wine'), False),
    'breast_cancer': Source(partial(_sklearn, 'breast_cancer'), False),
    '20News': Source(partial(_words, '20News'), False, scaling='unit'),
    'PubMed': Source(partial(_words, 'PubMed'), False, scaling='unit'),
    'CiteSeer': Source(partial(_words, 'CiteSeer'), False, scaling='unit', reduce=100),
}


def split(table: Table, source: Source, name: str) -> tuple[Array, Array, Array]:
    """Return the rows for training, validation and test.

    Raises:
        ValueError: If the table has no such split.
    """
    if name not in source.splits():
        raise ValueError(f"'split' must be one of {source.splits()} (got '{name}')")
    if name == PLACE:
        return _by_place(table.x[:, list(source.coordinates)])
    num_rows = len(table.y)
    order = np.random.RandomState(0 if name == TIME else int(name)).permutation(
        num_rows
    )
    if name == TIME:
        # The files are shuffled, but have columns of time.
        order = np.lexsort([table.x[:, column] for column in source.time[::-1]])
    num_train, num_seen = int(TRAIN * num_rows), int(TRAIN_AND_VAL * num_rows)
    return order[:num_train], order[num_train:num_seen], order[num_seen:]


def _by_place(x: Array) -> tuple[Array, Array, Array]:
    """Hold out whole places: clusters of latitude and longitude."""
    cluster = KMeans(PLACES, n_init=10, random_state=0).fit_predict(x)
    order = np.random.RandomState(0).permutation(PLACES)
    is_test = np.isin(cluster, order[:TEST_PLACES])
    is_val = cluster == order[TEST_PLACES]
    train, val, test = map(np.flatnonzero, (~is_test & ~is_val, is_val, is_test))
    return train, val, test


def problem(
    table: Table, source: Source, rows: tuple[Array, Array, Array]
) -> tuple[Problem, Array]:
    """Return the data of a split that a method sees, and the targets of test rows."""
    train, val, test = (table.x[indices] for indices in rows)
    if source.reduce:
        svd = TruncatedSVD(source.reduce, random_state=0).fit(train)
        train, val, test = map(svd.transform, (train, val, test))
    y_train, y_val, y_test = (table.y[indices] for indices in rows)
    seen = Problem(
        (train, val, test),
        (y_train, y_val),
        table.num_classes,
        source.coordinates,
        source.scaling,
    )
    return seen, y_test


#: Class probabilities are at least this large.
LEAST = 1e-15

Scores = dict[str, float]


def score(y: Array, prediction: Array, num_classes: int) -> Scores:
    """Return the root mean squared error, or the error rate and the log loss.

    Args:
        y: The targets.
        prediction: Numbers, or class probabilities :math:`(n, C)`.
        num_classes: The number of classes; 0 for numbers.
    """
    if not num_classes:
        return {'rmse': float(np.sqrt(np.mean((prediction - y) ** 2)))}
    probabilities = np.clip(prediction, LEAST, None)
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    probability = probabilities[np.arange(len(y)), y]
    return {
        'error': float(np.mean(prediction.argmax(axis=1) != y)),
        'log_loss': float(-np.log(probability).mean()),
    }


def better(scores: Scores, than: Scores) -> bool:
    """Return whether scores are lower; the log loss breaks ties of errors."""
    losses = list(scores.values())
    if not all(map(math.isfinite, losses)):
        return False
    return losses < list(than.values())
