"""Draw the pictures of two pages of the guide.

    python docs/_figures/guide.py

They go to `docs/_static/guide/`. Times are read from the tables of the benchmarks.
"""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parents[1]
STATIC = DOCS / '_static' / 'guide'
# The palette of Okabe and Ito, which colour-blind readers can distinguish.
BLUE, ORANGE, GREY, INK = '#0072B2', '#D55E00', '#8A8A8A', '#222222'
#: Training rows, new rows, edges among training rows, and edges to new rows.
TRAINED = [(0.4, 2.6), (1.1, 1.5), (0.5, 0.5), (1.9, 2.4), (2.1, 0.7), (1.5, 3.3)]
NEW = [(4.0, 2.9), (4.3, 1.8), (4.0, 0.7)]
AMONG = [(0, 1), (1, 2), (3, 0), (4, 1), (5, 3), (2, 4), (3, 1), (0, 5)]
TO_NEW = [(3, 0), (5, 0), (3, 1), (4, 1), (4, 2), (1, 2)]


def draw_edge(
    axes: Axes, source: tuple[float, float], target: tuple[float, float], colour: str
) -> None:
    """Draw an arrow between two nodes."""
    style = {'arrowstyle': '-|>', 'color': colour, 'lw': 1.4}
    axes.annotate('', target, source, arrowprops={**style, 'shrinkA': 8, 'shrinkB': 8})


def new_rows() -> Figure:
    """Draw the training rows that send messages to new rows."""
    figure = Figure(figsize=(7.2, 3.0))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.3, 9.3), ylim=(-0.1, 4.3), aspect='equal')
    axes.axis('off')
    for source, target in AMONG:
        draw_edge(axes, TRAINED[source], TRAINED[target], GREY)
    for source, target in TO_NEW:
        draw_edge(axes, TRAINED[source], NEW[target], ORANGE)
    for places, colour in ((TRAINED, BLUE), (NEW, ORANGE)):
        across, up = zip(*places, strict=True)
        axes.scatter(across, up, s=160, color=colour, zorder=3)
    axes.text(1.2, 3.9, 'training rows: sources', color=BLUE, ha='center')
    axes.text(4.3, 3.9, 'new rows: targets', color=ORANGE, ha='center')
    notes = [
        (2.7, 'training rows $\\to$ new rows', ORANGE),
        (2.1, 'training rows $\\to$ training rows', GREY),
        (1.5, 'nothing between new rows', INK),
        (0.9, 'nothing back to training rows', INK),
    ]
    for height, text, colour in notes:
        axes.text(5.4, height, text, color=colour, va='center')
    return figure


def read(name: str) -> list[list[str]]:
    """Return the rows of a table, without its header."""
    path = DOCS / '_tables' / f'{name}.csv'
    with path.open(newline='', encoding='utf-8') as file:
        return list(csv.reader(file))[1:]


def scale() -> Figure:
    """Draw the seconds of a training step over the number of rows."""
    figure = Figure(figsize=(7.2, 3.4), layout='constrained')
    axes = figure.subplots()
    nets = [
        (int(row[1].split(' x ')[0].replace(',', '')), float(row[2].split(' / ')[0]))
        for row in read('benchmarks_training_intel')
    ]
    label = 'net of two layers, scale 1 (two cores)'
    axes.loglog(*zip(*nets, strict=True), 'o-', color=BLUE, label=label)
    lines = {
        'without structure, cosine, scale 1': (ORANGE, 's--', 'one draw, scale 1'),
        'in clusters (noise 0.1), bell, scale 5': (INK, '^--', 'one draw, scale 5'),
    }
    for workload, (colour, style, name) in lines.items():
        points = [
            (int(row[0].split(' ')[0].replace(',', '')), float(row[3]))
            for row in read('benchmarks_kernel')
            if row[0].endswith(workload)
        ]
        label = f'{name} (one core, compiled)'
        axes.loglog(*zip(*points, strict=True), style, color=colour, label=label)
    axes.set(xlabel='rows', ylabel='seconds a training step')
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    return figure


def main() -> None:
    """Write the pictures."""
    STATIC.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({'font.size': 11, 'svg.hashsalt': 'guide'}):
        for draw in (new_rows, scale):
            path = STATIC / f'{draw.__name__}.svg'
            draw().savefig(path, facecolor='white', metadata={'Date': None})


if __name__ == '__main__':
    main()
