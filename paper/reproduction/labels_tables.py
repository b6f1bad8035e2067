"""Make tables and a figure of few labels from finished runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduction import own_runs
from reproduction.labels_models import METHODS
from reproduction.own_tables import (
    LEVEL,
    compare_ours,
    compared_grid,
    compared_note,
    correct,
)
from reproduction.summary import LEAST_RUNS, Cell, Comparison
from reproduction.tables import Entry, Grid

#: Results of :mod:`reproduction.labels`.
LABELS_FILE = 'labels.json'
#: The split of Planetoid.
PUBLIC = 'public'
#: Labels per class.
LABELS = ('1', '5', '10', '20', PUBLIC)
#: The data sets.
DATASETS = ('CiteSeer', 'PubMed', '20News', 'digits', 'wine', 'breast_cancer')
#: The row that all others are tested against, and one more of a learned graph.
OURS, ENCODED = 'ours', 'ours_encoder'
#: Points below ours at which the figure is cut off.
MARGIN = 12.0
#: The methods that the figure distinguishes, and their colours.
SHOWN = {
    'logreg': '#7f7f7f',
    'mlp': '#d62728',
    'encoder': '#9467bd',
    'knn_gcn': '#8c564b',
    'nearest': '#2ca02c',
    'uniform': '#ff7f0e',
    OURS: '#1f77b4',
    ENCODED: '#17becf',
}

#: A data set, a number of labels and a method.
Key = tuple[str, ...]
Found = dict[Key, Cell]


def read_cells(root: Path) -> Found:
    """Return the test accuracies of each data set, number and method that has run."""
    cells = own_runs.read_cells(root / LABELS_FILE, METHODS)
    return {k: c._replace(is_one_split=k[1] == PUBLIC) for k, c in cells.items()}


def compare_controls(found: Found) -> dict[Key, Comparison]:
    """Compare ours with each control.

    The test generalises to other draws of labels from the same table: it treats splits
    as independent, although their test nodes are mostly the same.
    """
    pairs = compare_ours(found, OURS, overlap=0.0)
    return {key: pair for key, pair in pairs.items() if key[-1] != ENCODED}


def labels_grid(dataset: str, root: Path) -> Grid:
    """Compare accuracies of all methods for all numbers of labels of a data set."""
    found = read_cells(root)
    numbers = [n for n in LABELS if any(key[:2] == (dataset, n) for key in found)]
    how = 'that treat the draws of labels as independent'
    end = '; the public split is a single one and is not tested.'
    return compared_grid(
        found,
        {(dataset, n): f'{n} a class' if n != PUBLIC else n for n in numbers},
        {name: method.title for name, method in METHODS.items()},
        compare_controls(found),
        lambda tests: compared_note(METHODS[OURS].title, how, tests) + end,
        corner=dataset,
    )


def labels_paired(root: Path) -> Grid:
    """Count where ours is better or worse than each other method."""
    pairs = compare_controls(read_cells(root))
    p_values = correct(pairs)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for key, p_value in p_values.items():
        verdict = 'wins' if pairs[key].difference > 0 else 'losses'
        counts[key[2]][verdict if p_value < LEVEL else 'ties'] += 1
    kinds = 'wins', 'ties', 'losses'
    rows = [
        (method.title, [Entry(str(counts[name][kind]), '', False) for kind in kinds])
        for name, method in METHODS.items()
        if name in counts
    ]
    columns = {key[:2]: pairs[key].num_splits for key in p_values}
    few = sum(number == LEAST_RUNS for number in columns.values())
    note = (
        'Number of columns of the tables above in which ours is better (p < '
        f'{LEVEL}), not detectably different, or worse, by the same tests, corrected '
        f"for all {len(p_values)} of them (Holm's method). {len(columns)} columns of "
        f'{len({dataset for dataset, _ in columns})} data sets have {LEAST_RUNS} runs '
        f'or more. {few} have exactly {LEAST_RUNS}, which detect only very large '
        'differences.'
    )
    return Grid(['ours against', *kinds], rows, [note], 'no finished runs yet')


def labels_figure(root: Path) -> Figure | None:
    """Plot accuracies of all methods with enough runs over the number of labels.

    Data sets with a single number of labels are left out. Values far below ours are cut
    off.
    """
    found = {k: c for k, c in read_cells(root).items() if len(c.test) >= LEAST_RUNS}
    numbers = {
        name: [n for n in LABELS[:-1] if (name, n, OURS) in found] for name in DATASETS
    }
    datasets = [name for name, known in numbers.items() if len(known) > 1]
    if not datasets:
        return None
    width = min(3, len(datasets))
    height = -(-len(datasets) // width)
    figure = Figure(figsize=(3.4 * width + 2.6, 3.6 * height), layout='constrained')
    axes = figure.subplots(height, width, squeeze=False)
    for ax in axes.flat[len(datasets) :]:
        ax.remove()
    for ax, dataset in zip(axes.flat, datasets, strict=False):
        # Methods of the legend are drawn above the others.
        for name in sorted(METHODS, key=lambda name: (name in SHOWN, name == OURS)):
            _draw_line(ax, name, {n: found.get((dataset, n, name)) for n in LABELS})
        ticks = [int(n) for n in LABELS[:-1]]
        least = min(found[dataset, n, OURS].mean for n in numbers[dataset])
        ax.set_ylim(bottom=least - MARGIN)
        ax.set_xscale('log')
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.set(title=dataset, xlabel='labels of each class')
        ax.grid(alpha=0.3)
    for ax in axes[:, 0]:
        ax.set_ylabel('test accuracy, %')
    lines = dict(zip(*axes[0, 0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(lines.values(), lines.keys(), loc='outside right center')
    return figure


def _draw_line(ax: Axes, name: str, cells: dict[str, Cell | None]) -> None:
    """Plot the means of a method, in grey if it is not in the legend."""
    known = {int(n): c.mean for n, c in cells.items() if n != PUBLIC and c is not None}
    is_ours, is_shown = name == OURS, name in SHOWN
    ax.plot(
        list(known),
        list(known.values()),
        '-' if is_ours else ':',
        marker='o' if is_ours else '.',
        color=SHOWN.get(name, '#bbbbbb'),
        linewidth=2.5 if is_ours else 1.2,
        label=METHODS[name].title if is_shown else 'other methods',
    )
