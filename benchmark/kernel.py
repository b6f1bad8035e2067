"""Measure training steps whose races run in C++, and by their definition in PyTorch.

    python benchmark/kernel.py
    python benchmark/kernel.py --rows clustered-100000@0.1/bell/5 --repeats 5
    python benchmark/kernel.py --csv table.csv

A row is a workload of `workloads.py`, a similarity and a scale of `sharp.py`, and its
step the sum of 32 messages over the graph that is drawn, with the backward pass. Both
draw the same random words: before any timing the graphs of one seed are compared. Times
are processor seconds of one thread, in rounds that take one of each. 'ns' is the time
of C++ in a proposal, that of the bounds and of the sums included.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from measure import seconds_of
from models import K
from record import environment, format_number, line, positive, write_json
from sharp import SIMILARITIES, Problem
from workloads import load_embeddings, name_for, parse_embeddings

HERE = Path(__file__).resolve().parent
ROWS = (
    *('noise-100000/cosine/1', 'clustered-100000@0.1/bell/5'),
    *('clustered-100000/cosine/10', 'clustered-100000/bell/10'),
    *('noise-1000000/cosine/1', 'clustered-1000000@0.1/bell/5'),
)
HEADER = (
    *('row', 'proposals', 'PyTorch [s]', 'C++ [s]', 'PyTorch / C++', 'differ', 'ns'),
)
# A table of the documentation leaves out that no edge differs.
SHOWN = [i for i, name in enumerate(HEADER) if name != 'differ']


@contextmanager
def definition() -> Iterator[None]:
    """Let PyTorch find rates and run races."""
    with mock.patch.dict(os.environ, TORCH_COMPILE_DISABLE='1'):
        yield


def parse_row(name: str) -> tuple[str, str, float]:
    """Split the name of a row into workload, similarity and scale."""
    match = re.fullmatch(rf'([^/]+)/({"|".join(SIMILARITIES)})/(\d+(?:\.\d+)?)', name)
    if match is None:
        raise ValueError(
            f'a row must be WORKLOAD/SIMILARITY/SCALE with a SIMILARITY of '
            f'{", ".join(SIMILARITIES)}, such as {ROWS[0]} (got {name!r})'
        )
    parse_embeddings(match[1])
    return match[1], match[2], float(match[3])


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Return the processor seconds of steps, and the share of edges that differ."""
    workload, similarity, scale = parse_row(name)
    x, is_learned = load_embeddings(workload, 0)
    problem = Problem(x, is_learned, similarity, scale)
    step = problem.step('race', 'step')
    seconds: dict[str, list[float]] = {'PyTorch': [], 'C++': []}
    differ = difference(problem)
    for turn in range(repeats + 1):
        for language, taken in seconds.items():
            with nullcontext() if language == 'C++' else definition():
                taken_seconds = seconds_of(step)
            if turn > 0:  # The first compiles, and finds bounds.
                taken.append(taken_seconds)
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
    sample, edge_sets = problem.with_targets(1000), []
    for context in (nullcontext, definition):
        generator = torch.Generator().manual_seed(0)
        with context():
            edges = problem.sampler(sample, generator=generator).edge_index
        edge_sets.append({*map(tuple, edges.t().tolist())})
    return len({target for _, target in edge_sets[0] ^ edge_sets[1]}) / 1000


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of the table: medians of the rounds."""
    plain, quick = (statistics.median(seconds) for seconds in row['seconds'].values())
    numbers = row['proposals'], plain, quick, row['ratio'], row['differ']
    return [row['row'], *map(format_number, (*numbers, row['nanoseconds']))]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table."""
    lines = [line(HEADER), line(['---'] * len(HEADER))]
    return '\n'.join([*lines, *(line(cells(row)) for row in rows)])


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the table of the documentation."""
    with path.open('w', newline='') as file:
        table = csv.writer(file, lineterminator='\n')
        for row in HEADER, *map(cells, rows):
            shown = [row[i] for i in SHOWN]
            table.writerow([title(shown[0]), *shown[1:]])


def title(name: str) -> str:
    """Return the name of a row in words."""
    if '/' not in name:
        return 'nodes'
    workload, similarity, scale = parse_row(name)
    family, size, noise = parse_embeddings(workload)
    structure = (
        'without structure' if family == 'noise' else f'in clusters (noise {noise})'
    )
    return f'{size:,} {structure}, {similarity}, scale {scale:g}'


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--rows', nargs='+', type=name_for(parse_row), default=ROWS)
    parser.add_argument('--repeats', type=positive, default=3)
    parser.add_argument('--csv', type=Path, help='the table of the documentation')
    parser.add_argument('--out', type=Path, default=HERE / 'results' / 'kernel.json')
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    about = environment(repeats=args.repeats, threads=1)
    rows = []
    for name in args.rows:
        rows.append(measure(name, args.repeats))
        write_json(args.out, about | {'rows': rows})
    if args.csv is not None:
        write_csv(args.csv, rows)
    print(f'{markdown(rows)}\n\nWritten: {args.out}')


if __name__ == '__main__':
    main()
