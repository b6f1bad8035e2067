from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import (
    _check_feature_names_in,
    check_array,
    check_is_fitted,
    validate_data,
)

from torch_geometric_gsl._columns import measure_columns
from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._frames import (
    check_unmasked,
    distinct,
    is_frame,
    read_columns,
    select_columns,
    store_names,
    to_native,
)
from torch_geometric_gsl.sklearn._rows import NUMBERS, Read, read_column
from torch_geometric_gsl.sklearn._transaction import atomic

# A column with more distinct strings may identify rows.
_MOST_VALUES = 100
# Single precision, of pandas and polars, and in another byte order.
_SINGLE = {'float32', '>f4', '<f4'}
# Strings of dates, such as 2021-04, 2021-04-26 09:30 or 26.4.2021, and of numbers.
_MONTH, _DAY = '(0?[1-9]|1[0-2])', '(0?[1-9]|[12][0-9]|3[01])'
_DATE = re.compile(
    f'(19|20)[0-9]{{2}}[-/.]{_MONTH}([-/.]{_DAY}([T ].*)?)?'
    f'|{_DAY}[-/.]{_DAY}[-/.](19|20)[0-9]{{2}}( .*)?'
)
_NUMBER = re.compile(r'[-+]?\d[\d.,]*')


class Column(NamedTuple):
    """The fitted statistics of a column, in plain values.

    Missing numbers are imputed; a category has the strings of its values, possibly a
    missing one, and their types. Constant columns may vary by rounding.
    """

    name: Any
    kind: str
    fill: float = 0.0
    values: Any = ()
    types: Any = ()
    has_gaps: bool = False
    is_constant: bool = False

    @classmethod
    def of(cls, name: Any, read: Read, is_declared: bool = False) -> Column:
        """Fit a column, perhaps declared to be a category."""
        if read.kind in NUMBERS:
            gaps = np.isnan(read.content)
            known = read.content[~gaps].astype(read.dtype)
            # Scaling uses double precision.
            is_short = read.dtype.itemsize < 8 and len(known) > 1
            is_constant = is_short and not measure_columns(known[:, None])[1].any()
            fill = float(np.median(read.content[~gaps]))
            return cls(name, read.kind, fill, (), (), bool(gaps.any()), is_constant)
        # A column without values is a category of missing values.
        found = set(read.content)
        texts = sorted(found - {None})
        is_dated = not is_declared and _are_dates(texts)
        if is_dated or len(found) > max(_MOST_VALUES, len(read.content) / 2):
            warn_caller(
                f'column {name!r} has {len(texts)} distinct strings in '
                f'{len(read.content)} rows (such as {shorten(texts[0], 30)!r}), each '
                f'of which becomes a column: {_advice(texts)}',
                UserWarning,
            )
        values = [*texts, *([None] if None in found else [])]
        return cls(name, 'category', values=values, types=read.types)

    def block(self, read: Read) -> Any:
        """Encode a column as numbers."""
        if self.kind in NUMBERS:
            gaps = np.isnan(read.content)
            if gaps.any() and not self.has_gaps:
                warn_caller(
                    f'column {self.name!r} has gaps in {gaps.sum()} rows, but had none '
                    'in training: the median replaces them',
                    UserWarning,
                )
            gone = np.ones_like(gaps) if self.is_constant else gaps
            numbers = [np.where(gone, self.fill, read.content)]
            return np.stack(numbers + [gaps] * self.has_gaps, axis=1)
        place = {value: i for i, value in enumerate(self.values)}
        codes = np.array([place.get(value, -1) for value in read.content], dtype=int)
        present = np.array([value is not None for value in read.content], dtype=bool)
        num_new = int((codes[present] < 0).sum())
        if self.types and num_new > 0 and read.types != self.types:
            now, before = (' and '.join(types) for types in (read.types, self.types))
            warn_caller(
                f'column {self.name!r} holds {now}, but held {before} in training: '
                f'{num_new} of its {present.sum()} values are new, and count as '
                'unknown',
                UserWarning,
            )
        return codes[:, None] == np.arange(len(self.values))

    def names(self, name: str) -> list[str]:
        """Return the names of the encoded columns."""
        missing = f'missingindicator_{name}'
        if self.kind in NUMBERS:
            return [name] + [missing] * self.has_gaps
        return [missing if v is None else f'{name}_{v}' for v in self.values]


def _are_dates(texts: list[str]) -> bool:
    return len(texts) > 2 and all(map(_DATE.fullmatch, texts))


def _advice(texts: list[str]) -> str:
    """Return what to do with many strings."""
    if _are_dates(texts):
        return 'convert dates with pandas.to_datetime (dayfirst=True for 26.4.2021)'
    numbers = [text for text in texts if _NUMBER.fullmatch(text)]
    way = 'count the words of texts'
    if 2 * len(numbers) > len(texts):
        way = 'convert numbers with pandas.to_numeric'
    return f'{way}, or drop it if it identifies the rows'


class TableTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer of the columns of a table; see :func:`make_table_transformer`."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    @atomic
    def fit(self, X: Any, y: Any = None) -> TableTransformer:
        r"""Determine the kind of each column and fit its encoding.

        Args:
            X (DataFrame or array-like): The table.
            y (Any, optional): Ignored. (default: :obj:`None`)
        """
        columns = read_columns(X)
        store_names(self, X, reset=True)
        self._is_frame = is_frame(X)
        self.columns_ = [
            Column.of(name, read_column(values, f'column {name!r}', kind), bool(kind))
            for name, values, kind in columns
        ]
        return self

    def transform(self, X: Any) -> Any:
        r"""Encode the rows as numbers.

        Args:
            X (DataFrame or array-like): The rows. Columns of a DataFrame are matched
                by name, in any order; other columns are ignored.

        Returns:
            numpy.ndarray: A matrix in double precision.
        """
        check_is_fitted(self)
        columns = self.read(X)
        if not (self._is_frame and is_frame(X)):
            store_names(self, X, reset=False)
        return self.encode(columns)

    def read(self, X: Any) -> list[Any]:
        """Read the columns of rows, those of a DataFrame in the order of training."""
        if self._is_frame and is_frame(X):
            X = select_columns(X, [column.name for column in self.columns_])
        return read_columns(X)

    def encode(self, columns: list[Any]) -> Any:
        """Encode columns that were read as numbers."""
        blocks = [
            column.block(read_column(values, f'column {name!r}', column.kind))
            for column, (name, values, _) in zip(self.columns_, columns, strict=True)
        ]
        return np.concatenate(blocks, axis=1, dtype=np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        r"""Return the names of the encoded columns.

        Args:
            input_features (array-like, optional): Their names. (default: :obj:`None`)
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        encoded = [
            (name, new)
            for column, name in zip(self.columns_, names, strict=True)
            for new in column.names(name)
        ]
        # Columns of numbers keep their names, and the names of values give way.
        numbers = {name for name, new in encoded if new == name}
        made = iter(distinct([new for name, new in encoded if new != name], numbers))
        out = [name if new == name else next(made) for name, new in encoded]
        return np.array(out, dtype=object)

    def state(self) -> dict[str, Any]:
        """Return the fitted state as plain values, without the names of columns."""
        columns = [column._replace(name=None) for column in self.columns_]
        return {'columns': [column._asdict() for column in columns]}

    @classmethod
    def restored(cls, state: dict[str, Any], names: list[Any]) -> TableTransformer:
        """Restore a transformer of DataFrames from its state."""
        self = cls()
        self.columns_ = [
            Column(**column | {'name': name})
            for name, column in zip(names, state['columns'], strict=True)
        ]
        self._is_frame, self.n_features_in_ = True, len(names)
        return self


def make_table_transformer() -> TableTransformer:
    r"""Create a transformer that encodes the columns of a table as numbers.

    The table is a pandas or polars DataFrame, or an array. The encoding depends on the
    values in training:

    * **Numbers**, including objects such as :class:`~decimal.Decimal`, stay. Missing
      ones become the median, with an extra column that marks them if training has some.
    * **Durations** become seconds, **dates and times** seconds since 1970, in UTC
      unless they have a zone; missing ones are imputed as numbers are.
    * **Strings, booleans, categories** and columns of mixed kinds become one column
      per value. Values are compared as strings, so that 1, 1.0 and :obj:`"1"` are
      equal. A missing value counts as a value, a value unseen in training as none. A
      warning is issued if a column has new values of another type.
    * A column **without any value** is ignored, also later.

    Returns:
        TableTransformer: The first step of a pipeline with an estimator.

    Raises:
        TypeError: If values of a column have another type, such as lists.
        ValueError: If a number is infinite, a name is duplicated, or later rows lack a
            column or have other values in a numeric one. The message names the column.

    Example:
        >>> from sklearn.pipeline import make_pipeline
        >>> from torch_geometric_gsl.sklearn import GSLClassifier
        >>> model = make_pipeline(make_table_transformer(), GSLClassifier())
    """
    return TableTransformer()


def check_rows(estimator: Any, X: Any, *, reset: bool, **options: Any) -> Any:
    """Convert the rows of an estimator to numbers; encode a DataFrame.

    Options are those of :func:`sklearn.utils.check_array`; :obj:`reset` fits.
    """
    options['dtype'] = (np.float64, np.float32)
    if len(shape := tuple(getattr(X, 'shape', ()))) == 1:
        one = 'X.to_frame().T' if hasattr(X, 'iloc') else 'X.reshape(1, -1)'
        raise ValueError(
            f"'X' must be a table (got a {type(X).__name__} of {shape[0]} values). "
            f"Reshape your data: '{one}' is one row"
        )
    first = X[0] if isinstance(X, list) and X else X
    if isinstance(first, Mapping) and not hasattr(X, 'shape'):  # As sparse ones have.
        is_row = X is first and all(np.ndim(value) == 0 for value in X.values())
        way = 'pandas.DataFrame([X])' if is_row else 'pandas.DataFrame(X)'
        raise TypeError(f"'X' must be a table (got a {type(X).__name__}): use '{way}'")
    if isinstance(X, str | PathLike):
        raise TypeError(f"'X' must be a table (got {X!r}): use 'pandas.read_csv'")
    if reset:
        estimator._table = TableTransformer().fit(X) if is_frame(X) else None
    if estimator._table is None:
        check_unmasked(X, 'X')
        X = to_native(X) if isinstance(X, np.ndarray) else X
        try:
            return validate_data(estimator, X, reset=reset, **options)
        except (TypeError, ValueError) as error:
            if not (odd := _odd_column(X)):
                raise
            kind = TypeError if isinstance(error, TypeError) else ValueError
            reason = str(error).partition('\n')[0]
            raise kind(
                f"'X' must hold numbers if 'fit' had no DataFrame ({odd}: "
                f'{reason}): make_table_transformer() encodes strings and gaps'
            ) from error
    if reset or not is_frame(X):
        store_names(estimator, X, reset=reset)
    X = X.toarray() if scipy.sparse.issparse(X) else X
    table = estimator._table
    rows = check_array(table.encode(table.read(X)), **options)
    is_single = reset and {str(kind).lower() for kind in X.dtypes} <= _SINGLE
    return rows.astype(np.float32) if is_single else rows


def _odd_column(X: Any) -> str:
    """Find the first column that is not numeric, if any."""
    try:
        columns = TableTransformer().fit(X).columns_
    except (TypeError, ValueError) as error:  # Perhaps without columns.
        return str(error) if str(error).startswith('column') else ''
    odd = [c.name for c in columns if c.kind != 'numbers' or c.has_gaps]
    return f'column {odd[0]!r}' if odd else ''
