"""Make one HTML page of a graph and of what is known about its nodes."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from torch_geometric_gsl.typing import SampledGraph
from torch_geometric_gsl.visualization._drawing import palette

#: Marks of the page and the files that take their places.
_ASSETS = {
    'style': 'page.css',
    'vendor': 'vendor.js',
    'overlay': 'overlay.js',
    'view': 'view.js',
    'panel': 'panel.js',
    'explorer': 'explorer.js',
}
#: Pixels of the picture of all images in each direction, at the most.
MAX_SPRITE = 8192
_DIGITS = 4

Json = dict[str, Any]


def graph_entry(name: str, graph: SampledGraph, max_edges: int) -> Json:
    """List the edges of a graph, the strongest of too many."""
    edge_index, weight = graph
    total = weight.numel()
    order = weight.argsort(descending=True, stable=True)[:max_edges]
    source, target = edge_index[:, order].tolist()
    return {
        'name': name,
        'source': source,
        'target': target,
        'weight': numbers(weight[order]),
        'total': total,
    }


def class_entry(
    name: str, y: Tensor, known: Tensor, names: list[str] | None, least: int = 0
) -> Json:
    """Colour nodes by the known classes, in order; what is less than all has none."""
    classes = [
        str(value) if names is None else names[value] for value in known.tolist()
    ]
    place = torch.searchsorted(known, y)
    values = [
        None if label < least else index
        for label, index in zip(y.tolist(), place.tolist(), strict=True)
    ]
    return {'name': name, 'kind': 'class', 'classes': classes, 'values': values}


def number_entry(name: str, value: Tensor) -> Json:
    """Colour nodes by numbers, from the least to the largest."""
    finite = value.double()[value.isfinite()]
    size = float(finite.abs().amax()) if len(finite) else 0.0
    spread = float(finite.amax() - finite.amin()) if len(finite) else 0.0
    # Numbers far from zero need more digits to differ.
    more = math.ceil(math.log10(size / spread)) if 0 < spread < size else 0
    listed = numbers(value, min(17, _DIGITS + more))
    known = [number for number in listed if number is not None]
    ends = {'low': min(known, default=0.0), 'high': max(known, default=0.0)}
    return {'name': name, 'kind': 'number', 'values': listed, **ends}


def numbers(value: Tensor, digits: int = _DIGITS) -> list[float | None]:
    """Round numbers to a few digits; those that are not finite are absent."""
    return [
        float(f'{number:.{digits}g}') if math.isfinite(number) else None
        for number in value.double().tolist()
    ]


def image_entry(images: Tensor) -> Json:
    """Put images side by side into one PNG picture."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("'images' need Pillow: pip install pillow") from error
    number, height, width = images.shape[:3]
    columns = math.ceil(math.sqrt(number * height / width))
    lines = math.ceil(number / columns)
    if max(columns * width, lines * height) > MAX_SPRITE:
        raise ValueError(
            f"'images' must fit into {MAX_SPRITE} x {MAX_SPRITE} pixels side by side "
            f'(got {number} of {height} x {width})'
        )
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


def to_bytes(images: Tensor) -> Tensor:
    """Return images as bytes; their least number is black and their largest white."""
    if images.dtype == torch.uint8:
        return images
    images = images.double()
    low, high = images.min(), images.max()
    share = (images - low) / (high - low).clamp_min(torch.finfo(torch.double).tiny)
    return (255 * share).round().to(torch.uint8)


def make_page(title: str, content: Json) -> str:
    """Return the page, with everything that it needs inside."""
    assets = resources.files(__package__) / 'assets'
    parts = {
        mark: (assets / name).read_text(encoding='utf-8')
        for mark, name in _ASSETS.items()
    }
    counts = [len(entry.get('classes', ())) for entry in content['colours']]
    most = max(counts, default=0)
    content = content | {'palette': palette(most)}
    text = json.dumps(content, allow_nan=False, separators=(',', ':'))
    # In a script element `<` could end it.
    parts |= {'title': html.escape(title), 'data': text.replace('<', r'\u003c')}
    page = (assets / 'page.html').read_text(encoding='utf-8')
    return re.sub(r'\{\{(\w+)\}\}', lambda match: parts[match[1]], page)
