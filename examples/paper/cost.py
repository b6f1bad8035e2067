"""Table 4: time and memory of one epoch on CiteSeer.

    python examples/paper/cost.py

All methods are timed in one process, interleaved round by round; the peak memory of
each is found in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from command import add_threads, positive, told_plainly
from files import read_kept, write_json
from grid import Entry, Grid
from methods import METHODS, build
from published import COSTS
from settings import make_config
from shared import environment, interleave, peak_memory
from torch_geometric.data import Data
from training import optimizer_of
from tuned import RESULTS

from torch_geometric_gsl.datasets import load_dataset, paper_split

NAME = 'cost'
# The paper's rows and two controls.
ROWS = (*COSTS, 'mlp', 'knn_gcn_root')
SECONDS = 120.0


def epoch(
    method: str, data: Data, watch: Callable[[float], None] = lambda loss: None
) -> Callable[[], None]:
    """An epoch of training by the setting of Table 1."""
    config = make_config('CiteSeer', method, seed=0)
    torch.manual_seed(0)
    model = build(config, data, int(data.y.max()) + 1).train()
    optimizer = optimizer_of(model, config)

    def step() -> None:
        optimizer.zero_grad()
        loss = model.loss(data.x, data.y, data.train_mask)
        loss.backward()
        optimizer.step()
        watch(loss.item())

    return step


def load() -> Data:
    warnings.filterwarnings('ignore', 'Sparse CSR')
    return paper_split(load_dataset('CiteSeer'), seed=0)


def peak(method: str, data: Data) -> float | None:
    """Megabytes above the data: parameters, gradients, optimizer, and the epoch's own.

    It is a later epoch's: the first one searches the neighbours that the others use.
    """
    steps: list[Callable[[], None]] = []

    def start() -> None:
        steps.append(epoch(method, data))
        steps[0]()

    def warm_up() -> None:
        epoch(method, data)()

    return peak_memory(lambda: steps[0](), warm_up, start)


def memory_of(method: str) -> float | None:
    """Measured by a fresh process, which knows nothing of the other methods."""
    threads = str(torch.get_num_threads())
    words = [sys.executable, __file__, '--memory', method, '--threads', threads]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: float | None = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(repeats: int) -> dict[str, Any]:
    data = load()
    steps = {method: epoch(method, data) for method in ROWS}
    seconds = interleave(steps, repeats, SECONDS)
    about = environment(threads=torch.get_num_threads(), repeats=repeats)
    rows = {
        method: {
            'seconds': statistics.median(seconds[method]),
            'quartiles': statistics.quantiles(seconds[method], n=4)[::2],
            'megabytes': memory_of(method),
        }
        for method in ROWS
    }
    return {'environment': about, 'rows': rows}


def cost_grid(root: Path) -> Grid:
    """The table, from what was measured last."""
    found = read_kept(root / f'{NAME}.json') or {'rows': {}}
    rows = []
    for method, row in found['rows'].items():
        printed = [f'paper: {value}' for value in COSTS.get(method, ())] or ['', '']
        memory = '' if row['megabytes'] is None else f'{row["megabytes"]:.0f}'
        low, high = row['quartiles']
        ours = (f'{row["seconds"]:.3f} ({low:.3f} to {high:.3f})', memory)
        entries = [Entry(*pair) for pair in zip(ours, printed, strict=True)]
        rows.append((METHODS[method].title, entries))
    threads = found.get('environment', {}).get('threads')
    note = (
        'One epoch of training on CiteSeer, median (quartiles), CPU threads: '
        f'{threads}, peak MB above the data, with model and optimizer; below it what '
        'the paper prints for an RTX 3090. The epochs are the first ones: without '
        'evaluation, and without the search of nearest neighbours, which all later '
        'ones share. IDGL iterates more or less often as training goes on.'
    )
    return Grid(['', 'seconds', 'MB'], rows, [note])


@told_plainly
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--memory', choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument('--repeats', type=positive, default=9)
    parser.add_argument('--results', type=Path, default=RESULTS)
    add_threads(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.repeats < 2:
        parser.error('--repeats must be at least 2 (got 1)')
    if args.memory is not None:
        print(json.dumps(peak(args.memory, load())))
        return
    write_json(args.results / f'{NAME}.json', measure(args.repeats))
    print(cost_grid(args.results).render('markdown'))


if __name__ == '__main__':
    main()
