"""Make a first, small table of where a learned graph pays off, from finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction import (
    attacked_tables,
    relation_tables,
    relations,
    sensors_tables,
    tables_report,
)
from reproduction.attacked_tables import ATTACKED
from reproduction.pays_tables import DELTA
from reproduction.sensors_tables import FORECAST, MINUTES, NEW
from reproduction.summary import Cell
from reproduction.tables import Entry, Grid
from reproduction.tables_methods import METHODS

#: The rate of Metattack that is shown, in %.
RATE = 25
#: Rows on attacked graphs without refinement.
FIXED = (
    *('knn', 'gcn', 'gat', 'mean', 'gcn_cosine', 'gcn_jaccard', 'mean_cosine'),
    *('both', 'both_cosine', 'mixture', 'mlp_taught', 'gcn_taught', 'both_taught'),
)
#: Methods that do not learn the angle of the relation.
UNLEARNED = ('mlp', 'nodeformer', 'uniform', 'linear', 'difference', 'bell')
Cells = Mapping[str, Cell]


def first_grid(root: Path) -> Grid:
    """Compare a learned graph with no graph and with the best control, by setting."""
    rows = [*_tables(root), *_attacked(root), *_sensors(root), *_hidden(root)]
    note = (
        'Means over runs. The best control is the row without a learned graph that has '
        'the best mean in the full tables, among rows of at least as many runs.'
    )
    head = ['', 'measure', 'no graph', 'best control', 'learned graph', 'runs']
    return Grid(head, rows, [note], 'no finished runs yet')


def _row(
    title: str,
    measure: str,
    cells: Cells,
    none: str,
    ours: str,
    controls: Mapping[str, str],
    *,
    digits: int = 2,
    largest: bool = False,
) -> list[tuple[str, list[Entry]]]:
    """Make a row, or none if the learned graph has not run."""
    if ours not in cells:
        return []
    own = cells[ours]
    known = {
        name: cells[name].mean
        for name in controls
        if name in cells and len(cells[name].test) >= len(own.test)
    }
    choose = max if largest else min
    best = choose(known, key=lambda name: known[name], default=None)
    texts = [
        f'{cells[none].mean:.{digits}f}' if none in cells else '',
        '' if best is None else f'{known[best]:.{digits}f} ({controls[best]})',
        f'{own.mean:.{digits}f}',
    ]
    entries = [Entry(measure), *map(Entry, texts), Entry(str(len(own.test)))]
    return [(title, entries)]


def _tables(root: Path) -> list[tuple[str, list[Entry]]]:
    units = tables_report.read_units(root, 'california')
    cells = tables_report.cells(units, 'rmse')
    titles = {
        name: method.title.replace(', default', '')
        for name, method in METHODS.items()
        if name in tables_report.CONTROLS
    }
    title = 'California housing, prices of a district'
    measure = 'RMSE, 100,000 dollars'
    row = _row(title, measure, cells, 'mlp', 'blend', titles, digits=3)
    earlier = 'mlp_0_2', 'ours_4_0_2'
    return row or _row(f'{title}, 0.2.0', measure, cells, *earlier, titles, digits=3)


def _attacked(root: Path) -> list[tuple[str, list[Entry]]]:
    found = attacked_tables.read_cells(root)
    titles = {name: attacked_tables.ROWS[name][0] for name in FIXED}
    rows = []
    for dataset in attacked_tables.ATTACKED_DATASETS:
        key = dataset, RATE, ATTACKED
        cells = {row: cell for (*k, row), cell in found.items() if tuple(k) == key}
        rows += _row(
            f'{dataset}, {RATE} % of the edges changed by Metattack',
            *('accuracy, %', cells, 'mlp', attacked_tables.OURS, titles),
            digits=1,
            largest=True,
        )
    return rows


def _sensors(root: Path) -> list[tuple[str, list[Entry]]]:
    found = sensors_tables.read_cells(root)
    rows = []
    last = len(MINUTES) - 1
    learned = {*sensors_tables.LEARNED, 'none', 'place'}
    titles = {k: kind.title for k, kind in sensors_tables.KINDS.items()}
    titles = {k: title for k, title in titles.items() if k not in learned}
    for task, title in (
        (FORECAST, 'traffic in 60 minutes, 207 sensors'),
        (NEW, 'traffic in 60 minutes, sensors that are new'),
    ):
        key: Any = task, 'rmse', last
        cells = {k: c for (t, k, m, p), c in found.items() if (t, m, p) == key}
        measure = 'RMSE, miles an hour'
        rows += _row(title, measure, cells, 'none', 'lagged series', titles)
    return rows


def _hidden(root: Path) -> list[tuple[str, list[Entry]]]:
    found = relation_tables.read_errors(root)
    cells = {name: cell for (delta, name), cell in found.items() if delta == DELTA}
    controls = {name: relations.METHODS[name].title for name in UNLEARNED}
    title = f'hidden relation at {DELTA}°'
    ours = relation_tables.OURS
    return _row(title, 'error', cells, 'mlp', ours, controls, digits=3)
