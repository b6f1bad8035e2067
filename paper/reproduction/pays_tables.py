"""Summarize in one table where a learned graph pays off, from finished runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reproduction import (
    half_tables,
    labels_models,
    labels_tables,
    noisy_tables,
    own_runs,
    relation_tables,
)
from reproduction.noisy_models import METHODS
from reproduction.own_tables import signed
from reproduction.summary import LEAST_RUNS, TEST_TO_TRAIN, Cell, compare, holm
from reproduction.tables import Entry, Grid

#: The angle, the change, and the labels per class that the table shows.
DELTA, CHANGE, LABELS = 120, 300, '5'
#: A key without the method, and the cells of a row.
Key = tuple[Any, ...]
Cells = tuple[Cell | None, ...]
COLUMNS = ('no graph', 'nearest or given nodes', 'uniform draws', 'learned graph')
#: Methods on a fixed graph, of which the best is shown.
FIXED = {
    'noise': ('gcn', 'gcn_root', 'mean', 'mean_near'),
    'labels': ('knn_gcn', 'knn_gcn_drop', 'encoder', 'knn_encoder', 'nearest'),
    'half': ('gcn_root', 'mean'),
}


class Setting(NamedTuple):
    """A row: the results of each column by seed, and the test of the last column.

    Args:
        title: Description of the data.
        cells: The results of the columns; errors are negated.
        kind: `error`, or accuracies of `overlapping` splits, of `draws` of labels that
            count as independent, or of one `split` that all seeds share.
    """

    title: str
    cells: Cells
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
        if ours is None or best is None or self.kind == 'split':
            return math.nan
        if self.kind == 'error':
            ours, best = (
                Cell({seed: -math.log(-error) for seed, error in cell.test.items()})
                for cell in (ours, best)
            )
        overlap = TEST_TO_TRAIN if self.kind == 'overlapping' else 0.0
        found = compare(ours, best, overlap)
        return math.nan if found is None else found.p_value


def settings(root: Path) -> list[Setting]:
    """List the rows with enough runs, each with the seeds that its methods share."""
    found = [_hidden(root), *_noisy(root), *_labels(root), *_half(root)]
    rows = [_common(row) for row in found if row.cells[-1] is not None]
    return [row for row in rows if row.num_runs >= LEAST_RUNS]


def _common(row: Setting) -> Setting:
    """Restrict all cells to the seeds that they share."""
    tests = [cell.test for cell in row.cells if cell is not None]
    seeds = sorted(set.intersection(*(set(test) for test in tests)))
    cells = tuple(
        cell and cell._replace(test={seed: cell.test[seed] for seed in seeds})
        for cell in row.cells
    )
    return row._replace(cells=cells)


def _hidden(root: Path) -> Setting:
    found = relation_tables.read_errors(root)
    mlp, uniform, ours = (
        Cell({seed: -error for seed, error in cell.test.items()})
        for cell in (
            found.get((DELTA, name), Cell({}))
            for name in ('mlp', 'uniform', relation_tables.OURS)
        )
    )
    title = f'hidden relation at {DELTA}°, error'
    return Setting(title, (mlp, None, uniform, ours), 'error')


def _columns(found: Mapping[Any, Cell], key: Key, ours: str, kind: str) -> Cells:
    """Return the cells of a row, given their key without the method."""
    mlp, uniform, own, *fixed = (
        found.get((*key, name)) for name in ('mlp', 'uniform', ours, *FIXED[kind])
    )
    known = [cell for cell in fixed if cell is not None]
    best = max(known, key=lambda cell: (len(cell.test), cell.mean), default=None)
    return mlp, best, uniform, own


def _noisy(root: Path) -> list[Setting]:
    found = noisy_tables.read_cells(root)
    rows = []
    for dataset in sorted({key[0] for key in found}):
        for change, of in ((0, 'its own graph'), (CHANGE, f'+{CHANGE} % random edges')):
            cells = _columns(found, (dataset, change), noisy_tables.OURS, 'noise')
            rows.append(Setting(f'{dataset}, {of}', cells, 'overlapping'))
    return rows


def _labels(root: Path) -> list[Setting]:
    found = labels_tables.read_cells(root)
    rows = []
    for dataset in labels_tables.DATASETS:
        for labels in (labels_tables.PUBLIC, LABELS):
            is_public = labels == labels_tables.PUBLIC
            text = "Planetoid's split" if is_public else f'{labels} labels a class'
            cells = _columns(found, (dataset, labels), labels_tables.OURS, 'labels')
            kind = 'split' if is_public else 'draws'
            rows.append(Setting(f'{dataset}, no graph, {text}', cells, kind))
    return rows


def _half(root: Path) -> list[Setting]:
    found = own_runs.read_cells(root / half_tables.HALF, half_tables.HALF_METHODS)
    return [
        Setting(
            f'{dataset}, no graph, half labelled',
            _columns(found, (dataset,), half_tables.OURS, 'half'),
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
        'Test accuracy in %; in the first row the mean squared error over the variance '
        'of the targets. Means over the runs that all methods of a row share, '
        f'{LEAST_RUNS} or more. Nearest or given nodes: the best row of the full '
        'tables with a fixed graph, encoders included. Difference: the learned graph '
        'minus the best of the others here, with its two-sided p-value, corrected for '
        "the number of rows (Holm). Planetoid's split is a single one and cannot be "
        f'tested. The learned graph of the full tables is {_names_of_ours()}.'
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
    text = signed(sign * (ours.mean - best.mean), digits)
    if p_value is None:
        return [*texts, Entry(text)]
    p = 'p < 0.001' if p_value < 0.001 else f'p = {p_value:.3f}'
    return [*texts, Entry(text, p)]
