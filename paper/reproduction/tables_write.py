"""Write the report of tables: fragments of documentation, and CSV files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reproduction.files import write_text
from reproduction.formats import csv_rows, text_of
from reproduction.tables_data import SOURCES
from reproduction.tables_grids import grids
from reproduction.tables_report import cells, measures, read_units

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
            for method, cell in sorted(cells(units, measure).items()):
                yield table, method, measure, cell.mean, cell.std, len(cell.test)
