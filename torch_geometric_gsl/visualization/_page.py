"""The page of the explorer, and the picture of all images on it."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from importlib import resources

import torch
from torch import Tensor

from torch_geometric_gsl.visualization._colours import Json, palette

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
