"""Features of nodes, or columns of their table, as colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl.visualization._page import (
    Json,
    Values,
    as_column,
    as_names,
    class_colours,
    number_colour,
    read_values,
)


def check_x(x: Tensor | None) -> Tensor | None:
    """Return features on the CPU; raise unless they are a matrix of real numbers."""
    if x is None:
        return None
    if x.dim() != 2 or x.is_complex():
        raise ValueError(
            "'data.x' must have shape [n, d] and hold real numbers "
            f'(got {list(x.shape)} of {x.dtype})'
        )
    return x.detach().cpu()


def read_columns(columns: Any) -> dict[str, tuple[Values, bool]]:
    """Read the columns of a table by name, each with a flag of dates, in seconds."""
    if not hasattr(columns, 'items'):
        raise TypeError(
            "'columns' must be a mapping or a pandas.DataFrame "
            f'(got {type(columns).__name__})'
        )
    table = {}
    for name, column in columns.items():
        dtype_kind = getattr(getattr(column, 'dtype', None), 'kind', '')
        if dtype_kind in ('m', 'M'):  # NaT becomes NaN.
            times = np.asarray(column, dtype=f'{dtype_kind}8[us]')
            seconds = (times - np.array(0, times.dtype)) / np.timedelta64(1, 's')
            column = torch.from_numpy(seconds)
        elif dtype_kind == 'b':
            texts = np.asarray(column).astype(str)
            column = [text if text in ('True', 'False') else None for text in texts]
        label = f'columns[{name!r}]'
        if str(name) in table:
            raise ValueError(f"'columns' must have distinct names (got {name!r} twice)")
        values = as_column(read_values(column, label), label)
        table[str(name)] = values, dtype_kind == 'M'
    return table


def feature_colours(
    x: Tensor | None, feature_names: Sequence[str] | None, max_features: int
) -> list[Json]:
    """List the features of largest variance, in order."""
    if x is None or not max_features:
        return []
    names = [f'feature {i}' for i in range(x.size(1))]
    if feature_names is not None:
        names = as_names(feature_names, x.size(1), 'feature_names')
    indices = _largest(_spread(x), max_features)
    rows = x if x.layout == torch.strided else x.to_sparse_coo()
    columns = rows.index_select(1, indices).to_dense()
    pairs = zip(indices.tolist(), columns.t(), strict=True)
    return [number_colour(names[i], column) for i, column in pairs]


def column_colours(
    columns: dict[str, tuple[Values, bool]],
    names: Sequence[str] | None,
    max_columns: int,
) -> list[Json]:
    """List the columns of most values, in order."""
    titles = as_names(
        [*columns] if names is None else names, len(columns), 'feature_names'
    )
    counts = [
        len(
            value[value.isfinite()].unique()
            if isinstance(value, Tensor)
            else {*value} - {None}
        )
        for value, _ in columns.values()
    ]
    indices = {*_largest(torch.tensor(counts, dtype=torch.long), max_columns).tolist()}
    return [
        number_colour(name, value.double(), is_date)
        if isinstance(value, Tensor)
        else class_colours({name: value}, None)[0]
        for i, (name, (value, is_date)) in enumerate(
            zip(titles, columns.values(), strict=False)
        )
        if i in indices
    ]


def _largest(values: Tensor, size: int) -> Tensor:
    """Return the positions of the largest values, in ascending order."""
    return values.argsort(descending=True, stable=True)[:size].sort().values


def _spread(x: Tensor) -> Tensor:
    """Compute the variance of the finite numbers of each column."""
    if x.layout == torch.strided:
        return x.double().nan_to_num(0, 0, 0).var(dim=0, unbiased=False)
    entries = x.to_sparse_coo().coalesce()
    value = entries.values().double().nan_to_num(0, 0, 0)
    sums = value.new_zeros(2, x.size(1))
    sums.index_add_(1, entries.indices()[1], torch.stack([value, value.square()]))
    sums /= x.size(0)
    variance: Tensor = sums[1] - sums[0].square()
    return variance
