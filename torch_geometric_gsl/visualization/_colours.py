"""Colours of nodes: classes, numbers, features and columns of tables."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from numbers import Integral, Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl._labels import find_labelled

#: Classes as integers or strings (None if unlabelled), or numbers.
Values = Tensor | list[str | None]
Json = dict[str, Any]
#: Colours of classes. The first eight, by Okabe and Ito, are safe for colour-blind
#: people; the others are from Kelly and Trubetskoy.
COLORS = (
    *('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000'),
    *('#F0E442', '#882D17', '#875692', '#8DB600', '#BE0032', '#F032E6', '#808000'),
    *('#AAFFC3', '#F99379', '#000075', '#DCBEFF', '#911EB4', '#9A6324'),
)
# Significant digits of weights and positions.
_DIGITS = 4
_COLUMN_DIGITS = 6
_DATE_DIGITS = 17


def palette(num_classes: int) -> list[str]:
    """Return a colour for each class, evenly spaced hues if there are many."""
    if num_classes <= len(COLORS):
        return list(COLORS)
    colours = []
    for i in range(num_classes):
        # Adjacent classes get distant hues.
        hue = (i * 0.618034) % 1
        light = (0.42, 0.62)[i % 2]
        rgb = colorsys.hls_to_rgb(hue, light, 0.65)
        colours.append('#' + ''.join(f'{round(255 * value):02x}' for value in rgb))
    return colours


def read_values(values: Any, name: str) -> Values:
    """Read values of nodes from a tensor, an array, a list or a column."""
    if not isinstance(values, Tensor):
        if isinstance(values, str) or not hasattr(values, '__len__'):
            raise TypeError(
                f"'{name}' must be a tensor, an array or a sequence "
                f'(got {type(values).__name__})'
            )
        values = values.to_numpy() if hasattr(values, 'to_numpy') else values
        # NumPy would convert all items to strings if one is.
        is_array = isinstance(values, np.ndarray)
        array = values if is_array else np.array(values, dtype=object)
        if array.dtype.kind not in 'biufc':
            return _from_objects(array.tolist(), name)
        values = torch.from_numpy(np.require(array, requirements=['C', 'W']))
    tensor: Tensor = values.detach().cpu()
    return (
        tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()
    )


def _from_objects(items: list[Any], name: str) -> Values:
    """Convert the items to numbers if all are numbers, else to strings."""
    if any(isinstance(item, list) for item in items):
        try:
            return read_values(torch.tensor(items), name)
        except (TypeError, ValueError):
            raise ValueError(f"'{name}' must have one value per node") from None
    values: list[Any] = [None if _is_missing(item) else item for item in items]
    present = [item for item in values if item is not None]
    if not all(isinstance(item, Number) for item in present):
        return [None if item is None else str(item) for item in values]
    if len(present) == len(values) and all(
        isinstance(item, Integral) for item in present
    ):
        return torch.tensor([int(item) for item in present], dtype=torch.long)
    numbers = [math.nan if item is None else float(item) for item in values]
    return torch.tensor(numbers, dtype=torch.double)


def _is_missing(item: Any) -> bool:
    """Return whether an item is None, NaN or the NA of pandas."""
    return item is None or type(item).__name__ == 'NAType' or bool(item != item)


def as_texts(value: Values) -> Values:
    """Convert classes to strings; return numbers unchanged."""
    if isinstance(value, list) or value.is_floating_point():
        return value
    is_labelled = find_labelled(value.numpy(), None)
    items = zip(value.tolist(), is_labelled, strict=True)
    return [str(item) if has_label else None for item, has_label in items]


def as_names(names: Sequence[Any] | None, count: int, name: str) -> list[str]:
    """Convert names to strings; raise unless there are enough."""
    if names is None:
        return [str(i) for i in range(count)]
    if isinstance(names, str):
        raise TypeError(f"'{name}' must be a sequence of names (got a str)")
    if len(names) < count:
        raise ValueError(f"'{name}' must name all {count} (got {len(names)})")
    return [str(item) for item in names]


def class_colours(
    columns: dict[str, Values], class_names: Sequence[Any] | None
) -> list[Json]:
    """List labels and predictions, with the same colours for classes."""
    names = None if class_names is None else as_names(class_names, 0, 'class_names')
    coded, texts = _encode_classes(
        {k: as_column(v, k) for k, v in columns.items()}, names
    )
    classes = [value for value in coded.values() if not value.is_floating_point()]
    codes = torch.cat([*classes, torch.empty(0, dtype=torch.long)])
    is_present = codes >= 0
    if texts is None:
        is_present = torch.from_numpy(find_labelled(codes.numpy(), None))
    present: list[int] = codes[is_present].unique().tolist()
    if texts is None and names is not None and present:
        if present[0] < 0:
            raise ValueError(
                f"'class_names' must be None with negative classes (got {present[0]})"
            )
        texts = as_names(names, present[-1] + 1, 'class_names')
    titles = [str(i) if texts is None else texts[i] for i in present]
    indices = {label: index for index, label in enumerate(present)}
    entries = []
    for name, value in coded.items():
        if value.is_floating_point():
            entries.append(number_colour(name, value))
        else:
            classes_of_nodes = [indices.get(label) for label in value.tolist()]
            entry = {'name': name, 'kind': 'class', 'classes': titles}
            entries.append({**entry, 'values': classes_of_nodes})
    return entries


def as_column(value: Values, name: str) -> Values:
    """Return one value per node; raise for other shapes."""
    if isinstance(value, list):
        return value
    value = value.squeeze(1) if value.dim() == 2 and value.size(1) == 1 else value
    if value.dim() != 1 or value.is_complex():
        raise ValueError(
            f"'{name}' must have shape [n] and hold classes or real numbers "
            f'(got {list(value.shape)} of {value.dtype})'
        )
    return value


def _encode_classes(
    columns: dict[str, Values], names: list[str] | None
) -> tuple[dict[str, Tensor], list[str] | None]:
    """Replace string classes by their indices among the class names."""
    has_texts = any(isinstance(value, list) for value in columns.values())
    if has_texts and names is None:
        columns = {k: as_texts(v) for k, v in columns.items()}
        present = {text for v in columns.values() if isinstance(v, list) for text in v}
        names = sorted(text for text in present if text is not None)
    codes: dict[str | None, int] = {n: i for i, n in enumerate(names or [])}
    codes[None] = -1
    coded: dict[str, Tensor] = {}
    for name, value in columns.items():
        if isinstance(value, Tensor):
            coded[name] = value
            continue
        if unknown := [text for text in value if text not in codes]:
            raise ValueError(
                f"'class_names' must hold every class of '{name}' "
                f'(got {names}, without {unknown[0]!r})'
            )
        coded[name] = torch.tensor([codes[text] for text in value])
    return coded, names if has_texts else None


def number_colour(name: str, value: Tensor, is_date: bool = False) -> Json:
    """Colour nodes by numbers, from the smallest to the largest."""
    finite = value.double()[value.isfinite()]
    size = float(finite.abs().amax()) if len(finite) else 0.0
    spread = float(finite.amax() - finite.amin()) if len(finite) else 0.0
    # Numbers far from zero need more digits to differ.
    extra_digits = math.ceil(math.log10(size / spread)) if 0 < spread < size else 0
    digits = _DATE_DIGITS if is_date else _COLUMN_DIGITS
    values = rounded(value, min(17, digits + extra_digits))
    finite_values = [entry for entry in values if entry is not None]
    return {
        'name': name,
        'kind': 'number',
        'isDate': is_date,
        'values': values,
        'low': min(finite_values, default=0.0),
        'high': max(finite_values, default=0.0),
    }


def rounded(value: Tensor, digits: int = _DIGITS) -> list[float | None]:
    """Round numbers to a few digits; replace those that are not finite by None."""
    return [
        float(f'{entry:.{digits}g}') if math.isfinite(entry) else None
        for entry in value.double().tolist()
    ]


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
