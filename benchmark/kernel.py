"""Measure training steps whose races run in C++, and by their definition in PyTorch.

    python benchmark/kernel.py
    python benchmark/kernel.py --rows clustered-100000@0.1/bell/5 --repeats 5

A row is a workload of `embeddings.py`, a similarity and a scale of `sharp.py`, and its
step the sum of 32 messages over the graph that is drawn, with the backward pass. Both
draw the same random words: before any timing the graphs of one seed are compared. Times
are processor seconds of all threads, in rounds that take one of each; the last column
is the time of C++ in a proposal, that of the bounds and of the sums included.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from embeddings import load
from models import K
from record import environment, positive, write_json
from report import line, number
from sharp import Problem

from torch_geometric_gsl.ops import race_block

HERE = Path(__file__).resolve().parent
ROWS = (
    *('noise-100000/cosine/1', 'clustered-100000@0.1/bell/5'),
    *('clustered-100000/cosine/10', 'clustered-100000/bell/10'),
    *('noise-1000000/cosine/1', 'clustered-1000000@0.1/bell/5'),
)
HEADER = ('row', 'proposals', 'PyTorch [s]', 'C++ [s]', 'ratio', 'differ', 'ns')


@contextmanager
def definition() -> Iterator[None]:
    """Let PyTorch run races."""
    with mock.patch.object(race_block, 'find_library', return_value=None):
        yield


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Return the processor seconds of steps, and the share of edges that differ."""
    workload, similarity, scale = name.split('/')
    x, is_learned = load(workload, 0)
    problem = Problem(x, is_learned, similarity, float(scale))
    step = problem.step('race', 'step')
    seconds: dict[str, list[float]] = {'PyTorch': [], 'C++': []}
    differ = difference(problem)
    for turn in range(repeats + 1):
        for kind, taken in seconds.items():
            begin = time.process_time()
            if kind == 'C++':
                step()
            else:
                with definition():
                    step()
            if turn > 0:  # The first compiles, and finds bounds.
                taken.append(time.process_time() - begin)
    plain, quick = (statistics.median(taken) for taken in seconds.values())
    proposals = problem.plan('race').num_proposals or 0.0
    return {
        'row': name,
        'proposals': proposals,
        'seconds': seconds,
        'ratio': plain / quick,
        'differ': differ,
        'nanoseconds': 1e9 * quick / (x.size(0) * K * max(1.0, proposals)),
    }


@torch.no_grad()
def difference(problem: Problem) -> float:
    """Return the share of 1,000 targets whose edges differ for one seed."""
    problem.sampler.method = 'race'
    some, found = problem.some(1000), []
    for context in (nullcontext, definition):
        generator = torch.Generator().manual_seed(0)
        with context():
            edges = problem.sampler(some, generator=generator).edge_index
        found.append({*map(tuple, edges.t().tolist())})
    return len({target for _, target in found[0] ^ found[1]}) / 1000


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table: medians of the rounds."""
    lines = [line(HEADER), line(['---'] * len(HEADER))]
    for row in rows:
        numbers = row['proposals'], *map(statistics.median, row['seconds'].values())
        numbers = *numbers, row['ratio'], row['differ'], row['nanoseconds']
        lines.append(line([row['row'], *map(number, numbers)]))
    return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--rows', nargs='+', default=list(ROWS))
    parser.add_argument('--repeats', type=positive, default=3)
    parser.add_argument('--threads', type=positive, default=1)
    parser.add_argument('--out', type=Path, default=HERE / 'results' / 'kernel.json')
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    about = environment(**{k: v for k, v in vars(args).items() if k != 'out'})
    rows = []
    for name in args.rows:
        rows.append(measure(name, args.repeats))
        write_json(args.out, about | {'rows': rows})
    print(f'{markdown(rows)}\n\nWritten: {args.out}')


if __name__ == '__main__':
    main()
