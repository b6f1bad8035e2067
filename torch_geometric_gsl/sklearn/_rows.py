"""Read and scale the columns of a table; find nearest rows."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import date, timedelta, timezone
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from sklearn.preprocessing import QuantileTransformer, normalize
from torch import Tensor

from torch_geometric_gsl._columns import measure_columns, scale_columns
from torch_geometric_gsl._warnings import silence_csr_warning
from torch_geometric_gsl.sklearn._frames import is_gap
from torch_geometric_gsl.typing import SampledGraph

#: The kinds of columns that convert to numbers.
NUMBERS = ('numbers', 'durations', 'dates')
_SECOND = np.timedelta64(1, 's')
#: The options of scaling columns.
SCALINGS = ('auto', 'robust', 'quantile', 'standard', 'none')
_QUANTILES = 1000
# Noise of this size breaks ties, so that quantiles are distinct.
_NOISE = 1e-5
_FAR = 1e3  # A larger ratio of deviation and quartiles is due to a few values.
# Values far beyond this multiple of the quartiles' distance are bent.
_KNEES = {'robust': 3.0, 'linear': 12.0}


class ParsedColumn(NamedTuple):
    """A column: its kind, one of :obj:`NUMBERS` or a category, and its values.

    Numbers have :obj:`nan` for missing values; categories have strings of values, or
    :obj:`None`, and the types of the values.
    """

    kind: str
    content: Any
    types: Any = ()


def read_column(values: Any, where: str, expected: str | None = None) -> ParsedColumn:
    """Parse a column as the expected kind, or infer its kind."""
    kind = {'m': 'durations', 'M': 'dates'}.get(values.dtype.kind, 'numbers')
    is_plain = values.dtype.kind in 'iufmM' and expected in (None, kind)
    if is_plain and not np.isnan(values).all():
        return ParsedColumn(kind, _finite(_to_float(values), where))
    # As plain values, times would lose their unit.
    items = list(values) if values.dtype.kind in 'mM' else values.tolist()
    items = [None if is_missing(item) else item for item in items]
    present = [item for item in items if item is not None]
    found_kinds = {_kind(item, where) for item in present}
    kind = expected or (min(found_kinds) if len(found_kinds) == 1 else 'category')
    if kind in NUMBERS:
        # Numbers may come as strings or flags; other kinds must match.
        if found_kinds - {kind}:
            items = [_parsed(item, kind, where) for item in items]
        return ParsedColumn(kind, _finite(_gather(items, kind), where))
    texts = [None if item is None else _text(item) for item in items]
    return ParsedColumn(
        'category', texts, sorted({type(item).__name__ for item in present})
    )


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or NA."""
    return value is None or (isinstance(value, Hashable) and is_gap(value))


def _kind(item: Any, where: str) -> str:
    """Return the kind of a value; raise if it is not supported."""
    if isinstance(item, timedelta | np.timedelta64):
        return 'durations'
    if isinstance(item, date | np.datetime64):
        return 'dates'
    if isinstance(item, complex) or not isinstance(item, Hashable):
        raise TypeError(
            f'{where} must hold numbers, strings, booleans, dates or durations: an '
            f'argument must be a string or a real number (got {type(item).__name__})'
        )
    is_number = isinstance(item, Number) and not isinstance(item, bool)
    return 'numbers' if is_number else 'category'


def _text(item: Any) -> str:
    """Convert a category to a string, equal for 1, 1.0 and True."""
    if isinstance(item, bool) or not isinstance(item, Number):
        return str(item)
    value: Any = item
    try:
        integer = int(value)
    except OverflowError:  # Infinite.
        return str(item)
    return str(integer) if integer == value else repr(float(value))


def _parsed(item: Any, expected: str, where: str) -> Any:
    if item is None or _kind(item, where) == expected:
        return item
    if expected == 'numbers' and isinstance(item, str | bool | np.bool_):
        try:
            return float(item)
        except ValueError:
            pass
    hint = ': use pandas.to_datetime' * (expected == 'dates')
    raise ValueError(
        f'{where} must hold {expected}, as in training (got {item!r}){hint}'
    )


def _gather(items: list[Any], kind: str) -> Any:
    """Convert values of one kind to numbers."""
    if kind == 'numbers':
        return np.array([_number(item) for item in items], dtype=np.float64)
    if kind == 'durations':
        return _to_float(np.array(items, dtype='timedelta64[us]'))
    # Times without a zone are in UTC.
    dates = [
        item.astimezone(timezone.utc).replace(tzinfo=None)
        if getattr(item, 'tzinfo', None) is not None
        else item
        for item in items
    ]
    return _to_float(np.array(dates, dtype='datetime64[us]'))


def _number(item: Any) -> float:
    if item is None:
        return np.nan
    try:
        return float(item)
    except OverflowError:
        return np.inf


def _to_float(values: Any) -> Any:
    """Convert to double precision; times become seconds."""
    if values.dtype.kind == 'M':
        values = values - np.datetime64(0, 's')
    if values.dtype.kind == 'm':
        return values / _SECOND
    return values.astype(np.float64)


def _finite(values: Any, where: str) -> Any:
    """Raise unless numbers are finite or missing."""
    is_infinite = np.isinf(values)
    if is_infinite.any():
        row = int(is_infinite.argmax())
        raise ValueError(
            f'{where} must hold finite numbers (got infinity, inf, in row {row})'
        )
    return values


class JitteredQuantiles(QuantileTransformer):  # type: ignore[misc]
    """Map columns to normal quantiles; noise breaks ties, so that they differ."""

    def fit(self, X: Any, y: Any = None) -> JitteredQuantiles:
        noise = np.random.RandomState(0).normal(0, _NOISE, X.shape)
        super().fit(X + noise)
        return self


class Scaling:
    r"""Scale the columns of a table, or sparse rows to unit norm.

    * :obj:`"standard"`: mean 0 and deviation 1;
    * :obj:`"quantile"`: normal quantiles of columns with more than two values;
    * :obj:`"robust"`: :math:`z / \sqrt{1 + (z / 3)^2}` with :math:`z = (x -
      \mathrm{median}) / (q_{75} - q_{25})`, or :math:`2 (x - \mathrm{median}) / (\max -
      \min)` if the quartiles are equal; this bends, but does not flatten, what lies
      outside of the training rows;
    * :obj:`"linear"`: the same with 12 in place of 3, for the linear model.

    Columns constant up to rounding become zero.
    """

    def __init__(self, scaling: str) -> None:
        self.scaling = scaling
        self.is_sparse = False
        self.mean: Any = None
        self.width: Any = None
        self.quantiles: Any = None
        # The columns of more than two values.
        self.varied = np.zeros(0, dtype=int)

    def fit(self, x: Any) -> Scaling:
        """Measure the columns of training rows."""
        self.is_sparse = scipy.sparse.issparse(x)
        if self.is_sparse:
            return self
        self.varied = np.flatnonzero([len(np.unique(column)) > 2 for column in x.T])
        if self.scaling != 'none':
            self.mean, self.width = measure_columns(x)
        if self.scaling in _KNEES:
            low, middle, high = np.percentile(x, (25, 50, 75), axis=0)
            spread = 0.5 * high - 0.5 * low
            ranges = 0.25 * x.max(axis=0) - 0.25 * x.min(axis=0)
            spread = 2 * np.where(spread > 0, spread, ranges)
            self.mean = np.where(self.width > 0, middle, 0.0)
            self.width = np.where(self.width > 0, spread, 0.0)
        elif len(self.varied) > 0 and self.scaling == 'quantile':
            # If a few values dominate the deviation, noise would hide all others.
            low, middle, high = np.percentile(x, (25, 50, 75), axis=0)
            is_far = (self.width > _FAR * (high - low)) & (high > low)
            self.mean = np.where(is_far, middle, self.mean)
            self.width = np.where(is_far, high - low, self.width)
            self.quantiles = JitteredQuantiles(
                n_quantiles=min(_QUANTILES, len(x)),
                output_distribution='normal',
                subsample=None,
            ).set_output(transform='default')
            self.quantiles.fit(self._standardised(x)[:, self.varied])
        return self

    def apply(self, x: Any, dtype: Any = np.float32) -> Any:
        """Scale rows in double precision; raise if they overflow a dtype."""
        if scipy.sparse.issparse(x) != self.is_sparse:
            x = scipy.sparse.csr_matrix(x) if self.is_sparse else x.toarray()
        x = self._standardised(x)
        if self.scaling in _KNEES and not self.is_sparse:
            x = x.clip(-1e150, 1e150)  # Squares must not overflow.
            x = x / np.sqrt(1 + np.square(x / _KNEES[self.scaling]))
        if self.quantiles is not None:
            values = x[:, self.varied].clip(-1e300, 1e300)
            x[:, self.varied] = self.quantiles.transform(values)
        values = x.data if self.is_sparse else x
        with np.errstate(over='ignore'):
            overflows = ~np.isfinite(values.astype(dtype))
        if overflows.any():
            index = overflows.nonzero()[-1][0]
            column = x.indices[index] if self.is_sparse else index
            raise ValueError(
                f"'X' must fit into {np.dtype(dtype)}, the network's precision "
                f'(got a value that is too large in column {column})'
            )
        return x

    def _standardised(self, x: Any) -> Any:
        if self.scaling == 'none':
            return x.astype(np.float64, copy=False)
        if self.is_sparse:
            return normalize(x.astype(np.float64))
        return scale_columns(x, self.mean, self.width)


def to_tensor(x: Any, device: Any, dtype: torch.dtype) -> Tensor:
    """Convert rows to a tensor, sparse CSR if they are sparse."""
    if not scipy.sparse.issparse(x):
        x = np.require(x, requirements=['C', 'W'])
        return torch.as_tensor(x, dtype=dtype, device=device)
    x = scipy.sparse.csr_matrix(x)
    x.sum_duplicates()
    silence_csr_warning()
    rows = torch.sparse_csr_tensor(
        torch.from_numpy(x.indptr.astype(np.int64)),
        torch.from_numpy(x.indices.astype(np.int64)),
        torch.from_numpy(x.data).to(dtype),
        x.shape,
        check_invariants=False,
    )
    return rows.to(device)


def to_csr(graph: SampledGraph, shape: tuple[int, int]) -> Any:
    """Convert edges to a matrix of targets by sources, with explicit zeros."""
    source, target = graph.edge_index.cpu().numpy()
    weight = graph.edge_weight.detach().cpu().numpy()
    order = np.lexsort((source, target))
    offsets = np.searchsorted(target[order], np.arange(shape[0] + 1))
    data = weight[order]
    return scipy.sparse.csr_matrix((data, source[order], offsets), shape=shape)
