"""What the figures of the paper have in common: panels, lines, and a legend."""

from __future__ import annotations

import math
from collections.abc import Iterable

import matplotlib as mpl
from matplotlib.figure import Figure
from summary import Cell


def new_figure(panels: int, columns: int = 4) -> tuple[Figure, list[mpl.axes.Axes]]:
    columns = min(panels, columns)
    rows = -(-panels // columns)
    figure = Figure(figsize=(3.2 * columns, 2.9 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for ax in axes[panels:]:
        ax.remove()
    return figure, axes[:panels]


def draw_line(
    ax: mpl.axes.Axes, x: Iterable[float], found: Iterable[Cell], name: str
) -> None:
    known = [(value, cell) for value, cell in zip(x, found, strict=True) if cell.test]
    if not known:
        return
    means = [cell.mean for _, cell in known]
    spread = [0.0 if math.isnan(cell.std) else cell.std for _, cell in known]
    ax.errorbar([value for value, _ in known], means, spread, marker='o', label=name)


def with_legend(figure: Figure, axes: list[mpl.axes.Axes]) -> Figure:
    named = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values()),
        list(named),
        loc='outside lower center',
        ncols=min(len(axes), 4),
    )
    return figure
