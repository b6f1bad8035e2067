"""Positions of nodes, the axes of plots and the page of the explorer."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.utils.num_nodes import maybe_num_nodes

from torch_geometric_gsl._checks import check_type
from torch_geometric_gsl.typing import PairGraph
from torch_geometric_gsl.visualization._colours import Json, palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Steps of the layout of a plot.
_NUM_STEPS = 200
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


def make_axes(ax: Any, width: float) -> Axes:
    """Return the given axes, or those of a new figure outside of pyplot."""
    try:
        from matplotlib.axes import Axes
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install matplotlib') from error
    if ax is None:
        return Figure(figsize=(width, 5), layout='constrained').subplots()
    check_type(ax, Axes, 'ax', 'matplotlib axes')
    axes: Axes = ax
    return axes


def check_one_set(graph: Any) -> None:
    """Raise if the sources of a graph are other nodes than its targets."""
    if isinstance(graph, PairGraph):
        raise ValueError(
            "'graph' must join the nodes of one set (got edges from sources to other "
            "targets): call 'clear_index' on a model with an index, or pass a pair "
            '(edge_index, edge_weight) that numbers the targets after the sources'
        )


def agreed_count(edge_index: Tensor, sizes: Mapping[str, int], minimum: int = 0) -> int:
    """Count the nodes of a graph; raise unless all named sizes agree."""
    num_nodes = max([minimum, maybe_num_nodes(edge_index), *sizes.values()])
    for name, size in sizes.items():
        if size != num_nodes:
            raise ValueError(
                f"'{name}' must have one row per node "
                f'(got {size} for {num_nodes} nodes)'
            )
    if num_nodes == 0:
        raise ValueError("'graph' must have nodes (got none)")
    return num_nodes


def principal_components(x: Tensor) -> Tensor:
    """Project rows on their two principal axes; a missing axis is zero."""
    x = x - x.mean(dim=0)
    if x.numel() == 0:
        return x.new_zeros(x.size(0), 2)
    axes = torch.linalg.svd(x, full_matrices=False).Vh[:2]
    # The sign of an axis is such that its largest entry is positive.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    position = x @ (axes * largest.sign()).t()
    padding = x.new_zeros(x.size(0), 2 - position.size(1))
    return torch.cat([position, padding], dim=1)


def initial_positions(
    pos: Tensor | None, x: Tensor | None, num_nodes: int, seed: int
) -> Tensor:
    """Return the given or initial positions of the nodes."""
    if pos is not None:
        if pos.dim() != 2 or pos.size(1) != 2 or not bool(pos.isfinite().all()):
            raise ValueError(
                "'data.pos' must be finite and have shape [n, 2] "
                f'(got {list(pos.shape)})'
            )
        return pos.detach().cpu()
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_nodes, 2, generator=generator, dtype=torch.double)
    if x is None or x.layout != torch.strided or not bool(x.isfinite().all()):
        return noise
    # Equal rows need distinct positions: no force would separate them.
    spread = principal_components(x.double())
    return 0.01 * noise + spread / spread.std().clamp_min(1e-9)


def spring_layout(edge_index: Tensor, num_nodes: int, seed: int) -> Tensor:
    """Lay out some hundreds of nodes with the Fruchterman-Reingold algorithm.

    Each step computes the forces of all pairs. A pull to the centre keeps components
    together, which the layout of NetworkX drives apart.
    """
    generator = torch.Generator().manual_seed(seed)
    position = torch.rand(num_nodes, 2, generator=generator, dtype=torch.double) - 0.5
    # Weights span decades: all pull alike, so that weak edges still gather nodes.
    attraction = torch.zeros(num_nodes, num_nodes, dtype=torch.double)
    ones = torch.ones((), dtype=torch.double)
    attraction.index_put_((edge_index[1], edge_index[0]), ones, accumulate=True)
    attraction = (attraction + attraction.t()).fill_diagonal_(0)
    attraction = attraction / attraction.max().clamp_min(1e-12)
    length = 1 / num_nodes**0.5
    for step in range(_NUM_STEPS):
        delta = position.unsqueeze(1) - position
        distance = delta.norm(dim=-1).clamp_min(0.01 * length)
        force = (length / distance).square() - attraction * distance / length
        move = (force.unsqueeze(-1) * delta).sum(dim=1) - position
        size = move.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        # Steps shrink, so that the layout settles.
        largest = 0.1 * (1 - step / _NUM_STEPS)
        position = position + move / size * size.clamp(max=largest)
    return position


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
