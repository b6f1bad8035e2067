"""Draw the parts of one layer that several processes hold, and their messages."""

from __future__ import annotations

from typing import TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ('#0072B2', '#E69F00', '#009E73')
GREY, INK, ORANGE = '#E4E4E4', '#222222', '#D55E00'
SIZES = (4, 3, 5)
# The left edges of the matrices of a rank, in the order of the layer.
COLUMNS = {
    'own rows': 0.0,
    'projected': 2.2,
    'gathered': 5.6,
    'graph': 8.6,
    'out': 11.6,
}
CELL = 0.17

Point: TypeAlias = tuple[float, float]


def draw_block(axes: Axes, corner: Point, width: int, rows: range, colour: str) -> None:
    """Draw some rows of a table, given its upper left corner."""
    left, top = corner
    size = width * CELL, len(rows) * CELL
    lower = left, top - rows.stop * CELL
    box = Rectangle(lower, *size, facecolor=colour, edgecolor='white', lw=0.8)
    axes.add_patch(box)


def middle_of(rank: int) -> float:
    """Compute the distance from the top of a table to the middle of a rank's rows."""
    return (sum(SIZES[:rank]) + SIZES[rank] / 2) * CELL


def draw_rank(axes: Axes, rank: int, top: float) -> None:
    """Draw the matrices of one rank."""
    start = sum(SIZES[:rank])
    own_rows = range(start, start + SIZES[rank])
    total = sum(SIZES)
    starts = [sum(SIZES[:i]) for i in range(len(SIZES))]
    for name, width in (('own rows', 8), ('projected', 4), ('out', 4)):
        corner = COLUMNS[name], top
        draw_block(axes, corner, width, own_rows, COLOURS[rank])
    for start, size, colour in zip(starts, SIZES, COLOURS, strict=True):
        rows = range(start, start + size)
        draw_block(axes, (COLUMNS['gathered'], top), 4, rows, colour)
    draw_block(axes, (COLUMNS['graph'], top), total, range(total), GREY)
    draw_block(axes, (COLUMNS['graph'], top), total, own_rows, COLOURS[rank])
    middle = top - middle_of(rank)
    axes.text(-0.35, middle, f'rank {rank}', ha='right', va='center')


def draw_arrow(axes: Axes, begin: Point, end: Point, colour: str, style: str) -> None:
    """Draw an arrow from one point to another."""
    arrow = {'arrowstyle': '-|>', 'color': colour, 'lw': 1.5, 'ls': style}
    axes.annotate('', end, begin, arrowprops=arrow)


def draw() -> Figure:
    """Draw three ranks below each other."""
    figure = Figure(figsize=(9.6, 6.2))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-1.6, 13.2), ylim=(-9.2, 1.3), aspect='equal')
    axes.axis('off')
    tops = [-2.7 * rank for rank in range(3)]
    for rank, top in enumerate(tops):
        draw_rank(axes, rank, top)
        middle = top - middle_of(rank)
        for left, right in ((1.5, 2.1), (6.4, 8.5), (10.75, 11.5)):
            draw_arrow(axes, (left, middle), (right, middle), INK, '-')
        for sender_top in tops:
            end = 5.55, sender_top - middle_of(rank)
            draw_arrow(axes, (2.95, middle), end, COLOURS[rank], '-')
    titles = {
        'own rows': '$X_r$\nown rows',
        'projected': '$X_r W$',
        'gathered': '$H = XW$\nall rows',
        'graph': '$A_r$: neighbours of\nown rows, among all',
        'out': '$A_r H$',
    }
    for name, title in titles.items():
        axes.text(COLUMNS[name], 0.2, title, va='bottom')
    axes.text(4.3, 0.2, 'gather', ha='center', va='bottom', style='italic')
    low = -8.1
    draw_arrow(axes, (12.2, low), (2.4, low), ORANGE, '--')
    text = 'gradients of $H$: summed over the ranks, each of which gets its own rows'
    axes.text(7.2, low - 0.15, text, ha='center', va='top', color=ORANGE)
    return figure


def main() -> None:
    """Write the picture."""
    with matplotlib.rc_context({'font.size': 11, 'svg.hashsalt': 'ranks'}):
        draw().savefig('ranks.svg', facecolor='white', metadata={'Date': None})


if __name__ == '__main__':
    main()
