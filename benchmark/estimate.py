"""Compare estimated evaluation with the exact one: error, time and memory.

    python benchmark/estimate.py
    python benchmark/estimate.py --sizes 10000 30000 --repeats 7

The script measures one noise-free sum of messages over all nodes, the quadratic step
of an evaluation. Beyond `Budget.eval_pairs` a sampler estimates it from some of the
sources and announces the error. Up to 30,000 nodes the sum is computed exactly as
well, interleaved with the estimates: the table has the actual and the announced error,
and the time relative to the exact sum of the same run. The script fails if an actual
error differs from the announced one by more than a factor of 2.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from measure import ask, interleave, peak_memory, seconds_of
from record import at_least, environment, format_number, line, positive, write_json
from torch import Tensor
from tqdm import tqdm
from workloads import load

from torch_geometric_gsl import (
    Budget,
    GumbelKNNSampler,
    NeuralGaussianSimilarity,
    SampledEvaluationWarning,
)
from torch_geometric_gsl.nn.sampler.evaluation import LEAST_SAMPLES

HERE = Path(__file__).resolve().parent
SIZES, SAMPLES = (10_000, 30_000, 100_000, 1_000_000), (1_024, 8_192)
EXACT_UP_TO = 30_000
CHANNELS = 32
EXACT = 2**62
ANNOUNCED = re.compile(r'with an error of (\S+) ')
HEADER = (
    *('nodes', 'sources', 'time [s]', 'exact / estimated', 'memory [MB]'),
    *('announced error', 'actual error', 'size of the sums'),
)
ERRORS = ('announced_error', 'actual_error', 'size')


class Sum:
    """A sum, which keeps its last result and announced error."""

    def __init__(self, x: Tensor, h: Tensor, eval_pairs: int) -> None:
        torch.manual_seed(0)
        similarity = NeuralGaussianSimilarity(x.size(1), out_channels=h.size(1))
        budget = Budget(eval_pairs=eval_pairs)
        self.sampler = GumbelKNNSampler.paper(similarity, budget=budget)
        self.sampler.eval()
        self.x, self.h = x, h
        self.out = h.new_empty(0)
        self.error: float | None = None

    @torch.no_grad()
    def __call__(self) -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter('always', SampledEvaluationWarning)
            self.out = self.sampler.propagate(self.x, self.h)
        texts = [ANNOUNCED.search(str(warning.message)) for warning in seen]
        self.error = next((float(text[1]) for text in texts if text), None)


def measure(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure one size: return a row per number of sources."""
    size, seed = request['size'], request['seed']
    x = load(f'synthetic-{size}', seed).x
    generator = torch.Generator().manual_seed(seed)
    h = x @ torch.randn(x.size(1), CHANNELS, generator=generator) / x.size(1) ** 0.5
    counts = sorted(count for count in request['samples'] if count < size)
    limits = {count: count * size for count in counts}
    if size <= EXACT_UP_TO:
        limits[size] = EXACT
    sums = {count: Sum(x, h, limit) for count, limit in limits.items()}
    if size in sums:
        seconds = interleave({**sums}, request['repeats'], limit=math.inf)
    else:
        next(iter(sums.values()))()  # The smallest sum warms up for all of them.
        seconds = {count: [seconds_of(each)] for count, each in sums.items()}
    return [describe(size, count, sums, seconds) for count in sums]


def describe(
    size: int, count: int, sums: dict[int, Sum], seconds: dict[int, list[float]]
) -> dict[str, Any]:
    """Return one row, compared with the exact sum where it was computed."""
    summed = sums[count]
    row: dict[str, Any] = {
        'num_nodes': size,
        'num_sources': count,
        'seconds': seconds[count],
        'announced_error': summed.error,
        'size': root_mean_square(summed.out),
    }
    if size in sums and count != size:
        pairs = zip(seconds[size], seconds[count], strict=True)
        row['time_ratio'] = statistics.median(a / b for a, b in pairs)
        row['actual_error'] = root_mean_square(summed.out - sums[size].out)
    # Last: it changes the allocation of memory for the rest of the process.
    row['memory_mb'] = peak_memory(summed, warm_up=next(iter(sums.values())))
    return row


def root_mean_square(x: Tensor) -> float:
    return float(x.square().mean().sqrt())


def agrees(row: dict[str, Any]) -> bool:
    """Check the announced error, within a factor of 2 of the actual one if known."""
    actual = row.get('actual_error')
    return actual is None or 0.5 < actual / row['announced_error'] < 2


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [line(HEADER), line(['---'] * len(HEADER))]
    for row in rows:
        count, memory = row['num_sources'], row['memory_mb']
        cells = [
            f'{row["num_nodes"]:,}',
            'all' if count == row['num_nodes'] else f'{count:,}',
            format_number(statistics.median(row['seconds'])),
            format_number(row.get('time_ratio')),
            '-' if memory is None else f'{memory:,.0f}',
            *(format_number(row.get(name)) for name in ERRORS),
        ]
        lines.append(line(cells))
    return '\n'.join(lines)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, below = parser.add_argument, 'numbers of sources; a size uses those below it'
    add('--sizes', nargs='+', type=positive, default=[*SIZES])
    samples = at_least(LEAST_SAMPLES)  # An estimate is made of so many in any case.
    add('--samples', nargs='+', type=samples, default=[*SAMPLES], help=below)
    repeats = 'rounds where the exact sum is computed; else 1'
    add('--repeats', type=positive, default=3, help=repeats)
    add('--threads', type=positive, default=torch.get_num_threads())
    add('--seed', type=int, default=0)
    add('--out', type=Path, default=HERE / 'results' / 'estimate.json')
    args = parser.parse_args(argv)
    if min(args.sizes) <= min(args.samples):
        parser.error(
            f"'--sizes' must exceed the smallest of '--samples', {min(args.samples)} "
            f'(got {min(args.sizes)})'
        )
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    about = environment(**{k: v for k, v in vars(args).items() if k != 'out'})
    about['load_average'] = [os.getloadavg()[0]]
    rows: list[dict[str, Any]] = []
    for size in tqdm(args.sizes):
        request = vars(args) | {'size': size}
        measured_rows, status = ask(measure, request)
        if measured_rows is None:
            sys.exit(f'{size:,} nodes ended with status {status}')
        rows += measured_rows
        about['load_average'].append(os.getloadavg()[0])
        write_json(args.out, about | {'rows': rows})
    print(f'{markdown(rows)}\n\nWritten: {args.out}')
    if not all(map(agrees, rows)):
        sys.exit('an actual error is not of the size of the announced one')


if __name__ == '__main__':
    main()
