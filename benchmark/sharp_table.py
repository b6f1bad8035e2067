"""Print the table of sharp graphs, as Markdown, or as CSV for the documentation.

python benchmark/sharp_table.py
python benchmark/sharp_table.py benchmark/results/sharp_large.json
python benchmark/sharp_table.py benchmark/results/sharp*.json --csv --scales 1 10 40
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from record import format_number, line
from report import GROWTH_SIZES

RESULTS = Path(__file__).resolve().parent / 'results' / 'sharp.json'
# Within this factor, the noise of two measurements, methods are equally fast.
AS_FAST = 1.1
HEADER = (
    *('workload', 'nodes x channels', 'similarity', 'scale', 'plan of auto'),
    *('proposals', 'bounds [s]', 'auto [s]', 'race [s]', 'stream [s]', 'dense [s]'),
    *('stream / auto', 'auto is fastest', 'memory [MB]', 'z'),
)
# Columns that fit on a page.
SHOWN = (
    *('workload', 'similarity', 'scale', 'plan of auto', 'proposals', 'auto [s]'),
    *('stream / auto', 'auto is fastest', 'memory [MB]'),
)


def seconds(row: dict[str, Any], method: str) -> tuple[float | None, bool]:
    """Return the median or predicted seconds of a step, and whether it was measured."""
    timed = row.get('methods', {}).get(name_of(row, method), {})
    if timed.get('step'):
        return statistics.median(timed['step']), True
    return timed.get('predicted'), False


def name_of(row: dict[str, Any], method: str) -> str:
    """Return the method whose time applies: for 'auto' the race, if it selects it."""
    is_race = method == 'auto' and (row.get('plan') or {}).get('method') == 'race'
    return 'race' if is_race else method


def summarize(row: dict[str, Any]) -> dict[str, Any]:
    """Add whether 'auto' was the fastest, and its ratio to a stream.

    This requires a measured time of 'auto'; times of other methods may be predicted.
    """
    methods = row.get('methods', {})
    times = {name: seconds(row, name)[0] for name in methods if name != 'auto'}
    measured = {name: value for name, value in times.items() if value is not None}
    auto, is_measured = seconds(row, 'auto')
    if auto is None or not is_measured:
        return row
    fastest = min(measured, key=lambda name: measured[name])
    chosen_seconds = measured.get(row['plan']['method'], auto)
    row |= {
        'fastest': fastest,
        'is_fastest': chosen_seconds <= AS_FAST * measured[fastest],
    }
    if measured.get('stream') is not None:
        row['stream_ratio'] = measured['stream'] / auto
    return row


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the growth of a step of 'auto' from 100,000 to 1,000,000 nodes."""
    times: dict[tuple[str, str, float], dict[int, float]] = {}
    for row in rows:
        family, _, size = row['workload'].partition('-')
        noise = ''.join(size.partition('@')[1:])
        auto_seconds, is_measured = seconds(row, 'auto')
        if (
            family in ('clustered', 'noise')
            and auto_seconds is not None
            and is_measured
        ):
            key = f'{family}{noise}', row['similarity'], row['scale']
            times.setdefault(key, {})[row['num_nodes']] = auto_seconds
    small, large = GROWTH_SIZES
    return [
        dict(
            zip(('family', 'similarity', 'scale'), key, strict=True),
            ratio=by_size[large] / by_size[small],
        )
        for key, by_size in times.items()
        if small in by_size and large in by_size
    ]


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of the table; a tilde marks predicted times."""
    plan = row.get('plan') or {}
    race = row.get('methods', {}).get('race', {})
    timed = row.get('methods', {}).get(name_of(row, 'auto'), {})
    is_fastest = row.get('is_fastest')
    judged = 'yes' if is_fastest else f'no: {row.get("fastest")}'
    return [
        row['workload'],
        f'{row["num_nodes"]:,} x {row["channels"]:,}',
        row['similarity'],
        f'{row["scale"]:g}',
        plan.get('method') or race.get('skipped', 'DISAGREES'),
        format_number(row.get('race_proposals')),
        format_number(row.get('bounds_seconds')),
        *(_time(row, name) for name in ('auto', 'race', 'stream', 'dense')),
        format_number(row.get('stream_ratio')),
        '-' if is_fastest is None else judged,
        format_number(timed.get('memory_mb')),
        f'{row["z"]:.1f}',
    ]


def _time(row: dict[str, Any], method: str) -> str:
    value, is_measured = seconds(row, method)
    return ('' if value is None or is_measured else '~') + format_number(value)


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table, followed by the growth and how often 'auto' was fastest."""
    lines = [line(HEADER), line(['---'] * len(HEADER)), *(line(cells(r)) for r in rows)]
    return '\n'.join([*lines, '', *_texts(rows)])


def shown(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of the table in the documentation, as wide as a page."""
    places = [HEADER.index(name) for name in SHOWN]
    return [[row[i] for i in places] for row in [list(HEADER), *map(cells, rows)]]


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    judged = [row['is_fastest'] for row in rows if 'is_fastest' in row]
    texts = [f"'auto' took the fastest method in {sum(judged)} of {len(judged)} rows."]
    for entry in growth(rows):
        name = f'{entry["family"]}, {entry["similarity"]}, scale {entry["scale"]:g}'
        texts.append(f'Growth of {name}: {entry["ratio"]:.1f}-fold')
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('paths', nargs='*', type=Path, default=[RESULTS])
    parser.add_argument('--csv', action='store_true', help='for the documentation')
    parser.add_argument('--scales', nargs='+', type=float, help='only these')
    parser.add_argument('--similarities', nargs='+', help='only these')
    args = parser.parse_args()
    rows = [row for path in args.paths for row in json.loads(path.read_text())['rows']]
    if args.scales:
        rows = [row for row in rows if row['scale'] in args.scales]
    if args.similarities:
        rows = [row for row in rows if row['similarity'] in args.similarities]
    if args.csv:
        csv.writer(sys.stdout, lineterminator='\n').writerows(shown(rows))
    else:
        print(markdown(rows))


if __name__ == '__main__':
    main()
