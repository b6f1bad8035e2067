"""Draw the picture of the pipeline, for wide pages and for narrow ones.

Every panel shows numbers that the package computed for twelve nodes.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torch_geometric_gsl import GaussianSimilarity, GumbelKNNSampler, SampledGraph

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
BLUE, ORANGE, GREY, INK = '#0072B2', '#D55E00', '#8A8A8A', '#222222'
NUM_NODES, NUM_FEATURES, NUM_OUT = 12, 8, 5
# Edges with smaller weights are not drawn.
VISIBLE = 0.02

Point: TypeAlias = tuple[float, float]

GRADIENT = (
    'gradient of the loss: through the layer',
    'and the draws to the similarity',
)
CODE = {'family': 'DejaVu Sans Mono', 'color': BLUE}
CAPTION = {'ha': 'center', 'color': ORANGE}
BACKWARD = {'color': ORANGE, 'lw': 1.8, 'ls': '--'}

STYLE = {
    'font.family': 'DejaVu Sans',
    'font.size': 12,
    'mathtext.fontset': 'dejavusans',
    'text.color': INK,
}
FORWARD = {'arrowstyle': '-|>,head_width=0.28,head_length=0.5', 'lw': 1.8}
# The title, formula and code of each panel, and its ratio of width to height.
PANELS = [
    ('Features', '$X$, a row per node', 'x', 0.75),
    ('1  Similarity', r'$\phi_{ij}$, any two nodes', 'sim(x)', 1.0),
    ('2  Sampler', '$A$, weighted graph', 'sampler(x)', 1.0),
    ('3  Convolution', '$A\\,H$, in any layer', 'conv(x, ...)', 1.0),
    ('Output', '$H^{\\prime}$', 'out', 0.5),
]


class Numbers(NamedTuple):
    """The numbers that the panels show."""

    x: Tensor
    phi: Tensor
    graph: SampledGraph
    out: Tensor


def compute() -> Numbers:
    """Pass twelve random nodes through all parts, without training."""
    torch.manual_seed(3)
    centres = torch.randn(3, NUM_FEATURES)
    x = centres.repeat_interleave(4, dim=0) + 0.7 * torch.randn(NUM_NODES, NUM_FEATURES)
    similarity = GaussianSimilarity(NUM_FEATURES, b=0.8, c=0.2)
    sampler = GumbelKNNSampler.paper(similarity, k=3, scale=8.0, loop=False)
    graph = sampler(x, generator=torch.Generator().manual_seed(0))
    weight = torch.zeros(NUM_NODES, NUM_NODES)
    weight[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
    out = weight @ x @ torch.randn(NUM_FEATURES, NUM_OUT)
    return Numbers(x, similarity(x), graph, out)


def draw_panels(axes: list[Axes], numbers: Numbers) -> None:
    """Draw the numbers."""
    show(axes[0], numbers.x, 'RdBu_r', symmetric=True)
    show(axes[1], numbers.phi, 'cividis')
    draw_graph(axes[2], numbers.graph)
    draw_sum(axes[3], numbers.graph)
    show(axes[4], numbers.out, 'RdBu_r', symmetric=True)


def draw_wide(numbers: Numbers) -> Figure:
    """Draw the panels in a row, with their texts above and below."""
    figure = Figure(figsize=(9.8, 3.9))
    left, gap, height, bottom = 0.02, 0.044, 0.44, 0.42
    unit = (1 - 2 * left - gap * (len(PANELS) - 1)) / sum(p[-1] for p in PANELS)
    axes = []
    for *_, width in PANELS:
        axes.append(figure.add_axes((left, bottom, unit * width, height)))
        left += unit * width + gap
    draw_panels(axes, numbers)
    for ax, (title, formula, code, _) in zip(axes, PANELS, strict=True):
        ax.set_title(title, fontsize=13.5, fontweight='bold', color=INK, pad=8)
        label(ax, (0.5, -0.08), formula, ha='center')
        label(ax, (0.5, -0.24), code, ha='center', **CODE)
    connect_row(figure, axes)
    return figure


def draw_narrow(numbers: Numbers) -> Figure:
    """Draw the panels in a column, with their texts beside them."""
    figure = Figure(figsize=(3.9, 8.4))
    height, gap, middle = 0.157, 0.033, 0.74
    axes = []
    for i, (*_, width) in enumerate(PANELS):
        share = width * height * 8.4 / 3.9
        bottom = 0.99 - (i + 1) * height - i * gap
        axes.append(figure.add_axes((middle - share / 2, bottom, share, height)))
    draw_panels(axes, numbers)
    for ax, (title, formula, code, _) in zip(axes, PANELS, strict=True):
        box = ax.get_position()
        top = (0.09 - box.x0) / box.width
        label(ax, (top, 0.84), title, fontsize=13.5, fontweight='bold')
        label(ax, (top, 0.57), formula)
        label(ax, (top, 0.32), code, **CODE)
    connect_column(figure, axes)
    return figure


def label(ax: Axes, point: Point, text: str, **kwargs: object) -> None:
    ax.text(*point, text, va='top', transform=ax.transAxes, **kwargs)


def show(ax: Axes, values: Tensor, cmap: str, symmetric: bool = False) -> None:
    """Draw a matrix as coloured cells."""
    limit = float(values.abs().max())
    low = -limit if symmetric else 0
    ax.pcolormesh(
        values.flip(0).numpy(), cmap=cmap, vmin=low, vmax=limit, ec='white', lw=0.6
    )
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def draw_graph(ax: Axes, graph: SampledGraph) -> None:
    """Draw all edges between the nodes on a circle."""
    angle = [
        math.pi / 2 - 2 * math.pi * (i + 0.5) / NUM_NODES for i in range(NUM_NODES)
    ]
    pos = [(math.cos(a), math.sin(a)) for a in angle]
    edges = zip(*graph.edge_index.tolist(), graph.edge_weight.tolist(), strict=True)
    for source, target, weight in edges:
        if weight >= VISIBLE:
            draw_edge(ax, pos[source], pos[target], weight, BLUE)
    for point in pos:
        draw_node(ax, point, 'white')
    frame(ax)


def draw_sum(ax: Axes, graph: SampledGraph) -> None:
    """Draw the target with the most neighbours, and their weights."""
    (source, target), weight = graph.prune(VISIBLE)
    hub = int(torch.bincount(target).argmax())
    neighbours = source[target == hub].tolist()
    for i, share in enumerate(weight[target == hub].tolist()):
        angle = math.pi * (0.5 + 2 * i / len(neighbours))
        x, y = math.cos(angle), math.sin(angle)
        draw_edge(ax, (x, y), (0, 0), share, ORANGE)
        box = {'boxstyle': 'round,pad=0.15', 'fc': 'white', 'ec': 'none'}
        style = {'ha': 'center', 'va': 'center', 'fontsize': 9.5, 'bbox': box}
        ax.text(0.52 * x, 0.52 * y, f'{share:.2f}', **style)
        draw_node(ax, (x, y), 'white')
    draw_node(ax, (0, 0), ORANGE)
    frame(ax)


def draw_edge(ax: Axes, start: Point, end: Point, weight: float, color: str) -> None:
    """Draw an arrow whose width grows with its weight."""
    arrow = {
        'arrowstyle': '-|>,head_width=0.18,head_length=0.32',
        'lw': 0.5 + 3 * weight,
        'color': color,
        'alpha': 0.4 + 0.6 * weight,
        'shrinkA': 6,
        'shrinkB': 7,
        'connectionstyle': f'arc3,rad={0.12 if color == BLUE else 0}',
    }
    ax.annotate('', end, start, arrowprops=arrow)


def draw_node(ax: Axes, point: Point, color: str) -> None:
    ax.plot(*point, 'o', ms=11, mfc=color, mec=INK, mew=1, zorder=3)


def frame(ax: Axes) -> None:
    ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect='equal')
    ax.axis('off')


def cover(figure: Figure) -> Axes:
    """Return axes behind all panels, in coordinates of the figure."""
    canvas = figure.add_axes((0, 0, 1, 1), zorder=-1)
    canvas.set(xlim=(0, 1), ylim=(0, 1))
    canvas.axis('off')
    return canvas


def connect_row(figure: Figure, axes: list[Axes]) -> None:
    """Draw arrows of the forward pass, and one below for the gradient."""
    boxes, canvas = [ax.get_position() for ax in axes], cover(figure)
    middle = (boxes[0].y0 + boxes[0].y1) / 2
    for left, right in pairwise(boxes):
        ends = ((right.x0 - 0.006, middle), (left.x1 + 0.006, middle))
        canvas.annotate('', *ends, arrowprops={**FORWARD, 'color': GREY})
    start, end = (boxes[4].x0 + boxes[4].x1) / 2, (boxes[1].x0 + boxes[1].x1) / 2
    low = 0.12
    canvas.plot([start, start, end], [0.2, low, low], **BACKWARD)
    canvas.annotate(
        '', (end, 0.22), (end, low - 0.003), arrowprops={**FORWARD, 'color': ORANGE}
    )
    corner = ((start + end) / 2, low - 0.03)
    canvas.text(*corner, f'{GRADIENT[0]} {GRADIENT[1]}', va='top', **CAPTION)


def connect_column(figure: Figure, axes: list[Axes]) -> None:
    """Draw arrows of the forward pass, and one on the left for the gradient."""
    boxes, canvas = [ax.get_position() for ax in axes], cover(figure)
    middle = (boxes[0].x0 + boxes[0].x1) / 2
    for upper, lower in pairwise(boxes):
        ends = ((middle, lower.y1), (middle, upper.y0))
        canvas.annotate('', *ends, arrowprops={**FORWARD, 'color': GREY})
    start, end = ((box.y0 + box.y1) / 2 + 0.058 for box in (boxes[4], boxes[1]))
    low = 0.03
    canvas.plot([0.07, low, low], [start, start, end], **BACKWARD)
    canvas.annotate(
        '', (0.08, end), (low - 0.005, end), arrowprops={**FORWARD, 'color': ORANGE}
    )
    canvas.text(0.5, 0.045, '\n'.join(GRADIENT), va='center', **CAPTION)


if __name__ == '__main__':
    with matplotlib.rc_context(STYLE):
        numbers = compute()
        draw_wide(numbers).savefig('pipeline.svg')
        draw_narrow(numbers).savefig('pipeline_narrow.svg')
