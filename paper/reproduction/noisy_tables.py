"""Make tables and a figure of noisy given graphs from finished runs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from reproduction import own_runs
from reproduction.datasets import OBSERVED
from reproduction.noisy_models import METHODS
from reproduction.own_tables import (
    OVERLAPPING,
    compare_ours,
    compared_grid,
    compared_note,
)
from reproduction.summary import LEAST_RUNS, Cell
from reproduction.tables import Grid

#: Results of :mod:`reproduction.noisy`.
NOISE = 'noise.json'
#: Edges that are added or removed, in percent of the edges of the data set.
CHANGES = (-75, -50, -25, 0, 50, 100, 300)
#: The row that all others are tested against.
OURS = 'ours_fixed'

Found = dict[tuple[str, int, str], Cell]


def read_cells(root: Path) -> Found:
    """Return the test accuracies of each data set, change and method that has run."""
    cells = own_runs.read_cells(root / NOISE, METHODS)
    return {(key[0], int(key[1]), key[2]): cell for key, cell in cells.items()}


def noise_grid(dataset: str, root: Path) -> Grid:
    """Compare accuracies of all methods on all changes of the graph of a data set."""
    found = read_cells(root)
    changes = [c for c in CHANGES if any(k[:2] == (dataset, c) for k in found)]
    return compared_grid(
        found,
        {(dataset, c): f'{c:+d} %' if c else 'as given' for c in changes},
        {name: method.title for name, method in METHODS.items()},
        compare_ours(found, OURS),
        lambda tests: f'{compared_note(METHODS[OURS].title, OVERLAPPING, tests)}.',
        corner=dataset,
    )


def noise_figure(root: Path) -> Figure | None:
    """Plot accuracies over the changes of each graph, if there are enough runs."""
    found = {k: c for k, c in read_cells(root).items() if len(c.test) >= LEAST_RUNS}
    colours = {OURS: 'C0'}
    others = (name for name in METHODS if name != OURS)
    colours |= dict(zip(others, [*(f'C{i}' for i in range(1, 10)), 'k'], strict=False))
    datasets = [name for name in OBSERVED if any(key[0] == name for key in found)]
    if not datasets:
        return None
    width = 3.6 * len(datasets) + 2.2
    figure = Figure(figsize=(width, 3.6), layout='constrained')
    axes = figure.subplots(1, len(datasets), squeeze=False)[0]
    for ax, dataset in zip(axes, datasets, strict=True):
        changes = [c for c in CHANGES if any(k[:2] == (dataset, c) for k in found)]
        places = {change: place for place, change in enumerate(changes)}
        for name, method in METHODS.items():
            known = [c for c in changes if (dataset, c, name) in found]
            if not known:
                continue
            ax.plot(
                [places[change] for change in known],
                [found[dataset, change, name].mean for change in known],
                '-' if name == OURS else ':',
                marker='o' if name == OURS else '.',
                linewidth=2.5 if name == OURS else 1.5,
                color=colours[name],
                label=method.title,
            )
        labels = [f'{change:+d}' if change else '0' for change in changes]
        ax.set_xticks(range(len(changes)), labels)
        ax.set(title=dataset, xlabel='edges added or removed, %')
        ax.grid(alpha=0.3)
    axes[0].set_ylabel('test accuracy, %')
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside right center')
    return figure
