"""Run one measurement in its own process.

`time` checks the agreement of all implementations of a workload and then times those
that agree, interleaved round by round. `memory` measures the peak memory of one
implementation in a process that runs no other.
"""

from __future__ import annotations

import gc
import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from agreement import check
from measure import TASKS, Step, interleave, make_step, peak_memory, speeds, traffic
from models import IMPLEMENTATIONS, OURS, Limits, build, skip_reason
from plain import plain_name
from workloads import Workload, load

from torch_geometric_gsl import GSLNet


def tasks_of(
    implementation: str, variant: str, workload: Workload, limits: Limits
) -> tuple[list[str], dict[str, str]]:
    """Return the tasks that are measured, and why the others are not."""
    size = workload.x.size(0)
    reasons = {t: skip_reason(implementation, variant, t, size, limits) for t in TASKS}
    skipped = {task: reason for task, reason in reasons.items() if reason is not None}
    return [task for task in TASKS if task not in skipped], skipped


def time_workload(request: dict[str, Any]) -> dict[str, Any]:
    """Check and time every implementation, and measure the machine's speed."""
    workload = load(request['workload'], request['seed'])
    result: dict[str, Any] = {
        'num_nodes': workload.x.size(0),
        **speeds(workload.x.size(0)),
        'bound': {},
        'rows': [],
    }
    for variant in IMPLEMENTATIONS:
        rows, moved = time_variant(variant, workload, request)
        result['rows'] += rows
        result['bound'] |= moved
        gc.collect()
    return result


def time_variant(
    variant: str, workload: Workload, request: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Measure the full graph or transition nodes; return rows and the bound of ours."""
    seed, limits = request['seed'], request['limits']
    rows: list[dict[str, Any]] = []
    steps: dict[tuple[str, str], Step] = {}
    moved: dict[str, float] = {}
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
        if name == OURS and variant == 'full' and isinstance(model, GSLNet):
            moved = traffic(model, workload.x.size(0))
        if not name.startswith('nodeformer-'):
            shared = share_parameters(model, shared)
        steps |= {(name, task): make_step(model, workload, task) for task in tasks}
    seconds = interleave(steps, request['repeats'], limits.seconds)
    for row in rows:
        row['seconds'] = seconds.get((row['implementation'], row['task']))
    return rows, moved


def share_parameters(
    model: torch.nn.Module, state: dict[str, Any] | None
) -> dict[str, Any]:
    """Share the tensors of the first graph model: those of -T are large."""
    names = {plain_name(name): name for name in model.state_dict()}
    if state is not None:
        own = {name: state[plain] for plain, name in names.items()}
        model.load_state_dict(own, assign=True)
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


def answer(
    function: Callable[[dict[str, Any]], Any],
    request: dict[str, Any],
    connection: Connection,
) -> None:
    """Run one request and send its result."""
    warnings.filterwarnings('ignore', 'Sparse (CSR|invariant)')
    torch.set_num_threads(request['threads'])
    connection.send(function(request))


def ask(
    function: Callable[[dict[str, Any]], Any], request: dict[str, Any]
) -> tuple[Any | None, int]:
    """Run a request in a fresh process; return its result, if any, and exit status."""
    context = multiprocessing.get_context('forkserver')
    # Imported once, by the server process from which all others are forked. Not our
    # package: the server would search for it in the working directory first.
    context.set_forkserver_preload(['torch_geometric'])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(function, request, sender))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:  # The process ended without a result.
        found = None
    process.join()
    return found, process.exitcode or 0
