"""Time training steps on sharp graphs, and whether 'auto' selects the fastest method.

    GSL_DATA=... python benchmark/sharp.py
    python benchmark/sharp.py --quick
    python benchmark/sharp.py --workloads clustered-10000 --scales 1 10 --limit 100

A row is a scale, a similarity and an embedding. Its step is `sampler.propagate`, the
sum of messages [N, 32] over the sampled graph, and its backward pass, for messages, the
scale, and the embeddings unless they are the features of the data. Each workload
runs in its own process. Before any timing, sums of the race are compared with those of
the definition on a subset. The time of a step is first predicted from some of the
targets. A step beyond the limit (for methods that 'auto' does not select, a tenth of
it) is not run, and the table has the prediction instead.
`python benchmark/sharp_table.py` prints the table.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from agreement import check_race
from measure import Step, ask, interleave, peak_memory, seconds_of
from models import TAU, K, Limits, skip_reason
from record import environment, positive, write_json
from sharp_table import growth, markdown, summarize
from torch import Tensor
from tqdm import tqdm
from workloads import (
    EMBEDDINGS,
    QUICK_EMBEDDINGS,
    load_embeddings,
    missing_reason,
    name_for,
    parse_embeddings,
)

from torch_geometric_gsl import GumbelKNNSampler, Similarity, resolve_similarity
from torch_geometric_gsl.nn.sampler import SamplingPlan
from torch_geometric_gsl.ops.envelope import find_nearest

HERE = Path(__file__).resolve().parent
SIMILARITIES: dict[str, tuple[str, dict[str, float]]] = {
    'bell': ('gaussian', {'b': 0.5, 'c': 0.05}),
    'cosine': ('linear', {}),
    'neural bell': ('neural_gaussian', {}),
}
SCALES = (1.0, 3.0, 5.0, 10.0, 20.0, 40.0)
# From this many nodes on, a few scales suffice to show the growth.
MANY_NODES, FEW_SCALES = 300_000, (1.0, 10.0, 40.0)
METHODS = ('race', 'stream', 'dense')
TASKS = ('forward', 'step')
MESSAGES = 32
# Proposals or candidates that a prediction draws.
PREDICTED_DRAWS, LEAST_TARGETS, HEAD = 2**21, 16, 64
# Fraction of the limit for each other method, and for all rounds together.
SHARE = 0.1


class Problem:
    """One row: embeddings, messages, and a sampler whose bounds all methods share."""

    def __init__(self, x: Tensor, is_learned: bool, name: str, scale: float) -> None:
        self.x = x.detach().requires_grad_(is_learned)
        generator = torch.Generator().manual_seed(0)
        h = torch.randn(x.size(0), MESSAGES, generator=generator)
        self.h = h.requires_grad_()
        self.similarity = make_similarity(name, x.size(1))
        self.scale = scale
        self.sampler = self.new_sampler()

    def new_sampler(self) -> GumbelKNNSampler:
        """Build a sampler without bounds, whose scale is a parameter."""
        options: dict[str, Any] = {'scale': self.scale, 'train_scale': True}
        return GumbelKNNSampler.paper(self.similarity, K, TAU, **options)

    def with_targets(self, count: int) -> tuple[Tensor, Tensor]:
        """Return all sources with some of the targets."""
        every = torch.arange(count) * self.x.size(0) // count
        return self.x, self.x[every].detach()

    def step(self, method: str, task: str, count: int | None = None) -> Step:
        """Return a forward pass or a step, for all or some targets."""
        leaves = [self.h, self.x, *self.sampler.parameters()]

        def step() -> None:
            self.sampler.method = method
            x = self.x if count is None else self.with_targets(count)
            out = self.sampler.propagate(x, self.h)
            if task == 'step':
                out.square().mean().backward()
                for leaf in leaves:
                    leaf.grad = None

        return step

    @torch.no_grad()
    def plan(self, method: str, count: int | None = None) -> SamplingPlan:
        self.sampler.method = method
        return self.sampler.plan(self.x if count is None else self.with_targets(count))


def make_similarity(name: str, channels: int) -> Similarity:
    torch.manual_seed(0)
    similarity_name, options = SIMILARITIES.get(name, (name, {}))
    return resolve_similarity(similarity_name, channels, **options)


def predict(problem: Problem, method: str) -> tuple[float, float]:
    """Predict the seconds of a step and of finding lists from some of the targets."""
    size = problem.x.size(0)
    draws, search = float(size), 0.0
    if method == 'race':
        plan = problem.plan(method, LEAST_TARGETS)
        draws = plan.num_proposals or draws
        if 'head' in plan.reason:
            search = predict_search(problem)
    many = int(PREDICTED_DRAWS / (K * draws))
    many = max(4 * LEAST_TARGETS, min(many, size))
    counts = [many // 4, many] if many < size else [size]
    steps = [problem.step(method, 'step', count) for count in counts]
    for step in steps:  # Compiles, and finds bounds.
        step()
    seconds = [min(seconds_of(step) for _ in range(2)) for step in steps]
    if len(counts) == 1:
        return seconds[0], search
    slope = max(0.0, (seconds[1] - seconds[0]) / (counts[1] - counts[0]))
    return seconds[1] + slope * (size - counts[1]), search


@torch.no_grad()
def predict_search(problem: Problem) -> float:
    """Predict the seconds of finding nearest-neighbour lists of all targets."""
    pairs = problem.similarity.pair_scores(problem.with_targets(4 * LEAST_TARGETS))
    size = problem.x.size(0)
    seconds = min(seconds_of(lambda: find_nearest(pairs, HEAD)) for _ in range(2))
    return seconds * size / pairs.dst.size(0)


def measure_row(problem: Problem, request: dict[str, Any]) -> dict[str, Any]:
    """Predict the time of each method, plan, and time methods within the limit."""
    size, limit = problem.x.size(0), request['limit']
    results: dict[str, dict[str, Any]] = {}
    for method in METHODS:
        result = results.setdefault(method, {})
        reason = skip_reason(method, 'full', 'step', size, Limits())
        if method == 'dense' and reason is not None:
            result['skipped'] = reason
        elif method != 'dense':  # 'dense' is limited by its memory alone.
            result['predicted'], search = predict(problem, method)
            if search > limit:
                result['skipped'] = f'its lists take about {search:.0f} s'
    row: dict[str, Any] = {'methods': results, 'plan': None}
    lacks_lists = 'its lists' in results['race'].get('skipped', '')
    if not lacks_lists:  # 'auto' would search for lists as well.
        row |= plan_row(problem)
    auto_method = None if row['plan'] is None else row['plan']['method']
    if auto_method is not None and auto_method != 'race':
        # 'auto' adds planning to the method that it selects.
        results['auto'] = {'predicted': results[auto_method].get('predicted', 0.0)}
    for method, result in results.items():
        longest = limit if method in ('auto', auto_method) else SHARE * limit
        if 'skipped' not in result and result.get('predicted', 0.0) > longest:
            result['skipped'] = f'a step takes about {result["predicted"]:.0f} s'
    time_row(problem, results, request['repeats'], SHARE * limit)
    return row


def plan_row(problem: Problem) -> dict[str, Any]:
    """Return the plan of 'auto' and of the race, and the seconds of finding bounds."""
    problem.sampler = problem.new_sampler()
    bounds = seconds_of(lambda: problem.plan('race'))
    again = seconds_of(lambda: problem.plan('race'))
    plan, race = problem.plan('auto'), problem.plan('race')
    return {
        'plan': plan._asdict(),
        'race_proposals': race.num_proposals,
        'bounds_seconds': max(0.0, bounds - again),
    }


def warm_up(step: Step, predicted: float) -> float:
    """Run a step until it no longer compiles, and return its seconds."""
    for _ in range(3):
        taken = seconds_of(step)
        if taken < 2 * predicted:
            break
    return taken


def time_row(
    problem: Problem, results: dict[str, dict[str, Any]], repeats: int, limit: float
) -> None:
    """Time methods that are not skipped, interleaved; fewer rounds if they are long."""
    steps: dict[tuple[str, str], Step] = {}
    total = 0.0
    for method, result in results.items():
        if 'skipped' in result:
            continue
        taken = warm_up(problem.step(method, 'step'), result.get('predicted', 0.0))
        for task in TASKS[1:] if taken > limit else TASKS:
            steps[method, task] = problem.step(method, task)
            total += taken
    rounds = max(1, min(repeats, int(limit / total))) if total else 1
    # Each round collects garbage; without `freeze` it would scan all compiled code.
    gc.collect()
    gc.freeze()
    seconds = interleave(steps, rounds, limit, is_warm=True)
    for (method, task), taken_by_round in seconds.items():
        results[method][task] = taken_by_round


def measure(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a workload."""
    warnings.simplefilter('ignore')
    x, is_learned = load_embeddings(request['workload'], request['seed'])
    rows, problems = [], []
    about = {'workload': request['workload']}
    about |= {'num_nodes': x.size(0), 'channels': x.size(1)}
    for name, scale in product(request['similarities'], request['scales']):
        agreement = check_race(
            x, make_similarity(name, x.size(1)), scale, request['seed']
        )
        row = about | {'similarity': name, 'scale': scale} | agreement
        problem = Problem(x, is_learned, name, scale)
        if row['agrees']:
            row |= measure_row(problem, request)
        rows.append(row)
        problems.append(problem)
    # Last: it changes the allocation of memory for the rest of the process.
    for row, problem in zip(rows, problems, strict=True):
        for method, result in row.get('methods', {}).items():
            if 'step' in result:
                step = problem.step(method, 'step')
                result['memory_mb'] = peak_memory(step, warm_up=lambda: None)
    return [summarize(row) for row in rows]


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, few = parser.add_argument, ' '.join(f'{scale:g}' for scale in FEW_SCALES)
    add('--workloads', nargs='+', type=name_for(parse_embeddings))
    add('--quick', action='store_true', help='small synthetic data, about a minute')
    default = f'all of them; {few} from {MANY_NODES:,} nodes on and if quick'
    add('--scales', nargs='+', type=float, help=default)
    names = list(SIMILARITIES)
    add('--similarities', nargs='+', choices=names, default=names)
    repeats = 'rounds (3); fewer if they take long'
    add('--repeats', type=positive, default=3, help=repeats)
    add('--threads', type=positive, default=torch.get_num_threads())
    add('--seed', type=int, default=0)
    limit = 'seconds beyond which steps and lists are only predicted (30)'
    add('--limit', type=float, default=30.0, help=limit)
    add('--out', type=Path)
    args = parser.parse_args(argv)
    if min([args.limit, *(args.scales or [])]) <= 0:
        parser.error(
            f"'--limit' and '--scales' must be positive (got {args.limit} and "
            f'{args.scales})'
        )
    args.workloads = args.workloads or (QUICK_EMBEDDINGS if args.quick else EMBEDDINGS)
    name = 'sharp_quick' if args.quick else 'sharp'
    args.out = args.out or HERE / 'results' / f'{name}.json'
    return args


def scales_of(workload: str, args: argparse.Namespace) -> list[float]:
    """Return the given scales; by default few if the workload is large or quick."""
    is_few = args.quick or parse_embeddings(workload)[1] >= MANY_NODES
    return args.scales or [*(FEW_SCALES if is_few else SCALES)]


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    names = 'seed', 'repeats', 'threads', 'limit', 'similarities'
    options = {name: vars(args)[name] for name in names}
    about = environment(**options)
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    absent: dict[str, str] = {}
    bar = tqdm(args.workloads)
    for workload in bar:
        bar.set_description(workload)
        if (reason := missing_reason(parse_embeddings(workload)[0])) is not None:
            absent[workload] = reason
            continue
        request = options | {'workload': workload, 'scales': scales_of(workload, args)}
        measured_rows, status = ask(measure, request)
        if measured_rows is None:
            failures.append({'worker': workload, 'status': str(status)})
        rows += measured_rows or []
        content = about | {'rows': rows, 'growth': growth(rows)}
        write_json(args.out, content | {'absent': absent, 'failures': failures})
    print(f'{markdown(rows)}\n\nWritten: {args.out}')
    for text in [*absent.items(), *failures]:
        print(f'NOT MEASURED: {text}')
    if failures or not all(row['agrees'] for row in rows):
        sys.exit(1)


if __name__ == '__main__':
    main()
