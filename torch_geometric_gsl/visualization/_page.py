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

from torch_geometric_gsl._columns import find_labelled
from torch_geometric_gsl.visualization._drawing import palette

#: Classes as integers or strings (None if unlabelled), or numbers.
Values = Tensor | list[str | None]
Json = dict[str, Any]
# The significant digits of weights and places, of columns, and of dates.
_DIGITS, _COLUMN_DIGITS, _DATE_DIGITS = 4, 6, 17
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
    number, height, width = images.shape[:3]
    columns = math.ceil(math.sqrt(number * height / width))
    lines = math.ceil(number / columns)
    if max(columns * width, lines * height) > _MAX_PIXELS:
        raise ValueError(
            f"'images' must fit into {_MAX_PIXELS} x {_MAX_PIXELS} pixels side by side "
            f'(got {number} of {height} x {width})'
        )
    if images.dtype != torch.uint8:
        images = images.double() - images.double().min()
        share = images / images.max().clamp_min(torch.finfo(torch.double).tiny)
        images = (255 * share).round().to(torch.uint8)
    depth = images.shape[3:]
    padded = images.new_zeros(columns * lines, *images.shape[1:])
    padded[:number] = images
    grid = padded.view(lines, columns, height, width, *depth).transpose(1, 2)
    picture = grid.reshape(lines * height, columns * width, *depth).contiguous()
    buffer = io.BytesIO()
    Image.fromarray(picture.numpy()).save(buffer, 'PNG', optimize=True)
    text = base64.b64encode(buffer.getvalue()).decode('ascii')
    size = {'columns': columns, 'width': width, 'height': height}
    return {'uri': f'data:image/png;base64,{text}', **size}


def make_page(title: str, content: Json) -> str:
    """Create the self-contained page."""
    assets = resources.files(__package__) / 'assets'
    parts = {
        mark: (assets / name).read_text(encoding='utf-8')
        for mark, name in _ASSETS.items()
    }
    counts = [len(entry.get('classes', ())) for entry in content['colours']]
    content = content | {'palette': palette(max(counts, default=0))}
    text = json.dumps(content, allow_nan=False, separators=(',', ':'))
    # In a script element `<` could end it.
    parts |= {'title': html.escape(title), 'data': text.replace('<', r'\u003c')}
    page = (assets / 'page.html').read_text(encoding='utf-8')
    return re.sub(r'\{\{(\w+)\}\}', lambda match: parts[match[1]], page)


def read_values(given: Any, name: str) -> Values:
    """Read values of nodes from a tensor, an array, a list or a column."""
    if not isinstance(given, Tensor):
        if isinstance(given, str) or not hasattr(given, '__len__'):
            raise TypeError(
                f"'{name}' must be a tensor, an array or a sequence "
                f'(got {type(given).__name__})'
            )
        given = given.to_numpy() if hasattr(given, 'to_numpy') else given
        # NumPy would convert all items to strings if one is.
        is_array = isinstance(given, np.ndarray)
        array = given if is_array else np.array(given, dtype=object)
        if array.dtype.kind not in 'biufc':
            return _from_objects(array.tolist(), name)
        given = torch.from_numpy(np.require(array, requirements=['C', 'W']))
    value: Tensor = given.detach().cpu()
    return value if value.is_floating_point() or value.is_complex() else value.long()


def _from_objects(items: list[Any], name: str) -> Values:
    """Convert the items to numbers if all are numbers, else to strings."""
    if any(isinstance(item, list) for item in items):
        try:
            return read_values(torch.tensor(items), name)
        except (TypeError, ValueError):
            raise ValueError(f"'{name}' must have one value per node") from None
    found: list[Any] = [None if _is_missing(item) else item for item in items]
    known = [item for item in found if item is not None]
    if not all(isinstance(item, Number) for item in known):
        return [None if item is None else str(item) for item in found]
    if len(known) == len(found) and all(isinstance(item, Integral) for item in known):
        return torch.tensor([int(item) for item in known], dtype=torch.long)
    numbers = [math.nan if item is None else float(item) for item in found]
    return torch.tensor(numbers, dtype=torch.double)


def _is_missing(item: Any) -> bool:
    """Return whether an item is None, NaN or the NA of pandas."""
    return item is None or type(item).__name__ == 'NAType' or bool(item != item)


def as_texts(value: Values) -> Values:
    """Convert classes to strings; return numbers unchanged."""
    if isinstance(value, list) or value.is_floating_point():
        return value
    known = find_labelled(value.numpy(), None)
    return [str(i) if k else None for i, k in zip(value.tolist(), known, strict=True)]


def as_names(given: Sequence[Any] | None, number: int, name: str) -> list[str]:
    """Convert names to strings; raise unless there are enough."""
    if given is None:
        return [str(i) for i in range(number)]
    if isinstance(given, str):
        raise TypeError(f"'{name}' must be a sequence of names (got a str)")
    if len(given) < number:
        raise ValueError(f"'{name}' must name all {number} (got {len(given)})")
    return [str(one) for one in given]


def class_colours(
    given: dict[str, Values], class_names: Sequence[Any] | None
) -> list[Json]:
    """List labels and predictions, with the same colours for classes."""
    names = None if class_names is None else as_names(class_names, 0, 'class_names')
    columns, texts = _coded({k: as_column(v, k) for k, v in given.items()}, names)
    classes = [value for value in columns.values() if not value.is_floating_point()]
    every = torch.cat([*classes, torch.empty(0, dtype=torch.long)])
    is_known = every >= 0
    if texts is None:
        is_known = torch.from_numpy(find_labelled(every.numpy(), None))
    known: list[int] = every[is_known].unique().tolist()
    if texts is None and names is not None and known:
        if known[0] < 0:
            raise ValueError(
                f"'class_names' must be None with negative classes (got {known[0]})"
            )
        texts = as_names(names, known[-1] + 1, 'class_names')
    shown = [str(i) if texts is None else texts[i] for i in known]
    place = {label: number for number, label in enumerate(known)}
    entries = []
    for name, value in columns.items():
        title = 'label' if name == 'data.y' else name
        if value.is_floating_point():
            entries.append(number_colour(title, value))
        else:
            values = [place.get(label) for label in value.tolist()]
            entry = {'name': title, 'kind': 'class', 'classes': shown, 'values': values}
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


def _coded(
    columns: dict[str, Values], names: list[str] | None
) -> tuple[dict[str, Tensor], list[str] | None]:
    """Replace string classes by their indices among the class names."""
    has_texts = any(isinstance(value, list) for value in columns.values())
    if has_texts and names is None:
        columns = {k: as_texts(v) for k, v in columns.items()}
        every = {text for v in columns.values() if isinstance(v, list) for text in v}
        names = sorted(text for text in every if text is not None)
    place: dict[str | None, int] = {n: i for i, n in enumerate(names or [])}
    place[None] = -1
    coded: dict[str, Tensor] = {}
    for name, value in columns.items():
        if isinstance(value, Tensor):
            coded[name] = value
            continue
        if other := [text for text in value if text not in place]:
            raise ValueError(
                f"'class_names' must hold every class of '{name}' "
                f'(got {names}, without {other[0]!r})'
            )
        coded[name] = torch.tensor([place[text] for text in value])
    return coded, names if has_texts else None


def number_colour(name: str, value: Tensor, is_date: bool = False) -> Json:
    """Colour nodes by numbers, from the smallest to the largest."""
    finite = value.double()[value.isfinite()]
    size = float(finite.abs().amax()) if len(finite) else 0.0
    spread = float(finite.amax() - finite.amin()) if len(finite) else 0.0
    # Numbers far from zero need more digits to differ.
    more = math.ceil(math.log10(size / spread)) if 0 < spread < size else 0
    digits = _DATE_DIGITS if is_date else _COLUMN_DIGITS
    listed = rounded(value, min(17, digits + more))
    known = [number for number in listed if number is not None]
    ends = {'low': min(known, default=0.0), 'high': max(known, default=0.0)}
    about = {'name': name, 'kind': 'number', 'isDate': is_date}
    return {**about, 'values': listed, **ends}


def rounded(value: Tensor, digits: int = _DIGITS) -> list[float | None]:
    """Round numbers to a few digits; replace those that are not finite by None."""
    return [
        float(f'{number:.{digits}g}') if math.isfinite(number) else None
        for number in value.double().tolist()
    ]
