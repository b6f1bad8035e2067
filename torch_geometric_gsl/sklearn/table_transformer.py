from __future__ import annotations

import re
import warnings
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from torch_geometric_gsl._warnings import warn_caller
from torch_geometric_gsl.sklearn._columns import (
    NUMBERS,
    ParsedColumn,
    distinct,
    is_frame,
    parse_column,
    read_columns,
    select_columns,
    store_names,
)
from torch_geometric_gsl.sklearn._runtime import atomic

# A column with more distinct strings may identify rows.
_MAX_VALUES = 100
# Strings of dates, such as 2021-04, 2021-04-26 09:30 or 26.4.2021, and of numbers.
_MONTH = '(0?[1-9]|1[0-2])'
_DAY = '(0?[1-9]|[12][0-9]|3[01])'
_DATE = re.compile(
    f'(19|20)[0-9]{{2}}[-/.]{_MONTH}([-/.]{_DAY}([T ].*)?)?'
    f'|{_DAY}[-/.]{_DAY}[-/.](19|20)[0-9]{{2}}( .*)?'
)
_NUMBER = re.compile(r'[-+]?\d[\d.,]*')


class Column(NamedTuple):
    """The name and type of a column in training, and the types of its values."""

    name: Any
    type: str
    value_types: Any


def _warn_of_texts(name: Any, texts: list[Any], is_declared: bool) -> None:
    """Warn about a column of dates, or of many distinct strings."""
    distinct_texts = sorted({text for text in texts if text is not None})
    are_dates = len(distinct_texts) > 2 and all(map(_DATE.fullmatch, distinct_texts))
    is_dated = are_dates and not is_declared
    if is_dated or len(distinct_texts) > max(_MAX_VALUES, len(texts) / 2):
        num_numbers = sum(map(bool, map(_NUMBER.fullmatch, distinct_texts)))
        advice = 'count the words of texts, or drop it if it identifies the rows'
        if are_dates:
            advice = (
                'convert dates with pandas.to_datetime (dayfirst=True for 26.4.2021)'
            )
        elif 2 * num_numbers > len(distinct_texts):
            advice = (
                'convert numbers with pandas.to_numeric, or drop it if it identifies '
                'the rows'
            )
        warn_caller(
            f'column {name!r} has {len(distinct_texts)} distinct strings in '
            f'{len(texts)} rows (such as {shorten(distinct_texts[0], 30)!r}), each '
            f'of which becomes a column: {advice}',
            UserWarning,
        )


def _encoded_name(name: str, value: Any) -> str:
    return f'missingindicator_{name}' if value is None else f'{name}_{value}'


def _stack(columns: list[ParsedColumn]) -> Any:
    """Return columns of one type as a matrix, of numbers or of strings and None."""
    dtype = float if columns[0].type in NUMBERS else object
    return np.array([column.values for column in columns], dtype=dtype).T


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
        r"""Determine the type of each column and fit its encoding.

        Args:
            X (DataFrame or array-like): The table.
            y (Any, optional): Ignored. (default: :obj:`None`)
        """
        columns = read_columns(X)
        store_names(self, X, reset=True)
        self._is_frame = is_frame(X)
        return self.fit_columns(columns)

    def fit_columns(self, columns: list[Any]) -> TableTransformer:
        """Fit names, values, and types of columns, or None to infer a type."""
        reads = []
        for name, values, declared in columns:
            reads.append(parse_column(values, f'column {name!r}', declared))
            if reads[-1].type == 'category':
                _warn_of_texts(name, reads[-1].values, declared is not None)
        self.columns_ = [
            Column(name, read.type, read.value_types)
            for (name, *_), read in zip(columns, reads, strict=True)
        ]
        is_number = np.array([read.type in NUMBERS for read in reads])
        encoders = (
            SimpleImputer(strategy='median', add_indicator=True),
            OneHotEncoder(
                handle_unknown='ignore',
                sparse_output=False,
                feature_name_combiner=_encoded_name,
            ),
        )
        # Numbers come first, then the marks of their gaps, then categories.
        groups = np.flatnonzero(is_number), np.flatnonzero(~is_number)
        self.encoders_ = [
            (encoder.set_output(transform='default'), positions)
            for encoder, positions in zip(encoders, groups, strict=True)
            if len(positions) > 0
        ]
        for encoder, positions in self.encoders_:
            encoder.fit(_stack([reads[position] for position in positions]))
        return self

    def restore(self, columns: list[Any]) -> TableTransformer:
        """Fit the columns of a DataFrame of which a file holds names and types."""
        self._is_frame = True
        self.n_features_in_ = len(columns)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', UserWarning)  # They were seen in `fit`.
            return self.fit_columns(columns)

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
        reads = [
            parse_column(values, f'column {name!r}', column.type)
            for column, (name, values, _) in zip(self.columns_, columns, strict=True)
        ]
        blocks = []
        for encoder, positions in self.encoders_:
            values = _stack([reads[position] for position in positions])
            self._warn_of_changes(encoder, positions, reads, values)
            blocks.append(encoder.transform(values))
        return np.concatenate(blocks, axis=1)

    def _warn_of_changes(
        self, encoder: Any, positions: Any, reads: list[ParsedColumn], values: Any
    ) -> None:
        """Warn about new gaps, and about categories that changed their types."""
        for i, position in enumerate(positions):
            name, column_type, types = self.columns_[position]
            if column_type in NUMBERS:
                num_gaps = int(np.isnan(values[:, i]).sum())
                if num_gaps > 0 and i not in encoder.indicator_.features_:
                    warn_caller(
                        f'column {name!r} has gaps in {num_gaps} rows, but had none '
                        'in training: the median replaces them',
                        UserWarning,
                    )
                continue
            new_types = reads[position].value_types
            if types and new_types != types:
                present = [value for value in values[:, i] if value is not None]
                num_new = sum(
                    value not in {*encoder.categories_[i]} for value in present
                )
                if num_new > 0:
                    new_names, old_names = map(' and '.join, (new_types, types))
                    warn_caller(
                        f'column {name!r} holds {new_names}, but held {old_names} in '
                        f'training: {num_new} of its {len(present)} values are new, '
                        'and count as unknown',
                        UserWarning,
                    )

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        r"""Return the names of the encoded columns.

        Args:
            input_features (array-like, optional): Their names. (default: :obj:`None`)
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        encoded = [
            encoder.get_feature_names_out(names[positions])
            for encoder, positions in self.encoders_
        ]
        # Columns of numbers come first and keep their names.
        return np.array(distinct([*np.concatenate(encoded)], set()), dtype=object)


def make_table_transformer() -> TableTransformer:
    r"""Create a transformer that encodes the columns of a table as numbers.

    The table is a pandas or polars DataFrame, or an array. The encoding depends on the
    values in training:

    * **Numbers**, including objects such as :class:`~decimal.Decimal`, stay, and come
      first. Missing ones become the median, with an extra column that marks them if
      training has some (:class:`sklearn.impute.SimpleImputer`).
    * **Durations** become seconds, **dates and times** seconds since 1970, in UTC
      unless they have a zone; missing ones are imputed as numbers are.
    * **Strings, booleans, categories** and columns of mixed kinds become one column
      per value (:class:`sklearn.preprocessing.OneHotEncoder`). Values are compared as
      strings, so that 1, 1.0 and :obj:`"1"` are equal. A missing value counts as a
      value, a value unseen in training as none. A warning is issued if a column has new
      values of another type.
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
