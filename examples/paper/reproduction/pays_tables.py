"""Summarize in one table where a learned graph pays, from finished runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scipy import stats

from reproduction import half_tables, labels_tables, noisy_tables, relation_tables
from reproduction.summary import LEAST_RUNS, Cell, compare, holm
from reproduction.tables import Entry, Grid

#: The angle, the change, and the labels of a class that the table shows.
DELTA, CHANGE, LABELS = 120, 300, '5'
COLUMNS = ('no graph', 'nearest or given nodes', 'uniform draws', 'learned graph')


class Setting(NamedTuple):
    """A row: what each column got, seed by seed, and how the last one is tested.

    Args:
        title: What the row says of the data.
        cells: The results of the columns; errors are given as their negatives.
        kind: `error`, `accuracy` of splits that overlap or of splits that hardly do,
            or `split` where all seeds share one.
    """

    title: str
    cells: tuple[Cell | None, ...]
    kind: str

    def best_control(self) -> Cell | None:
        """Return the control of the highest mean."""
        known = [cell for cell in self.cells[:-1] if cell is not None and cell.test]
        return max(known, key=lambda cell: cell.mean, default=None)

    def p_value(self) -> float:
        """Test the learned graph against the best control on the same seeds."""
        ours, best = self.cells[-1], self.best_control()
        if ours is None or best is None or self.kind == 'split':
            return math.nan
        seeds = sorted(ours.test.keys() & best.test.keys())
        if len(seeds) < LEAST_RUNS:
            return math.nan
        if self.kind == 'overlapping':
            found = compare(ours, best)
            return math.nan if found is None else found.p_value
        pair = [[cell.test[seed] for seed in seeds] for cell in (ours, best)]
        if self.kind == 'error':
            pair = [[math.log(-error) for error in errors] for errors in pair]
        return float(stats.ttest_rel(*pair).pvalue)


def settings(root: Path) -> list[Setting]:
    """List the rows that have finished runs of the learned graph."""
    found = [_hidden(root), *_noisy(root), *_labels(root), *_half(root)]
    return [row for row in found if row.cells[-1] is not None and row.cells[-1].test]


def _hidden(root: Path) -> Setting:
    errors = relation_tables.read_errors(root)
    names = 'mlp', 'linear', 'uniform', relation_tables.OURS
    cells = tuple(_negative(errors[name][DELTA].error) for name in names)
    return Setting(f'hidden relation at {DELTA}°, error', cells, 'error')


def _negative(error: Mapping[int, float]) -> Cell:
    return Cell({seed: -value for seed, value in error.items()})


def _noisy(root: Path) -> list[Setting]:
    found = noisy_tables.read_cells(root)
    names = 'mlp', 'gcn_root', 'uniform', noisy_tables.OURS
    rows = []
    for dataset in sorted({key[0] for key in found}):
        for change, of in ((0, 'its own graph'), (CHANGE, f'+{CHANGE} % wrong edges')):
            cells = tuple(found.get((dataset, change, name)) for name in names)
            rows.append(Setting(f'{dataset}, {of}', cells, 'overlapping'))
    return rows


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
    names = 'mlp', 'gcn_root', 'uniform', noisy_tables.OURS
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
        'Test accuracy in %, of the first row the error of the table below: means of '
        'the runs. The last column is the difference of the learned graph from the '
        f'best of the others on the same runs, of {LEAST_RUNS} runs or more with its '
        'p-value, two-sided and corrected for the number of rows (Holm). All runs of '
        "Planetoid's splits share one split, which cannot be tested."
    )
    head = ['', *COLUMNS, 'difference']
    return Grid(head, entries, [note], 'no finished runs yet')


def _entries(row: Setting, p_value: float | None) -> list[Entry]:
    digits, sign = (3, -1) if row.kind == 'error' else (1, 1)
    means = [math.nan if c is None else round(sign * c.mean, digits) for c in row.cells]
    known = [sign * mean for mean in means if not math.isnan(mean)]
    texts = [
        Entry('' if math.isnan(m) else f'{m:.{digits}f}', '', sign * m == max(known))
        for m in means
    ]
    ours, best = row.cells[-1], row.best_control()
    if ours is None or best is None:
        return [*texts, Entry('')]
    seeds = ours.test.keys() & best.test.keys()
    if not seeds:
        return [*texts, Entry('')]
    total = math.fsum(ours.test[seed] - best.test[seed] for seed in seeds)
    text = f'{sign * total / len(seeds):+.{digits}f}'
    if p_value is None:
        return [*texts, Entry(text)]
    p = 'p < 0.001' if p_value < 0.001 else f'p = {p_value:.3f}'
    return [*texts, Entry(text, p)]
