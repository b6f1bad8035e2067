"""Summarize in one table where a learned graph pays, from finished runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from reproduction import (
    half_tables,
    labels_models,
    labels_tables,
    noisy_tables,
    relation_tables,
)
from reproduction.noisy_models import METHODS
from reproduction.summary import LEAST_RUNS, Cell, compare, holm
from reproduction.tables import Entry, Grid

#: The angle, the change, and the labels of a class that the table shows.
DELTA, CHANGE, LABELS = 120, 300, '5'
COLUMNS = ('no graph', 'nearest or given nodes', 'uniform draws', 'learned graph')
#: The layers of a given graph that learn no weights, of which the best is shown.
FIXED = ('gcn', 'gcn_root', 'mean')


class Setting(NamedTuple):
    """A row: what each column got, seed by seed, and how the last one is tested.

    Args:
        title: What the row says of the data.
        cells: The results of the columns; errors are given as their negatives.
        kind: `error`, or accuracies of splits that are `overlapping`, of `disjoint`
            draws of labels, or of one `split` that all seeds share.
    """

    title: str
    cells: tuple[Cell | None, ...]
    kind: str

    def best_control(self) -> Cell | None:
        """Return the control of the highest mean."""
        known = [cell for cell in self.cells[:-1] if cell is not None and cell.test]
        return max(known, key=lambda cell: cell.mean, default=None)

    @property
    def num_runs(self) -> int:
        """Return the number of runs of the learned graph."""
        return 0 if self.cells[-1] is None else len(self.cells[-1].test)

    def p_value(self) -> float:
        """Test the learned graph against the best control on the same seeds."""
        ours, best = self.cells[-1], self.best_control()
        too_few = self.num_runs < LEAST_RUNS
        if ours is None or best is None or too_few or self.kind == 'split':
            return math.nan
        if self.kind == 'overlapping':
            found = compare(ours, best)
            return math.nan if found is None else found.p_value
        pair = [[cell.test[seed] for seed in ours.test] for cell in (ours, best)]
        if self.kind == 'error':
            pair = [[math.log(-error) for error in errors] for errors in pair]
        return float(stats.ttest_rel(*pair).pvalue)


def settings(root: Path) -> list[Setting]:
    """List the rows of enough runs, each cut to the seeds that all its methods have."""
    found = [_hidden(root), *_noisy(root), *_labels(root), *_half(root)]
    rows = [_common(row) for row in found if row.cells[-1] is not None]
    return [row for row in rows if row.num_runs >= LEAST_RUNS]


def _common(row: Setting) -> Setting:
    """Cut all cells to the seeds that they share."""
    tests = [cell.test for cell in row.cells if cell is not None]
    seeds = sorted(set.intersection(*(set(test) for test in tests)))
    cells = tuple(
        cell and cell._replace(test={seed: cell.test[seed] for seed in seeds})
        for cell in row.cells
    )
    return row._replace(cells=cells)


def _hidden(root: Path) -> Setting:
    errors = relation_tables.read_errors(root)
    mlp, uniform, ours = (
        _negative(errors[name][DELTA].error)
        for name in ('mlp', 'uniform', relation_tables.OURS)
    )
    title = f'hidden relation at {DELTA}°, error'
    return Setting(title, (mlp, None, uniform, ours), 'error')


def _negative(error: Mapping[int, float]) -> Cell:
    return Cell({seed: -value for seed, value in error.items()})


def _noisy(root: Path) -> list[Setting]:
    found = noisy_tables.read_cells(root)
    rows = []
    for dataset in sorted({key[0] for key in found}):
        for change, of in ((0, 'its own graph'), (CHANGE, f'+{CHANGE} % random edges')):
            mlp, uniform, ours, *fixed = (
                found.get((dataset, change, name))
                for name in ('mlp', 'uniform', noisy_tables.OURS, *FIXED)
            )
            cells = mlp, _best(fixed), uniform, ours
            rows.append(Setting(f'{dataset}, {of}', cells, 'overlapping'))
    return rows


def _best(cells: Iterable[Cell | None]) -> Cell | None:
    """Return the cell of the highest mean, of those with the most runs."""
    known = [cell for cell in cells if cell is not None]
    return max(known, key=lambda cell: (len(cell.test), cell.mean), default=None)


def _labels(root: Path) -> list[Setting]:
    found = labels_tables.read_cells(root)
    names = 'mlp', 'knn_gcn', 'uniform', labels_tables.OURS
    rows = []
    for dataset in labels_tables.DATASETS:
        for labels in (labels_tables.PUBLIC, LABELS):
            is_public = labels == labels_tables.PUBLIC
            text = "Planetoid's split" if is_public else f'{labels} labels a class'
            cells = tuple(found.get((dataset, labels, name)) for name in names)
            kind = 'split' if is_public else 'disjoint'
            rows.append(Setting(f'{dataset}, no graph, {text}', cells, kind))
    return rows


def _half(root: Path) -> list[Setting]:
    found = half_tables.read_cells(root)
    names = 'mlp', 'gcn_root', 'uniform', half_tables.OURS
    return [
        Setting(
            f'{dataset}, no graph, half labelled',
            tuple(found.get((dataset, name)) for name in names),
            'overlapping',
        )
        for dataset in half_tables.DATASETS
    ]


def pays_grid(root: Path) -> Grid:
    """Compare a learned graph with its controls over all settings."""
    rows = settings(root)
    corrected = holm({row.title: row.p_value() for row in rows})
    entries = [(row.title, _entries(row, corrected.get(row.title))) for row in rows]
    note = (
        'Test accuracy in %, of the first row the mean squared error over the variance '
        'of the targets: means of the runs that all methods of a row have, '
        f'{LEAST_RUNS} or more. Of a given graph the second column is the best of a '
        'GCN, a GCN with a root weight and the mean of neighbours. The last column is '
        'the difference of the learned graph from the best of the others here, with '
        'its p-value, two-sided and '
        "corrected for the number of rows (Holm). All runs of Planetoid's splits share "
        'one split, which cannot be tested. In the full tables the learned graph is '
        f'{_names_of_ours()}.'
    )
    head = ['', *COLUMNS, 'runs', 'difference']
    return Grid(head, entries, [note], 'no finished runs yet')


def _names_of_ours() -> str:
    """Return the titles of the rows that the last column of results shows."""
    titles = {
        'a given graph': METHODS[noisy_tables.OURS].title,
        'few labels': labels_models.METHODS[labels_tables.OURS].title,
        'half labelled': half_tables.HALF_METHODS[half_tables.OURS].title,
    }
    return '; '.join(f'"{title}" ({where})' for where, title in titles.items())


def _entries(row: Setting, p_value: float | None) -> list[Entry]:
    digits, sign = (3, -1) if row.kind == 'error' else (1, 1)
    means = [math.nan if c is None else round(sign * c.mean, digits) for c in row.cells]
    known = [sign * mean for mean in means if not math.isnan(mean)]
    texts = [
        Entry('' if math.isnan(m) else f'{m:.{digits}f}', '', sign * m == max(known))
        for m in means
    ]
    texts.append(Entry(str(row.num_runs)))
    ours, best = row.cells[-1], row.best_control()
    if ours is None or best is None:
        return [*texts, Entry('')]
    text = f'{sign * (ours.mean - best.mean):+.{digits}f}'
    if p_value is None:
        return [*texts, Entry(text)]
    p = 'p < 0.001' if p_value < 0.001 else f'p = {p_value:.3f}'
    return [*texts, Entry(text, p)]
