"""Time training steps that follow each other, beside one head of NodeFormer.

    python benchmark/consecutive.py citeseer pubmed synthetic-100000
    PYTHONPATH=../older:../older/paper python benchmark/consecutive.py citeseer

Each round runs some steps of a method one after another, as in training, then as many
of the other; times are processor seconds of one thread, and the ratio is the median of
the rounds. The package is the one that Python finds, so that an older version can be
measured in the same way.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from measure import make_step, seconds_of
from models import build
from workloads import load

METHODS, TASK = ('race', 'nodeformer-1'), 'forward+backward'


def measure(name: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a step of each method, by round."""
    workload = load(name, 0)
    count = max(1, 30_000 // workload.x.size(0))
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    steps = {
        method: make_step(build(method, 'full', workload, 0), workload, TASK)
        for method in METHODS
    }
    for number in range(rounds + 1):
        for method, step in steps.items():
            step()
            taken = seconds_of(lambda: [step() for _ in range(count)])  # noqa: B023
            if number > 0:
                found[method].append(taken / count)
    return found


if __name__ == '__main__':
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('workloads', nargs='+')
    parser.add_argument('--rounds', type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.workloads:
        own, other = measure(name, args.rounds).values()
        ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
        times = (statistics.median(part) for part in (own, other))
        print(name, *(f'{seconds:.4f} s' for seconds in times), f'ratio {ratio:.2f}')
