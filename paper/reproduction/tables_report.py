"""Summarize finished units of tables to cells, and compare ours with all others."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from reproduction.studies import LEVEL, read_runs, signed
from reproduction.summary import LEAST_RUNS, Cell, Comparison, compare
from reproduction.tables import Entry
from reproduction.tables_data import PLACE, SOURCES, TIME, TRAIN, TRAIN_AND_VAL
from reproduction.tables_methods import METHODS
from reproduction.tables_store import Result, results_path

#: Ratio of test to training rows in random splits.
OVERLAP = (1 - TRAIN_AND_VAL) / TRAIN
#: The rows that all controls are compared with.
OURS = ('blend', 'ours')
#: Key of a cell: a table and a method.
Key = tuple[str, str]
CONTROLS = tuple(
    m for m, method in METHODS.items() if method.group in ('control', 'other')
)
#: Variants, and the method that each of them changes.
ABLATIONS = {
    m: 'blend' if method.options['graph'] == 'auto' else 'ours'
    for m, method in METHODS.items()
    if method.group == 'ablation'
}
SINGLE = {PLACE: 'by place', TIME: 'by time'}
TESTED = (
    f'at a level of {LEVEL}, by two-sided paired t-tests, corrected for random splits '
    'that overlap (Nadeau and Bengio, 2003)'
)


def read_units(root: Path, table: str) -> dict[Key, Result]:
    """Return the finished units of a table, by method and split."""
    units = {}
    for name, result in read_runs(results_path(root, table), METHODS).items():
        _, method, split = name.split('/')
        units[method, split] = result
    return units


def measures(table: str) -> dict[str, str]:
    """Return the measures of a table, of which the first decides, and their titles."""
    source = SOURCES[table]
    if source.is_regression:
        return {'rmse': f'RMSE, {source.unit}' if source.unit else 'RMSE'}
    return {'error': 'errors, %', 'log_loss': 'log loss'}


def random_cells(
    units: Mapping[Key, Result], measure: str, scale: float = 1.0
) -> dict[str, Cell]:
    """Return the results of methods on random splits."""
    tests: dict[str, dict[int, float]] = defaultdict(dict)
    for (method, split), result in units.items():
        if split.isdigit():
            tests[method][int(split)] = scale * result['test'][measure]
    return {method: Cell(test) for method, test in tests.items()}


def relative_cells(root: Path) -> dict[Key, Cell]:
    """Return errors in % of the target's deviation, or of the number of rows."""
    cells = {}
    for table in SOURCES:
        units = read_units(root, table)
        measure = next(iter(measures(table)))
        scale = 100.0
        if units and SOURCES[table].is_regression:
            scale /= next(iter(units.values()))['deviation']
        for method, cell in random_cells(units, measure, scale).items():
            cells[table, method] = cell
    return cells


def compare_with(
    cells: Mapping[Key, Cell], ours: Iterable[str], controls: Iterable[str]
) -> dict[tuple[str, str, str], Comparison]:
    """Compare errors, those of ours minus those of others, on the same splits."""
    pairs = {}
    controls = [*controls]
    for our_name in ours:
        for table, method in cells:
            if method in controls and (table, our_name) in cells:
                pair = compare(cells[table, our_name], cells[table, method], OVERLAP)
                if pair is not None:
                    pairs[table, method, our_name] = pair
    return pairs


def digits_of(cell: Cell) -> int:
    """Return the decimals that show the first two digits of the deviation."""
    spread = cell.mean / 100 if math.isnan(cell.std) else cell.std
    return 3 if spread <= 0 else min(4, max(0, 1 - math.floor(math.log10(spread))))


def text_of(cell: Cell, digits: int) -> str:
    """Write mean ± sample standard deviation (number of splits)."""
    std = '' if math.isnan(cell.std) else f' ± {cell.std:.{digits}f}'
    return f'{cell.mean:.{digits}f}{std} ({len(cell.test)})'


def column(cells: Mapping[str, Cell], names: Iterable[str]) -> dict[str, Entry]:
    """Write a column; the best is one of those with the most splits."""
    if not cells:
        return {}
    digits = statistics.median_low(digits_of(cell) for cell in cells.values())
    num_splits = max([LEAST_RUNS, *(len(cell.test) for cell in cells.values())])
    means = [round(c.mean, digits) for c in cells.values() if len(c.test) == num_splits]
    return {
        name: Entry(
            text_of(cells[name], digits),
            '',
            len(cells[name].test) == num_splits
            and round(cells[name].mean, digits) == min(means),
        )
        for name in names
        if name in cells
    }


def single_column(cells: Mapping[str, Cell]) -> dict[str, Entry]:
    """Write a column of one split."""
    if not cells:
        return {}
    least = min(cell.mean for cell in cells.values())
    digits = 3 if least <= 0 else min(5, max(0, 2 - math.floor(math.log10(least))))
    texts = {name: f'{cell.mean:.{digits}f}' for name, cell in cells.items()}
    best = f'{least:.{digits}f}'
    return {name: Entry(text, '', text == best) for name, text in texts.items()}


def below(entry: Entry, pair: Comparison | None, p_value: float | None) -> Entry:
    """Add the difference of errors, ours minus this one, if it was compared."""
    if pair is None:
        return entry
    star = '*' if p_value is not None and p_value < LEVEL else ''
    return entry._replace(paper=f'ours {signed(pair.difference, 2)}{star}')
