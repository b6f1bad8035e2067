"""The HTML page of the explorer: classes, numbers and pictures of nodes."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from numbers import Integral, Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_geometric_gsl._labels import find_labelled
from torch_geometric_gsl.visualization._drawing import palette

#: Classes as integers or strings (None if unlabelled), or numbers.
Values = Tensor | list[str | None]
Json = dict[str, Any]
# Significant digits of weights and positions.
_DIGITS = 4
_COLUMN_DIGITS = 6
_DATE_DIGITS = 17
#: Placeholders of the page and the files that replace them.
_ASSETS = {
    'style': 'page.css',
    'vendor': 'vendor.js',
    'overlay': 'overlay.js',
    'view': 'view.js',
    'panel': 'panel.js',
    'explorer': 'explorer.js',
}
# The largest width and height of the picture that holds all images.
_MAX_PIXELS = 8192


def image_sprite(images: Tensor) -> Json:
    """Combine images side by side into one PNG image."""
    is_coloured = images.dim() == 4 and images.size(3) == 3
    if not (images.dim() == 3 or is_coloured) or 0 in images.shape:
        raise ValueError(
            "'images' must have shape [n, h, w] or [n, h, w, 3] "
            f'(got {list(images.shape)})'
        )
    if images.is_complex() or not bool(images.isfinite().all()):
        raise ValueError("'images' must be finite real numbers")
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("'images' need Pillow: pip install pillow") from error
    num_images, height, width = images.shape[:3]
    columns = math.ceil(math.sqrt(num_images * height / width))
    rows = math.ceil(num_images / columns)
    if max(columns * width, rows * height) > _MAX_PIXELS:
        raise ValueError(
            f"'images' must fit into {_MAX_PIXELS} x {_MAX_PIXELS} pixels side by side "
            f'(got {num_images} of {height} x {width})'
        )
    if images.dtype != torch.uint8:
        images = images.double() - images.double().min()
        scaled = images / images.max().clamp_min(torch.finfo(torch.double).tiny)
        images = (255 * scaled).round().to(torch.uint8)
    depth = images.shape[3:]
    padded = images.new_zeros(columns * rows, *images.shape[1:])
    padded[:num_images] = images
    grid = padded.view(rows, columns, height, width, *depth).transpose(1, 2)
    picture = grid.reshape(rows * height, columns * width, *depth).contiguous()
    buffer = io.BytesIO()
    Image.fromarray(picture.numpy()).save(buffer, 'PNG', optimize=True)
    text = base64.b64encode(buffer.getvalue()).decode('ascii')
    size = {'columns': columns, 'width': width, 'height': height}
    return {'uri': f'data:image/png;base64,{text}', **size}


def make_page(title: str, notes: list[str], content: Json) -> str:
    """Create the self-contained page."""
    assets = resources.files(__package__) / 'assets'
    replacements = {
        placeholder: (assets / name).read_text(encoding='utf-8')
        for placeholder, name in _ASSETS.items()
    }
    counts = [len(entry.get('classes', ())) for entry in content['colours']]
    content = content | {'palette': palette(max(counts, default=0))}
    text = json.dumps(content, allow_nan=False, separators=(',', ':'))
    # In a script element `<` could end it.
    replacements |= {'title': html.escape(title), 'data': text.replace('<', r'\u003c')}
    paragraphs = [f'<p class="note">{html.escape(note)}</p>\n' for note in notes]
    replacements['notes'] = ''.join(paragraphs)
    page = (assets / 'page.html').read_text(encoding='utf-8')
    return re.sub(r'\{\{(\w+)\}\}', lambda match: replacements[match[1]], page)


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
            values = [indices.get(label) for label in value.tolist()]
            entry = {
                'name': name,
                'kind': 'class',
                'classes': titles,
                'values': values,
            }
            entries.append(entry)
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
    finite_values = [number for number in values if number is not None]
    ends = {
        'low': min(finite_values, default=0.0),
        'high': max(finite_values, default=0.0),
    }
    header = {'name': name, 'kind': 'number', 'isDate': is_date}
    return {**header, 'values': values, **ends}


def rounded(value: Tensor, digits: int = _DIGITS) -> list[float | None]:
    """Round numbers to a few digits; replace those that are not finite by None."""
    return [
        float(f'{number:.{digits}g}') if math.isfinite(number) else None
        for number in value.double().tolist()
    ]
