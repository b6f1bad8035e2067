"""Measure time and memory of one epoch on CiteSeer: Table 4.

    python paper/cost.py

All methods are timed in one process, interleaved round by round. Memory is the peak
size of all live tensors, which is the same on every machine.
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from torch_geometric.data import Data

from reproduction.command import add_threads, make_parser, told_plainly
from reproduction.datasets import load_dataset, paper_split
from reproduction.experiments import make_config
from reproduction.files import write_json
from reproduction.formats import text_of
from reproduction.record import environment, positive
from reproduction.settings import RESULTS
from reproduction.summary import COSTS
from reproduction.tables import COST, cost_grid
from reproduction.training import build, optimizer_of

#: The paper's rows and two controls.
ROWS = (*COSTS, 'mlp', 'knn_gcn_root')
Step = Callable[[], None]


def epoch(
    method: str, data: Data, watch: Callable[[float], None] = lambda loss: None
) -> Step:
    """Return a function that trains one epoch with the setting of Table 1."""
    config = make_config('CiteSeer', method, seed=0)
    torch.manual_seed(0)
    model = build(config, data).train()
    optimizer = optimizer_of(model, config)

    def step() -> None:
        optimizer.zero_grad()
        loss = model.loss(data['x'], data['y'], data['train_mask'])
        loss.backward()
        optimizer.step()
        watch(loss.item())

    return step


def load() -> Data:
    warnings.filterwarnings('ignore', 'Sparse CSR')
    return paper_split(load_dataset('CiteSeer'), seed=0)


def interleave(steps: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Time each step in each round; the first round does not count.

    A round starts one step later than the previous one, so that a slow phase of the
    machine affects all steps.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(repeats + 1):
        offset = turn % len(names)
        for name in names[offset:] + names[:offset]:
            gc.collect()
            start = time.perf_counter()
            steps[name]()
            if turn > 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def peak(method: str, data: Data) -> float:
    """Measure the peak megabytes of tensors above the data in a later epoch.

    Parameters, gradients and the optimizer's state count. The first epoch does not: it
    searches the neighbours that later epochs use.
    """
    epoch(method, data)()  # Creates the cached tables that all models share.
    steps: list[Step] = []

    def start() -> None:
        steps.append(epoch(method, data))
        steps[0]()
        gc.collect()

    live, _ = _allocated(start)
    _, highest = _allocated(steps[0])
    return (live + highest) / 1e6


def _allocated(run: Step) -> tuple[int, int]:
    """Return the bytes of tensors after a function has run, and those at its peak."""
    activities = [ProfilerActivity.CPU]
    with profile(
        activities=activities, profile_memory=True, acc_events=True
    ) as session:
        run()
    assert session.profiler is not None
    events = session.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == '[memory]']
    live = highest = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    return live, highest


@told_plainly()
def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument('--repeats', type=positive, default=9)
    parser.add_argument('--results', type=Path, default=RESULTS)
    add_threads(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.repeats < 2:
        parser.error('--repeats must be at least 2 (got 1)')
    data = load()
    steps = {method: epoch(method, data) for method in ROWS}
    seconds = interleave(steps, args.repeats)
    rows = {
        method: {
            'seconds': statistics.median(seconds[method]),
            'quartiles': statistics.quantiles(seconds[method], n=4)[::2],
            'megabytes': peak(method, data),
        }
        for method in ROWS
    }
    about = environment(threads=args.threads, repeats=args.repeats)
    write_json(args.results / COST, {'environment': about, 'rows': rows})
    print(text_of(cost_grid(args.results), 'markdown'))
