"""Summarize where a learned graph pays off: a short table, and all settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reproduction import (
    attacked_tables,
    half,
    hidden,
    labels,
    labels_models,
    noisy,
    noisy_models,
    relations,
    sensors,
    studies,
    tables_report,
)
from reproduction.attacked_tables import ATTACKED
from reproduction.sensors import FORECAST, MINUTES, NEW
from reproduction.studies import signed
from reproduction.summary import LEAST_RUNS, TEST_TO_TRAIN, Cell, compare, holm
from reproduction.tables import Entry, Grid
from reproduction.tables_methods import METHODS

#: The angle of the relation, the change of the graph in %, and the labels per class
#: that the table shows.
DELTA = 120
CHANGE = 300
LABELS = '5'
#: A key without the method, and the cells of a row.
Key = tuple[Any, ...]
Cells = tuple[Cell | None, ...]
COLUMNS = ('no graph', 'nearest or given nodes', 'uniform draws', 'learned graph')
#: Methods on a fixed graph, of which the best is shown.
FIXED_GRAPHS = {
    'noise': ('gcn', 'gcn_root', 'mean', 'mean_near'),
    'labels': ('knn_gcn', 'knn_gcn_drop', 'encoder', 'knn_encoder', 'nearest'),
    'half': ('gcn_root', 'mean'),
}


class Setting(NamedTuple):
    """A row: the results of each column by seed, and the test of the last column.

    Args:
        title: Description of the data.
        cells: The results of the columns; errors are negated.
        measure: `error`, or accuracies of `overlapping` splits, of `draws` of labels
            that count as independent, or of one `split` that all seeds share.
    """

    title: str
    cells: Cells
    measure: str

    def best_control(self) -> Cell | None:
        """Return the control of the highest mean."""
        controls = [cell for cell in self.cells[:-1] if cell is not None and cell.test]
        return max(controls, key=lambda cell: cell.mean, default=None)

    @property
    def num_runs(self) -> int:
        """Return the number of runs of the learned graph."""
        return 0 if self.cells[-1] is None else len(self.cells[-1].test)

    def p_value(self) -> float:
        """Test the learned graph against the best control on the same seeds."""
        ours, best = self.cells[-1], self.best_control()
        if ours is None or best is None or self.measure == 'split':
            return math.nan
        if self.measure == 'error':
            ours, best = (
                Cell({seed: -math.log(-error) for seed, error in cell.test.items()})
                for cell in (ours, best)
            )
        overlap = TEST_TO_TRAIN if self.measure == 'overlapping' else 0.0
        comparison = compare(ours, best, overlap)
        return math.nan if comparison is None else comparison.p_value


def settings(root: Path) -> list[Setting]:
    """List the rows with enough runs, each with the seeds that its methods share."""
    rows = [
        _hidden_setting(root),
        *_noisy_settings(root),
        *_labels_settings(root),
        *_half_settings(root),
    ]
    rows = [_common(row) for row in rows if row.cells[-1] is not None]
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


def _hidden_setting(root: Path) -> Setting:
    errors = hidden.read_errors(root)
    mlp, uniform, ours = (
        Cell({seed: -error for seed, error in cell.test.items()})
        for cell in (
            errors.get((DELTA, name), Cell({}))
            for name in ('mlp', 'uniform', hidden.OURS)
        )
    )
    title = f'hidden relation at {DELTA}°, error'
    return Setting(title, (mlp, None, uniform, ours), 'error')


def _columns(cells: Mapping[Any, Cell], key: Key, ours: str, study: str) -> Cells:
    """Return the cells of a row, given their key without the method."""
    mlp, uniform, learned, *fixed = (
        cells.get((*key, name))
        for name in ('mlp', 'uniform', ours, *FIXED_GRAPHS[study])
    )
    fixed_cells = [cell for cell in fixed if cell is not None]
    best = max(fixed_cells, key=lambda cell: (len(cell.test), cell.mean), default=None)
    return mlp, best, uniform, learned


def _noisy_settings(root: Path) -> list[Setting]:
    accuracies = noisy.read_cells(root)
    rows = []
    for dataset in sorted({key[0] for key in accuracies}):
        for change, of in ((0, 'its own graph'), (CHANGE, f'+{CHANGE} % random edges')):
            cells = _columns(accuracies, (dataset, change), noisy.OURS, 'noise')
            rows.append(Setting(f'{dataset}, {of}', cells, 'overlapping'))
    return rows


def _labels_settings(root: Path) -> list[Setting]:
    accuracies = labels.read_cells(root)
    rows = []
    for dataset in labels.DATASETS:
        for count in (labels.PUBLIC, LABELS):
            is_public = count == labels.PUBLIC
            text = "Planetoid's split" if is_public else f'{count} labels a class'
            cells = _columns(accuracies, (dataset, count), labels.OURS, 'labels')
            measure = 'split' if is_public else 'draws'
            rows.append(Setting(f'{dataset}, no graph, {text}', cells, measure))
    return rows


def _half_settings(root: Path) -> list[Setting]:
    accuracies = studies.read_cells(root / half.HALF, half.HALF_METHODS)
    return [
        Setting(
            f'{dataset}, no graph, half labelled',
            _columns(accuracies, (dataset,), half.OURS, 'half'),
            'overlapping',
        )
        for dataset in half.DATASETS
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
        'a given graph': noisy_models.METHODS[noisy.OURS].title,
        'few labels': labels_models.METHODS[labels.OURS].title,
        'half labelled': half.HALF_METHODS[half.OURS].title,
    }
    return '; '.join(f'"{title}" ({where})' for where, title in titles.items())


def _entries(row: Setting, p_value: float | None) -> list[Entry]:
    digits, sign = (3, -1) if row.measure == 'error' else (1, 1)
    means = [math.nan if c is None else round(sign * c.mean, digits) for c in row.cells]
    shown = [sign * mean for mean in means if not math.isnan(mean)]
    texts = [
        Entry('' if math.isnan(m) else f'{m:.{digits}f}', '', sign * m == max(shown))
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


#: The rate of Metattack that is shown, in %.
RATE = 25
#: Rows on attacked graphs without refinement.
UNREFINED = (
    *('knn', 'gcn', 'gat', 'mean', 'gcn_cosine', 'gcn_jaccard', 'mean_cosine'),
    *('both', 'both_cosine', 'mixture', 'mlp_taught', 'gcn_taught', 'both_taught'),
)
#: Methods that do not learn the angle of the relation.
UNLEARNED = ('mlp', 'nodeformer', 'uniform', 'linear', 'difference', 'bell')


def first_grid(root: Path) -> Grid:
    """Compare a learned graph with no graph and with the best control, by setting."""
    rows = [
        *_table_rows(root),
        *_attacked_rows(root),
        *_sensor_rows(root),
        *_hidden_rows(root),
    ]
    note = (
        'Means over runs. The best control is the row without a learned graph that has '
        'the best mean in the full tables, among rows of at least as many runs.'
    )
    head = ['', 'measure', 'no graph', 'best control', 'learned graph', 'runs']
    return Grid(head, rows, [note], 'no finished runs yet')


def _row(
    title: str,
    measure: str,
    cells: Mapping[str, Cell],
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
    learned = cells[ours]
    means = {
        name: cells[name].mean
        for name in controls
        if name in cells and len(cells[name].test) >= len(learned.test)
    }
    choose = max if largest else min
    best = choose(means, key=lambda name: means[name], default=None)
    texts = [
        f'{cells[none].mean:.{digits}f}' if none in cells else '',
        '' if best is None else f'{means[best]:.{digits}f} ({controls[best]})',
        f'{learned.mean:.{digits}f}',
    ]
    entries = [Entry(measure), *map(Entry, texts), Entry(str(len(learned.test)))]
    return [(title, entries)]


def _table_rows(root: Path) -> list[tuple[str, list[Entry]]]:
    units = tables_report.read_units(root, 'california')
    cells = tables_report.random_cells(units, 'rmse')
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


def _attacked_rows(root: Path) -> list[tuple[str, list[Entry]]]:
    accuracies = attacked_tables.read_cells(root)
    titles = {name: attacked_tables.ROWS[name][0] for name in UNREFINED}
    rows = []
    for dataset in attacked_tables.ATTACKED_DATASETS:
        key = dataset, RATE, ATTACKED
        cells = {row: cell for (*k, row), cell in accuracies.items() if tuple(k) == key}
        rows += _row(
            f'{dataset}, {RATE} % of the edges changed by Metattack',
            *('accuracy, %', cells, 'mlp', attacked_tables.OURS, titles),
            digits=1,
            largest=True,
        )
    return rows


def _sensor_rows(root: Path) -> list[tuple[str, list[Entry]]]:
    errors = sensors.read_cells(root)
    rows = []
    last = len(MINUTES) - 1
    learned = {*sensors.LEARNED, 'none', 'place'}
    titles = {k: graph.title for k, graph in sensors.GRAPHS.items()}
    titles = {k: title for k, title in titles.items() if k not in learned}
    for task, title in (
        (FORECAST, 'traffic in 60 minutes, 207 sensors'),
        (NEW, 'traffic in 60 minutes, sensors that are new'),
    ):
        key: Any = task, 'rmse', last
        cells = {k: c for (t, k, m, p), c in errors.items() if (t, m, p) == key}
        measure = 'RMSE, miles an hour'
        rows += _row(title, measure, cells, 'none', 'lagged series', titles)
    return rows


def _hidden_rows(root: Path) -> list[tuple[str, list[Entry]]]:
    errors = hidden.read_errors(root)
    cells = {name: cell for (delta, name), cell in errors.items() if delta == DELTA}
    controls = {name: relations.METHODS[name].title for name in UNLEARNED}
    title = f'hidden relation at {DELTA}°'
    ours = hidden.OURS
    return _row(title, 'error', cells, 'mlp', ours, controls, digits=3)
