"""Predict numbers and classes of tables, by learned graphs and by usual methods.

    python paper/run.py tables
    python paper/run.py tables --tables california pol --methods ours lightgbm
    python paper/run.py tables --splits 0 place --trials 10 --threads 2
    python paper/run.py tables --report runs/tables

All methods see the same splits: ten at random (64 % of the rows for training, 16 % for
validation, 20 % for test), by place with whole regions held out, by time with the last
fifth for test. Validation rows stop the training and select settings, and only the
selected one is tested. Each unit runs in its own process, which measures its memory.
Finished units are stored in `<results>/tables/`; a restarted run continues with the
missing ones, and two commands share them.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

from reproduction.command import add_threads, make_parser
from reproduction.record import positive
from reproduction.settings import RESULTS
from reproduction.tables_data import SOURCES, SPLITS, problem, score, split
from reproduction.tables_methods import METHODS, SETTING, TRIALS, fit, obstacle, search
from reproduction.tables_neighbours import Options
from reproduction.tables_store import Result, Run, TableResults, complete, unit_folder


def execute(
    run: Run, setting: dict[str, Any], trials: int, threads: int, root: Path
) -> Result:
    """Execute a unit, and return its result."""
    from threadpoolctl import threadpool_limits

    source, method = SOURCES[run.table], METHODS[run.method]
    table = source.read()
    rows = split(table, source, run.split)
    seen, y_test = problem(table, source, rows)
    options = Options(run.seed, threads, setting)
    choice = {}
    before = _megabytes()
    with threadpool_limits(threads):
        clock = [time.perf_counter()]
        if method.is_tuned:
            path = unit_folder(root, run) / 'trials.json'
            choice = search(seen, method, options, trials, path)
        clock.append(time.perf_counter())
        fitted = fit(seen, method, choice, options)
        clock.append(time.perf_counter())
        prediction = fitted.predict(seen.x[2])
        clock.append(time.perf_counter())
    num_classes = seen.num_classes
    val = fitted.val
    seconds = [round(b - a, 3) for a, b in itertools.pairwise(clock)]
    return {
        'val': None if val is None else score(seen.y[1], val, num_classes),
        'test': score(y_test, prediction, num_classes),
        'deviation': None if num_classes else float(table.y.std()),
        'choice': fitted.choice,
        'trials': trials if method.is_tuned else None,
        'rows': [len(indices) for indices in rows],
        'seconds': dict(zip(('search', 'fit', 'predict'), seconds, strict=True)),
        'megabytes': {'before': before, 'peak': _megabytes()},
    }


def _megabytes() -> float:
    """Return the peak memory of the process."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def units(args: argparse.Namespace) -> list[Run]:
    """List the selected units: all methods of a split before the next split."""
    return [
        Run(table, method, name)
        for name in args.splits
        for method in args.methods
        for table in args.tables
        if name in SOURCES[table].splits() and obstacle(table, method) is None
    ]


def parse_args(arguments: list[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.prog = 'run.py tables'
    add = parser.add_argument
    lists = {'tables': [*SOURCES], 'methods': [*METHODS], 'splits': [*SPLITS]}
    for option, names in lists.items():
        selection: dict[str, Any] = {'choices': names, 'default': names}
        add(f'--{option}', nargs='+', metavar=option[0].upper(), **selection)
    add('--trials', type=positive, default=TRIALS, help=f'per search ({TRIALS})')
    add('--jobs', type=positive, default=1, help='units at the same time (1)')
    add_threads(parser)
    add('--results', type=Path, default=RESULTS)
    add('--report', type=Path, metavar='FOLDER', help='only write tables to it')
    args = parser.parse_args(arguments)
    for option in lists:
        setattr(args, option, [*dict.fromkeys(getattr(args, option))])
    return args


def main(arguments: list[str] | None = None, setting: dict[str, Any] = SETTING) -> None:
    args = parse_args(arguments)
    if args.report:
        # It imports the code of all tables of the documentation.
        from reproduction.tables_grids import write_report

        write_report(args.results, args.report)
        return
    results = {
        name: TableResults(args.results, name, setting, METHODS, args.threads)
        for name in args.tables
    }
    for table_results in results.values():
        table_results.check_trials(args.methods, args.trials)
    absent = {m: obstacle(args.tables[0], m) for m in args.methods}
    for name, reason in absent.items():
        if reason and METHODS[name].library:
            print(f'{name} is skipped: {reason}')
    task = partial(
        execute,
        setting=setting,
        trials=args.trials,
        threads=args.threads,
        root=args.results,
    )
    if failures := complete(units(args), results, task, args.jobs, args.threads):
        raise SystemExit(
            f'{failures} units failed: error.txt in their folders says why'
        )
