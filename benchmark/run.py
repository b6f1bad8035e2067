"""Compare time and peak memory with plain and peer implementations.

    python benchmark/run.py
    python benchmark/run.py --quick
    python benchmark/run.py --workloads citeseer synthetic-30000 --repeats 9

Each workload runs in fresh processes. One checks the agreement of all implementations
and times them, interleaved round by round; all ratios of time come from this process.
Seconds are wall-clock time, with `--threads 1` processor time. One more process per
implementation measures its peak memory: the largest resident size that the kernel
recorded during a step minus the size before it. Real data is read from the folder of
raw files that the environment variable GSL_DATA names.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from models import IMPLEMENTATIONS, OURS, Limits
from record import environment, positive, write_json
from report import Row, bound, growth, make_rows, markdown
from tqdm import tqdm
from worker import KINDS, ask
from workloads import DEFAULT, QUICK, missing_reason, parse

HERE = Path(__file__).resolve().parent
# From 10,000 nodes on, methods that compute all pairs are skipped.
QUICK_LIMITS = Limits(dense_bytes=1.5e8, stream_pairs=2_000**2, training_nodes=300)


def workload_name(name: str) -> str:
    try:
        parse(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('--workloads', nargs='+', type=workload_name)
    add('--quick', action='store_true', help='small synthetic data, some minutes')
    repeats = 'rounds (7, quick: 3); fewer, but at least 3, if they take long'
    add('--repeats', type=positive, help=repeats)
    add('--threads', type=positive, default=torch.get_num_threads())
    add('--seed', type=int, default=0)
    add('--out', type=Path)
    args = parser.parse_args()
    name = 'quick' if args.quick else 'selection' if args.workloads else 'full'
    args.workloads = args.workloads or (QUICK if args.quick else DEFAULT)
    args.repeats = args.repeats or (3 if args.quick else 7)
    args.out = args.out or HERE / 'results' / f'{name}.json'
    return args


def measure(
    kind: str, request: dict[str, Any], failures: list[dict[str, str]]
) -> Any | None:
    """Run one worker; a failure is recorded and does not stop the others."""
    found, status = ask(KINDS[kind], request)
    if found is None:
        what = ' '.join([kind, request['workload'], request.get('implementation', '')])
        failures.append({'worker': what.strip(), 'status': str(status)})
    return found


def measure_workload(
    request: dict[str, Any], bar: tqdm, failures: list[dict[str, str]]
) -> tuple[list[Row], list[dict[str, Any]]]:
    """Time a workload, then measure the memory of the implementations that ran."""
    name = request['workload']
    bar.set_description(f'{name}, time')
    timed = measure('time', request, failures)
    if timed is None:
        return [], []
    memory: dict[tuple[str, str, str], float | None] = {}
    for implementation in IMPLEMENTATIONS['full']:
        own = [r for r in timed['rows'] if r['implementation'] == implementation]
        if any(row['seconds'] for row in own):
            bar.set_description(f'{name}, memory of {implementation}')
            of_one = request | {'implementation': implementation}
            for part in measure('memory', of_one, failures) or []:
                key = (part['variant'], part['task'], implementation)
                memory[key] = part['megabytes']
        bar.update(len(own))
    rows = make_rows(name, OURS, timed, memory)
    return rows, [bound(name, timed, rows)]


def main() -> None:
    args = parse_args()
    warnings.filterwarnings('ignore', 'Sparse CSR')
    options = {name: vars(args)[name] for name in ('seed', 'repeats', 'threads')}
    about, limits = environment(**options), QUICK_LIMITS if args.quick else Limits()
    rows: list[Row] = []
    bounds: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    absent: dict[str, str] = {}
    per_workload = 3 * sum(map(len, IMPLEMENTATIONS.values()))
    bar = tqdm(total=per_workload * len(args.workloads), unit='row')
    for name in args.workloads:
        if (reason := missing_reason(name)) is not None:
            absent[name] = reason
            tqdm.write(f'{name} is skipped: {reason}')
            bar.update(per_workload)
            continue
        request = options | {'workload': name, 'limits': limits}
        found, machine = measure_workload(request, bar, failures)
        rows += found
        bounds += machine
        content = about | {'rows': rows, 'growth': growth(rows), 'bounds': bounds}
        write_json(args.out, content | {'absent': absent, 'failures': failures})
    bar.close()
    print(markdown(rows, growth(rows), bounds))
    for failure in failures:
        print(f'\nFAILED: {failure["worker"]} ended with status {failure["status"]}')
    print(f'\nWritten: {args.out}')
    if failures or any(row.agrees is False for row in rows):
        sys.exit(1)


if __name__ == '__main__':
    main()
