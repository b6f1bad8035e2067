"""Rows of the table: ratios and growth; as Markdown and as JSON.

    python benchmark/report.py
    python benchmark/report.py benchmark/results/quick.json

Both commands print the table of a stored run. Ratios of time and memory are given for
both references: ours, and the plain definition where it was run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import format_number, line
from workloads import REAL, parse

HEADER = (
    *('workload', 'task', 'implementation', 'time [s]', 'quartiles', 'time / ours'),
    *('time / dense', 'memory [MB]', 'memory / ours', 'memory / dense', 'agreement'),
)
GROWTH_TASK = 'forward+backward'
GROWTH_SIZES = (100_000, 1_000_000)
DEFINITION = 'dense'
FULL = Path(__file__).resolve().parent / 'results' / 'full.json'


@dataclass
class Row:
    """One implementation of one task of a workload."""

    workload: str
    num_nodes: int
    task: str
    implementation: str
    reference: str
    skipped: str | None = None
    agrees: bool | None = None
    agreement: str = ''
    seconds: list[float] | None = None
    memory_mb: float | None = None
    median: float | None = None
    quartiles: tuple[float, float] | None = None
    time_ratio: float | None = None
    memory_ratio: float | None = None


def make_rows(
    workload: str,
    reference: str,
    timed: dict[str, Any],
    memory: dict[tuple[str, str, str], float | None],
) -> list[Row]:
    """Join the measurements of the workers of a workload into rows, sorted by task."""
    rows = []
    for timed_row in sorted(
        timed['rows'], key=lambda timed_row: timed_row['variant'] == 'T'
    ):
        key = (timed_row['variant'], timed_row['task'], timed_row['implementation'])
        row = Row(
            workload,
            timed['num_nodes'],
            timed_row['task'] + ('' if timed_row['variant'] == 'full' else ' -T'),
            timed_row['implementation'],
            reference,
            timed_row.get('skipped'),
            timed_row.get('agrees'),
            timed_row.get('agreement', ''),
            timed_row['seconds'],
            memory.get(key),
        )
        if row.seconds:
            row.median = statistics.median(row.seconds)
            row.quartiles = _quartiles(row.seconds)
        rows.append(row)
    tasks = list(dict.fromkeys(row.task for row in rows))
    rows.sort(key=lambda row: tasks.index(row.task))
    bases = {row.task: row for row in rows if row.implementation == reference}
    for row in rows:
        if row.task in bases:
            row.time_ratio, row.memory_ratio = _ratios(row, bases[row.task])
    return rows


def _ratios(row: Row, base: Row) -> tuple[float | None, float | None]:
    """Return the median over rounds of the ratio of times, and the ratio of memory."""
    time_ratio = memory_ratio = None
    if row.seconds and base.seconds:
        pairs = zip(row.seconds, base.seconds, strict=True)
        time_ratio = statistics.median(
            seconds / reference for seconds, reference in pairs
        )
    if row.memory_mb is not None and base.memory_mb:
        memory_ratio = row.memory_mb / base.memory_mb
    return time_ratio, memory_ratio


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method='inclusive')
    return low, high


def growth(rows: list[Row]) -> list[dict[str, Any]]:
    """Fit the exponent of n in the time of a step by least squares of logarithms."""
    sizes: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if row.task == GROWTH_TASK and row.median and row.workload not in REAL:
            key = (parse(row.workload)[0], row.implementation)
            sizes.setdefault(key, {})[row.num_nodes] = row.median
    entries = []
    for (family, implementation), seconds in sizes.items():
        if len(seconds) < 2:
            continue
        x, y = ([math.log(v) for v in side] for side in (seconds, seconds.values()))
        entry = {
            'family': family,
            'implementation': implementation,
            'sizes': sorted(seconds),
            'exponent': statistics.linear_regression(x, y).slope,
        }
        small, large = GROWTH_SIZES
        if small in seconds and large in seconds:
            entry['ratio'] = seconds[large] / seconds[small]
        entries.append(entry)
    return entries


def markdown(rows: list[Row], growths: list[Any]) -> str:
    """Return the table, followed by growth and skipped rows."""
    lines = [line(HEADER), line(['---'] * len(HEADER))]
    definitions = {
        (row.workload, row.task): row
        for row in rows
        if row.implementation == DEFINITION and row.agrees
    }
    lines += [
        line(_cells(row, definitions.get((row.workload, row.task))))
        for row in rows
        if row.skipped is None
    ]
    for text in map(_growth_text, growths):
        lines += ['', text]
    skipped = [
        f'- {row.workload}, {row.task}, {row.implementation}: {row.skipped}'
        for row in rows
        if row.skipped is not None
    ]
    return '\n'.join([*lines, *(['', 'Skipped:', '', *skipped] if skipped else [])])


def _growth_text(entry: dict[str, Any]) -> str:
    ratio = f', ratio {entry["ratio"]:.1f}' if 'ratio' in entry else ''
    return (
        f'Growth of {entry["family"]} {entry["implementation"]} {GROWTH_TASK}: '
        f'n^{entry["exponent"]:.2f} over {entry["sizes"]}{ratio}'
    )


def _cells(row: Row, definition: Row | None) -> list[str]:
    cells = [row.workload, row.task, row.implementation]
    if not row.agrees:
        return [*cells, *['-'] * 7, f'DISAGREES: {row.agreement}']
    low, high = row.quartiles or (None, None)
    of_dense = (None, None) if definition is None else _ratios(row, definition)
    return [
        *cells,
        format_number(row.median),
        f'{format_number(low)} to {format_number(high)}',
        format_number(row.time_ratio),
        format_number(of_dense[0]),
        '-' if row.memory_mb is None else f'{row.memory_mb:,.0f}',
        format_number(row.memory_ratio),
        format_number(of_dense[1]),
        row.agreement,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('path', nargs='?', type=Path, default=FULL)
    content = json.loads(parser.parse_args().path.read_text())
    rows = [Row(**row) for row in content['rows']]
    print(markdown(rows, content['growth']))


if __name__ == '__main__':
    main()
