"""Draws the picture of the pipeline: ``python make_figures.py FOLDER``.

Every panel shows numbers that the package computed for twelve nodes.
"""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torch_geometric_gsl import GaussianSimilarity, GumbelKNNSampler, SampledGraph

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
BLUE, ORANGE, GREY, INK = '#0072B2', '#D55E00', '#8A8A8A', '#222222'
NUM_NODES, NUM_FEATURES, NUM_OUT = 12, 8, 5
# Edges of less weight are not drawn.
VISIBLE = 0.02

Point: TypeAlias = tuple[float, float]

STYLE = {
    'font.family': 'DejaVu Sans',
    'font.size': 10,
    'mathtext.fontset': 'dejavusans',
    'svg.hashsalt': 'torch_geometric_gsl',
    'text.color': INK,
}


def draw(folder: Path) -> None:
    """Writes ``pipeline.svg``."""
    torch.manual_seed(3)
    centres = torch.randn(3, NUM_FEATURES)
    x = centres.repeat_interleave(4, dim=0) + 0.7 * torch.randn(NUM_NODES, NUM_FEATURES)
    similarity = GaussianSimilarity(NUM_FEATURES, b=0.8, c=0.2)
    phi = similarity(x)
    sampler = GumbelKNNSampler(similarity, k=3, scale=8.0, loop=False)
    graph = sampler(x, generator=torch.Generator().manual_seed(0))
    weight = torch.zeros(NUM_NODES, NUM_NODES)
    weight[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
    out = weight @ x @ torch.randn(NUM_FEATURES, NUM_OUT)

    figure = Figure(figsize=(11, 4.1))
    panels = [
        ('Features', '$X$, one row per node', 'x', 0.75),
        ('1  Similarity', r'$\phi_{ij}$, any two nodes', 'sim(x)', 1),
        ('2  Sampler', '$A$, a weighted graph', 'sampler(x)', 1),
        ('3  Convolution', '$A\\,H$, in any layer', 'conv(x, ...)', 1),
        ('Output', '$H^{\\prime}$', 'out', 0.5),
    ]
    axes = place(figure, [width for *_, width in panels])
    show(axes[0], x, 'RdBu_r', symmetric=True)
    show(axes[1], phi, 'cividis')
    draw_graph(axes[2], graph)
    draw_sum(axes[3], graph)
    show(axes[4], out, 'RdBu_r', symmetric=True)
    for ax, (title, formula, code, _) in zip(axes, panels, strict=True):
        ax.set_title(title, fontsize=12, fontweight='bold', color=INK, pad=8)
        label(ax, -0.10, formula, fontsize=10)
        label(ax, -0.23, code, fontsize=10, family='DejaVu Sans Mono', color=BLUE)
    connect(figure, axes)
    path = folder / 'pipeline.svg'
    figure.savefig(path, facecolor='white', metadata={'Date': None})


def place(figure: Figure, widths: list[float]) -> list[Axes]:
    """One row of panels of equal height with room for arrows between them."""
    left, gap, height, bottom = 0.02, 0.044, 0.47, 0.40
    unit = (1 - 2 * left - gap * (len(widths) - 1)) / sum(widths)
    axes = []
    for width in widths:
        axes.append(figure.add_axes((left, bottom, unit * width, height)))
        left += unit * width + gap
    return axes


def label(ax: Axes, y: float, text: str, **kwargs: object) -> None:
    ax.text(0.5, y, text, ha='center', va='top', transform=ax.transAxes, **kwargs)


def show(ax: Axes, values: Tensor, cmap: str, symmetric: bool = False) -> None:
    """Draws a matrix as coloured cells."""
    limit = float(values.abs().max())
    low = -limit if symmetric else 0
    ax.pcolormesh(
        values.flip(0).numpy(), cmap=cmap, vmin=low, vmax=limit, ec='white', lw=0.6
    )
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def draw_graph(ax: Axes, graph: SampledGraph) -> None:
    """Draws all edges between the nodes on a circle."""
    angle = [
        math.pi / 2 - 2 * math.pi * (i + 0.5) / NUM_NODES for i in range(NUM_NODES)
    ]
    place = [(math.cos(a), math.sin(a)) for a in angle]
    edges = zip(*graph.edge_index.tolist(), graph.edge_weight.tolist(), strict=True)
    for source, target, weight in edges:
        if weight >= VISIBLE:
            draw_edge(ax, place[source], place[target], weight, BLUE)
    for point in place:
        draw_node(ax, point, 'white')
    frame(ax)


def draw_sum(ax: Axes, graph: SampledGraph) -> None:
    """Draws the target with the most neighbours, and their weights."""
    (source, target), weight = graph.prune(VISIBLE)
    chosen = int(torch.bincount(target).argmax())
    neighbours = source[target == chosen].tolist()
    for number, share in enumerate(weight[target == chosen].tolist()):
        angle = math.pi * (0.5 + 2 * number / len(neighbours))
        x, y = math.cos(angle), math.sin(angle)
        draw_edge(ax, (x, y), (0, 0), share, ORANGE)
        box = {'boxstyle': 'round,pad=0.15', 'fc': 'white', 'ec': 'none'}
        ax.text(0.56 * x, 0.56 * y, f'{share:.2f}', ha='center', va='center', bbox=box)
        draw_node(ax, (x, y), 'white')
    draw_node(ax, (0, 0), ORANGE)
    frame(ax)


def draw_edge(ax: Axes, start: Point, end: Point, weight: float, color: str) -> None:
    """An arrow as thick as its weight."""
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


def connect(figure: Figure, axes: list[Axes]) -> None:
    """Arrows of the forward pass, and one below for the gradient."""
    boxes = [ax.get_position() for ax in axes]
    canvas = figure.add_axes((0, 0, 1, 1), zorder=-1)
    canvas.set(xlim=(0, 1), ylim=(0, 1))
    canvas.axis('off')
    middle = (boxes[0].y0 + boxes[0].y1) / 2
    forward = {'arrowstyle': '-|>,head_width=0.28,head_length=0.5', 'lw': 1.8}
    for left, right in pairwise(boxes):
        ends = ((right.x0 - 0.006, middle), (left.x1 + 0.006, middle))
        canvas.annotate('', *ends, arrowprops={**forward, 'color': GREY})
    start, end = (boxes[4].x0 + boxes[4].x1) / 2, (boxes[1].x0 + boxes[1].x1) / 2
    low = 0.12
    canvas.plot([start, start, end], [0.2, low, low], color=ORANGE, lw=1.8, ls='--')
    canvas.annotate(
        '', (end, 0.22), (end, low - 0.003), arrowprops={**forward, 'color': ORANGE}
    )
    canvas.text(
        (start + end) / 2,
        low - 0.03,
        'gradient of the loss: through the layer and the draws to the similarity',
        ha='center',
        va='top',
        color=ORANGE,
    )


if __name__ == '__main__':
    with matplotlib.rc_context(STYLE):
        draw(Path(sys.argv[1]))
