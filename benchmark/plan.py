"""Compare the method that a plan chooses with the fastest one.

    python benchmark/plan.py
    python benchmark/plan.py --nodes 3000 --channels 32 --scales 1 10 --tau 1
    python benchmark/plan.py --rows normal --nodes 4096 --targets 512 --channels 96 \
        --similarities distance --scales 0.09 1 9 --tau 1 --limit 1e9

A row is a number of nodes N around sqrt(N) centres, a width, a similarity, a scale and
a method. A draw is the sum of messages of 32 channels without gradients, with bounds
already found; its time is the median processor time of the repeats on one core. Methods
whose cost, in proposals, exceeds the limit are not measured. For each setting, steps
(with the backward pass) show whether `'auto'` selects a method within 30 % of the
fastest; *ratio* is the time of a step over that of the fastest.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from models import TAU
from record import environment, format_number, line, positive, write_json
from sharp import METHODS, SIMILARITIES, Problem
from torch import Tensor
from torch.nn.functional import normalize

HERE = Path(__file__).resolve().parent
HEADER = 'nodes', 'channels', 'similarity', 'scale', 'asked', 'seconds', 'step', 'ratio'
ASKED = *METHODS, 'pool'
AS_FAST = 1.3


def rows_of(nodes: int, channels: int) -> Tensor:
    """Draw unit rows around centres."""
    generator = torch.Generator().manual_seed(0)
    count = round(nodes**0.5)
    centres = normalize(torch.randn(count, channels, generator=generator))
    centre = torch.randint(count, (nodes,), generator=generator)
    noise = 0.5 / channels**0.5 * torch.randn(nodes, channels, generator=generator)
    return normalize(centres[centre] + noise)


class NormalRows(Problem):
    """Targets that are not among the sources."""

    def with_targets(self, count: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1)
        return self.x, torch.randn(count, self.x.size(1), generator=generator)


@torch.no_grad()
def measure(
    problem: Problem, method: str, args: argparse.Namespace
) -> dict[str, Any] | None:
    """Return the seconds of a draw and a step whose cost is within the limit."""
    plan = problem.plan(method, args.targets)
    if plan.cost > args.limit:
        return None
    measured_row: dict[str, Any] = {'method': plan.method, 'cost': plan.cost}
    for name, task in (('seconds', 'forward'), ('step', 'step')):
        run, taken = problem.step(method, task, args.targets), []
        for turn in range(args.repeats + 1):
            begin = time.process_time()
            with torch.set_grad_enabled(task == 'step'):
                run()
            if turn > 0:  # The first run compiles.
                taken.append(time.process_time() - begin)
        measured_row[name] = statistics.median(taken)
    return measured_row


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of all settings."""
    for nodes, channels in product(args.nodes, args.channels):
        x = rows_of(nodes, channels)
        if args.rows == 'normal':
            x = torch.randn(nodes, channels, generator=torch.Generator().manual_seed(0))
        for similarity, scale in product(args.similarities, args.scales):
            make = NormalRows if args.rows == 'normal' else Problem
            problem = make(x, False, similarity, scale)
            problem.sampler.tau = args.tau
            auto_method = problem.plan('auto', args.targets).method
            key = {'nodes': nodes, 'channels': channels, 'similarity': similarity}
            rows = []
            for method in ASKED:
                measured_row = measure(problem, method, args)
                if measured_row is not None:
                    request = {'scale': scale, 'asked': method}
                    rows.append(
                        key
                        | request
                        | {'is_auto': method == auto_method}
                        | measured_row
                    )
            fastest = min(row['step'] for row in rows)
            yield from (row | {'ratio': row['step'] / fastest} for row in rows)


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the settings where 'auto' is as fast as the fastest method."""
    ratios = [row['ratio'] for row in rows if row['is_auto']]
    return {
        'rows': len(rows),
        'settings': len(ratios),
        'auto_as_fast': sum(ratio <= AS_FAST for ratio in ratios),
        'auto_by_pool': sum(row['is_auto'] and row['asked'] == 'pool' for row in rows),
        'largest_ratio': max(ratios, default=1.0),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--nodes', nargs='+', type=positive, default=[500, 5000, 50000])
    parser.add_argument('--channels', nargs='+', type=positive, default=[16, 64])
    parser.add_argument(
        '--scales', nargs='+', type=float, default=[1.0, 3.0, 10.0, 40.0]
    )
    parser.add_argument('--targets', type=positive)
    parser.add_argument('--rows', choices=['clustered', 'normal'], default='clustered')
    parser.add_argument('--similarities', nargs='+', default=[*SIMILARITIES])
    parser.add_argument('--tau', type=float, default=TAU)
    parser.add_argument('--limit', type=float, default=5e8)
    parser.add_argument('--repeats', type=positive, default=3)
    parser.add_argument('--out', type=Path, default=HERE / 'results' / 'plan.json')
    args = parser.parse_args(argv)
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    about = environment(**{k: v for k, v in vars(args).items() if k != 'out'})
    rows: list[dict[str, Any]] = []
    print(line(HEADER), line(['---'] * len(HEADER)), sep='\n')
    for row in measured(args):
        rows.append(row)
        print(
            line(
                [str(row[k]) for k in HEADER[:5]]
                + [format_number(row[k]) for k in HEADER[5:]]
            )
        )
        write_json(args.out, about | {'summary': summarize(rows), 'rows': rows})
    print(f'\n{summarize(rows)}\nWritten: {args.out}')


if __name__ == '__main__':
    main()
