"""Compare certified sums over all nodes with sums pair by pair: time, memory, error.

    python benchmark/certified.py
    python benchmark/certified.py --workloads pubmed-z clustered-100000@0.1 --scales 5

The script measures one noise-free sum of messages `X W`, the quadratic step of an
evaluation. `Budget(eval_tolerance=1e-3)` bounds its relative error and uses clusters
where their bounds are narrow. Workloads are those of `sharp.py`; `clustered-N@NOISE`
has clusters of another width. Up to 30,000 nodes the sum pair by pair is computed for
all targets; beyond, its time is predicted from some of them and marked with a tilde.
The error is the largest of these targets; the script fails if it exceeds the tolerance.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from embeddings import load, missing_reason, parse
from measure import interleave, peak_memory
from models import TAU
from record import environment, positive, write_json
from report import line, number
from sharp import MESSAGES, SIMILARITIES, make_similarity
from torch import Tensor
from tqdm import tqdm
from worker import ask

from torch_geometric_gsl import Budget, GumbelKNNSampler

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3
WORKLOADS = [
    *('citeseer-z', '20news-z', 'pubmed-z'),
    *(
        f'clustered-{size}@{noise}'
        for size in (20_000, 100_000)
        for noise in (0.1, 0.2)
    ),
    *('clustered-20000', 'noise-20000', 'clustered-1000000@0.1'),
]
SCALES = (1.0, 5.0, 20.0)
WHOLE_UP_TO, SOME = 30_000, 2_000
HEADER: tuple[str, ...] = ('workload', 'similarity', 'scale', 'certified [s]')
HEADER += ('pair by pair / certified', 'largest error', 'memory [MB]')


class Sum:
    """A sum for all or some targets, which keeps its last result."""

    def __init__(self, x: Tensor, name: str, scale: float, **options: Any) -> None:
        self.x: Any = x
        generator = torch.Generator().manual_seed(0)
        self.h = x @ torch.randn(x.size(1), MESSAGES, generator=generator)
        similarity = make_similarity(name, x.size(1))
        self.sampler = GumbelKNNSampler.paper(
            similarity, tau=TAU, scale=scale, **options
        )
        self.sampler.eval()
        self.out = self.h.new_empty(0)

    @torch.no_grad()
    def __call__(self) -> None:
        self.out = self.sampler.propagate(self.x, self.h)


def measure(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a workload."""
    torch.set_num_threads(request['threads'])
    x = load(request['workload'], request['seed'])[0]
    pairs = product(request['similarities'], request['scales'])
    return [describe(x, name, scale, request) for name, scale in pairs]


def describe(
    x: Tensor, name: str, scale: float, request: dict[str, Any]
) -> dict[str, Any]:
    """Measure one row."""
    own = Sum(x, name, scale, budget=Budget(eval_tolerance=TOLERANCE))
    exact = Sum(x, name, scale, budget=Budget(eval_pairs=2**62))
    size = x.size(0)
    some = torch.arange(size)
    if size > WHOLE_UP_TO:
        some = torch.arange(SOME) * size // SOME
        exact.x = (x, x[some])
    seconds = interleave({'own': own, 'exact': exact}, request['repeats'], 60.0)
    error = torch.linalg.vector_norm(own.out[some] - exact.out, dim=1)
    pairs = zip(seconds['exact'], seconds['own'], strict=True)
    ratio = statistics.median(a / b for a, b in pairs) * size / some.numel()
    row = {
        'workload': request['workload'],
        'similarity': name,
        'scale': scale,
        'seconds': seconds['own'],
        'time_ratio': ratio,
        'is_predicted': size > WHOLE_UP_TO,
        'error': float((error / torch.linalg.vector_norm(exact.out, dim=1)).amax()),
    }
    # Last: it changes the allocation of memory for the rest of the process.
    return row | {'memory_mb': peak_memory(own, warm_up=exact)}


def agrees(row: dict[str, Any]) -> bool:
    """Check that the error is below the tolerance, up to rounding."""
    return bool(row['error'] <= TOLERANCE * 1.01)


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [line(HEADER), line(['---'] * len(HEADER))]
    for row in rows:
        sign = '~' if row['is_predicted'] else ''
        memory = row['memory_mb']
        cells = [
            *(row['workload'], row['similarity'], f'{row["scale"]:g}'),
            number(statistics.median(row['seconds'])),
            f'{sign}{number(row["time_ratio"])}',
            f'{row["error"]:.1e}',
            '-' if memory is None else f'{memory:,.0f}',
        ]
        lines.append(line(cells))
    return '\n'.join(lines)


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, names = parser.add_argument, list(SIMILARITIES)
    add('--workloads', nargs='+', default=WORKLOADS, metavar='W')
    add('--similarities', nargs='+', choices=names, default=names[:2], metavar='S')
    add('--scales', nargs='+', type=float, default=[*SCALES])
    add('--repeats', type=positive, default=3)
    add('--threads', type=positive, default=torch.get_num_threads())
    add('--seed', type=int, default=0)
    add('--out', type=Path, default=HERE / 'results' / 'certified.json')
    args = parser.parse_args(argv)
    try:
        for name in args.workloads:
            parse(name)
    except ValueError as error:
        parser.error(str(error))
    if min(args.scales) <= 0:
        parser.error(f"'--scales' must be positive (got {args.scales})")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    about = environment(**{k: v for k, v in vars(args).items() if k != 'out'})
    rows: list[dict[str, Any]] = []
    for workload in tqdm(args.workloads):
        if reason := missing_reason(workload):
            print(f'{workload}: {reason}', file=sys.stderr)
            continue
        found, status = ask(measure, vars(args) | {'workload': workload})
        if found is None:
            sys.exit(f'{workload} ended with status {status}')
        rows += found
        write_json(args.out, about | {'rows': rows})
    print(f'{markdown(rows)}\n\nWritten: {args.out}')
    if not all(map(agrees, rows)):
        sys.exit('an error exceeds the tolerance')


if __name__ == '__main__':
    main()
