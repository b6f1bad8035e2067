"""Make the tables of the documentation from finished units of tables."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reproduction.files import write_text
from reproduction.formats import csv_rows, text_of
from reproduction.studies import LEVEL, correct
from reproduction.summary import LEAST_RUNS, Cell, Comparison
from reproduction.tables import Entry, Grid
from reproduction.tables_data import SOURCES
from reproduction.tables_methods import METHODS
from reproduction.tables_report import (
    ABLATIONS,
    CONTROLS,
    OURS,
    SINGLE,
    TESTED,
    Key,
    below,
    column,
    compare_with,
    measures,
    random_cells,
    read_units,
    relative_cells,
    single_column,
)
from reproduction.tables_store import Result

NOTHING = 'no finished runs yet'
SPLITS = 'mean ± sample standard deviation (number of random splits)'
BOLD = f'bold: the lowest of those with the most splits, if {LEAST_RUNS} or more'


def table_grid(table: str, root: Path) -> Grid:
    """Compare all methods on a table."""
    units = read_units(root, table)
    names = [name for name in METHODS if any(key[0] == name for key in units)]
    titles = measures(table)
    columns = {
        title: column(random_cells(units, measure, scale_of(measure)), names)
        for measure, title in titles.items()
    }
    decisive, title = next(iter(titles.items()))
    for split, words in SINGLE.items():
        alone = {
            name: Cell({0: scale_of(decisive) * result['test'][decisive]})
            for (name, of), result in units.items()
            if of == split
        }
        if alone:
            columns[f'{title}, {words}'] = single_column(alone)
    rows = [
        (METHODS[name].title, [c.get(name, Entry('')) for c in columns.values()])
        for name in names
    ]
    notes = [f'Test rows: {SPLITS}; {BOLD}.']
    if len(columns) > len(titles):
        notes.append('Columns by place or by time are of one split each.')
    head = [table, *columns]
    if units and SOURCES[table].is_regression:
        deviation = next(iter(units.values()))['deviation']
        head[1] += f' (deviation of the target: {deviation:.4g})'
    return Grid(head, rows, notes, NOTHING)


def grids() -> dict[str, Callable[[Path], Grid]]:
    """Return the functions that make all tables from a folder of results, by name."""
    return {
        'tables_panel': panel_grid,
        'tables_paired': paired_grid,
        'tables_ablation': ablation_grid,
        'tables_times': times_grid,
        **{f'tables_{name}': partial(table_grid, name) for name in SOURCES},
    }


def scale_of(measure: str) -> float:
    """Return the factor of a measure in tables: error rates are in %."""
    return 100.0 if measure == 'error' else 1.0


def panel_grid(root: Path) -> Grid:
    """Compare all methods on all tables, relative to the spread of the target."""
    cells = relative_cells(root)
    pairs = compare_with(cells, OURS, CONTROLS)
    p_values = correct(pairs)
    note = (
        'Test rows, in %: the root mean squared error over the standard deviation of '
        f'the target, or the share of errors; {SPLITS}; {BOLD}.'
    )
    if p_values:
        note += (
            f' Below it: the error of the {METHODS[OURS[0]].title} (ours) minus this '
            f'one on the same splits. A star: different {TESTED} and for all '
            f"{len(p_values)} tests of the table of wins (Holm's method)."
        )
    return compared(cells, [*METHODS], pairs, p_values, note)


def ablation_grid(root: Path) -> Grid:
    """Compare ours with variants in which one part was removed or changed."""
    names = (*OURS, *ABLATIONS)
    cells = {key: c for key, c in relative_cells(root).items() if key[1] in names}
    pairs: dict[tuple[str, str, str], Comparison] = {}
    for ours in OURS:
        variants = [name for name, base in ABLATIONS.items() if base == ours]
        pairs |= compare_with(cells, [ours], variants)
    p_values = correct(pairs)
    note = (
        'In % as in the first table. Below it: the error of the whole, the '
        f'{METHODS["ours"].title} or the blend, minus this one.'
    )
    if p_values:
        note += (
            f' A star: different {TESTED} and for all {len(p_values)} tests of this '
            "table (Holm's method)."
        )
    tables = {table for table, name in cells if name in ABLATIONS}
    cells = {key: cell for key, cell in cells.items() if key[0] in tables}
    return compared(cells, names, pairs, p_values, note)


def compared(
    cells: Mapping[Key, Cell],
    methods: Sequence[str],
    pairs: Mapping[tuple[str, str, str], Comparison],
    p_values: Mapping[tuple[str, str, str], float],
    note: str,
) -> Grid:
    """Make a table of methods and tables, with the differences of ours below."""
    tables = [t for t in SOURCES if any(key[0] == t for key in cells)]
    names = [m for m in methods if any(key[1] == m for key in cells)]
    rows: list[tuple[str, list[Entry]]] = [(METHODS[m].title, []) for m in names]
    for table in tables:
        of_table = {m: cells[table, m] for m in names if (table, m) in cells}
        entries = column(of_table, names)
        for name, (_, row) in zip(names, rows, strict=True):
            entry = entries.get(name, Entry(''))
            key = table, name, ABLATIONS.get(name, OURS[0])
            row.append(below(entry, pairs.get(key), p_values.get(key)))
    return Grid(['', *tables], rows, [note], NOTHING)


def paired_grid(root: Path) -> Grid:
    """Count the tables in which ours is better or worse than each control."""
    pairs = compare_with(relative_cells(root), OURS, CONTROLS)
    p_values = correct(pairs)
    counts: dict[Key, Counter[str]] = defaultdict(Counter)
    for (table, name, ours), p_value in p_values.items():
        is_lower = pairs[table, name, ours].difference < 0
        verdict = 'wins' if is_lower else 'losses'
        counts[name, ours][verdict if p_value < LEVEL else 'ties'] += 1
    for (_, name, ours), pair in pairs.items():
        counts[name, ours]['lower' if pair.difference < 0 else 'not lower'] += 1
    rows = [
        (METHODS[name].title, [_counted(counts.get((name, ours))) for ours in OURS])
        for name in CONTROLS
        if any((name, ours) in counts for ours in OURS)
    ]
    note = (
        'Tables in which ours has a lower error, no detectably different one, or a '
        f'higher one: wins / ties / losses, {TESTED} and for all {len(p_values)} tests '
        f"(Holm's method). Tables with {LEAST_RUNS} common random splits or more. "
        'Below it: in how many tables ours has the lower mean error, including those '
        'with fewer splits.'
    )
    head = ['ours against', *(METHODS[ours].title for ours in OURS)]
    return Grid(head, rows, [note], NOTHING)


def _counted(count: Mapping[str, int] | None) -> Entry:
    if count is None:
        return Entry('')
    verdicts = ' / '.join(str(count[verdict]) for verdict in ('wins', 'ties', 'losses'))
    lower = count['lower']
    return Entry(verdicts, f'lower on {lower} of {lower + count["not lower"]}')


def times_grid(root: Path) -> Grid:
    """Report the time and the memory of all methods."""
    costs: dict[Key, list[Result]] = defaultdict(list)
    for table in SOURCES:
        for (method, split), result in read_units(root, table).items():
            if split.isdigit():
                costs[table, method].append(result)
    tables = [t for t in SOURCES if any(key[0] == t for key in costs)]
    rows = [
        (METHODS[m].title, [_cost(costs.get((t, m), [])) for t in tables])
        for m in METHODS
        if any(key[1] == m for key in costs)
    ]
    note = (
        'Seconds of training with its search / of predicting the test rows, and below '
        'them the most memory of the process in MB, which begins with what the program '
        'and the table take: means over random splits.'
    )
    return Grid(['', *tables], rows, [note], NOTHING)


def _cost(results: list[Result]) -> Entry:
    if not results:
        return Entry('')

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(results)

    seconds = [result['seconds'] for result in results]
    fit = mean(each['search'] + each['fit'] for each in seconds)
    predict = mean(each['predict'] for each in seconds)
    peak = mean(result['megabytes']['peak'] for result in results)
    return Entry(f'{fit:.{1 if fit < 100 else 0}f} / {predict:.2f}', f'{peak:.0f} MB')


UNITS = (
    *('table', 'method', 'split', 'measure', 'test', 'validation'),
    *('seconds_search', 'seconds_fit', 'seconds_predict', 'megabytes_before'),
    *('megabytes_peak', 'trials', 'choice', 'environment'),
)
SUMMARY = ('table', 'method', 'measure', 'mean', 'deviation', 'splits')


def write_report(root: Path, folder: Path) -> None:
    """Write all tables as reStructuredText, every unit, and means over splits."""
    for name, make in grids().items():
        write_text(folder / f'{name}.rst', text_of(make(root), 'rst'))
    write_text(folder / 'units.csv', csv_rows([UNITS, *_units(root)]))
    write_text(folder / 'summary.csv', csv_rows([SUMMARY, *_summary(root)]))
    print('wrote', folder)


def _units(root: Path) -> Iterator[tuple[Any, ...]]:
    for table in SOURCES:
        for (method, split), result in sorted(read_units(root, table).items()):
            seconds, megabytes = result['seconds'], result['megabytes']
            for measure in measures(table):
                yield (
                    *(table, method, split, measure, result['test'][measure]),
                    (result['val'] or {}).get(measure, ''),
                    *(seconds['search'], seconds['fit'], seconds['predict']),
                    *(megabytes['before'], megabytes['peak']),
                    '' if result['trials'] is None else result['trials'],
                    json.dumps(result['choice'], sort_keys=True),
                    result['environment'],
                )


def _summary(root: Path) -> Iterator[tuple[Any, ...]]:
    for table in SOURCES:
        units = read_units(root, table)
        for measure in measures(table):
            for method, cell in sorted(random_cells(units, measure).items()):
                yield table, method, measure, cell.mean, cell.std, len(cell.test)
