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
import gc
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from agreement import check
from measure import TASKS, Step, ask, interleave, make_step, peak_memory
from models import IMPLEMENTATIONS, OURS, Limits, build, plain_name, skip_reason
from record import environment, positive, write_json
from report import Row, growth, make_rows, markdown
from tqdm import tqdm
from workloads import DEFAULT, QUICK, Workload, load, missing_reason, name_for, parse

HERE = Path(__file__).resolve().parent
# From 10,000 nodes on, methods that compute all pairs are skipped.
QUICK_LIMITS = Limits(dense_bytes=1.5e8, stream_pairs=2_000**2, training_nodes=300)


def tasks_of(
    implementation: str, variant: str, workload: Workload, limits: Limits
) -> tuple[list[str], dict[str, str]]:
    """Return the tasks that are measured, and why the others are not."""
    size = workload.x.size(0)
    reasons = {t: skip_reason(implementation, variant, t, size, limits) for t in TASKS}
    skipped = {task: reason for task, reason in reasons.items() if reason is not None}
    return [task for task in TASKS if task not in skipped], skipped


def time_workload(request: dict[str, Any]) -> dict[str, Any]:
    """Check and time every implementation."""
    workload = load(request['workload'], request['seed'])
    result: dict[str, Any] = {
        'num_nodes': workload.x.size(0),
        'rows': [],
    }
    for variant in IMPLEMENTATIONS:
        result['rows'] += time_variant(variant, workload, request)
        gc.collect()
    return result


def time_variant(
    variant: str, workload: Workload, request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure the full graph or transition nodes."""
    seed, limits = request['seed'], request['limits']
    rows: list[dict[str, Any]] = []
    steps: dict[tuple[str, str], Step] = {}
    shared = None
    for name in IMPLEMENTATIONS[variant]:
        tasks, skipped = tasks_of(name, variant, workload, limits)
        common: dict[str, Any] = {'variant': variant, 'implementation': name}
        rows += [common | {'task': t, 'skipped': skipped[t]} for t in skipped]
        if not tasks:
            continue
        agrees, detail = check(name, variant, workload, seed, limits.training_nodes)
        common |= {'agrees': agrees, 'agreement': detail}
        rows += [common | {'task': task} for task in tasks]
        if not agrees:
            continue
        model = build(name, variant, workload, seed)
        if not name.startswith('nodeformer-'):
            shared = share_parameters(model, shared)
        steps |= {(name, task): make_step(model, workload, task) for task in tasks}
    seconds = interleave(steps, request['repeats'], limits.seconds)
    for row in rows:
        row['seconds'] = seconds.get((row['implementation'], row['task']))
    return rows


def share_parameters(
    model: torch.nn.Module, state: dict[str, Any] | None
) -> dict[str, Any]:
    """Share the tensors of the first graph model: those of -T are large."""
    names = {plain_name(name): name for name in model.state_dict()}
    if state is not None:
        shared = {name: state[plain] for plain, name in names.items()}
        model.load_state_dict(shared, assign=True)
    tensors = model.state_dict()
    return {plain: tensors[name] for plain, name in names.items()}


def memory(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure the peak memory of the tasks of one implementation."""
    workload = load(request['workload'], request['seed'])
    name, rows = request['implementation'], []
    for variant, names in IMPLEMENTATIONS.items():
        if name not in names:
            continue
        tasks, _ = tasks_of(name, variant, workload, request['limits'])
        if not tasks:
            continue
        model = build(name, variant, workload, request['seed'])
        for task in tasks:
            megabytes = peak_memory(make_step(model, workload, task))
            rows.append({'variant': variant, 'task': task, 'megabytes': megabytes})
        del model
    return rows


KINDS = {'time': time_workload, 'memory': memory}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('--workloads', nargs='+', type=name_for(parse))
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
    task: str, request: dict[str, Any], failures: list[dict[str, str]]
) -> Any | None:
    """Run one worker; a failure is recorded and does not stop the others."""
    measured_rows, status = ask(KINDS[task], request)
    if measured_rows is None:
        label = ' '.join([task, request['workload'], request.get('implementation', '')])
        failures.append({'worker': label.strip(), 'status': str(status)})
    return measured_rows


def measure_workload(
    request: dict[str, Any], bar: tqdm, failures: list[dict[str, str]]
) -> list[Row]:
    """Time a workload, then measure the memory of the implementations that ran."""
    name = request['workload']
    bar.set_description(f'{name}, time')
    timed = measure('time', request, failures)
    if timed is None:
        return []
    memory: dict[tuple[str, str, str], float | None] = {}
    for implementation in IMPLEMENTATIONS['full']:
        measured = [r for r in timed['rows'] if r['implementation'] == implementation]
        if any(row['seconds'] for row in measured):
            bar.set_description(f'{name}, memory of {implementation}')
            of_one = request | {'implementation': implementation}
            for usage in measure('memory', of_one, failures) or []:
                key = (usage['variant'], usage['task'], implementation)
                memory[key] = usage['megabytes']
        bar.update(len(measured))
    return make_rows(name, OURS, timed, memory)


def main() -> None:
    args = parse_args()
    warnings.filterwarnings('ignore', 'Sparse CSR')
    options = {name: vars(args)[name] for name in ('seed', 'repeats', 'threads')}
    about, limits = environment(**options), QUICK_LIMITS if args.quick else Limits()
    rows: list[Row] = []
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
        rows += measure_workload(request, bar, failures)
        content = about | {'rows': rows, 'growth': growth(rows)}
        write_json(args.out, content | {'absent': absent, 'failures': failures})
    bar.close()
    print(markdown(rows, growth(rows)))
    for failure in failures:
        print(f'\nFAILED: {failure["worker"]} ended with status {failure["status"]}')
    print(f'\nWritten: {args.out}')
    if failures or any(row.agrees is False for row in rows):
        sys.exit(1)


if __name__ == '__main__':
    main()
