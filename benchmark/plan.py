"""Compare the method that a plan chooses with the fastest one.

    python benchmark/plan.py
    python benchmark/plan.py --nodes 3000 --channels 32 --scales 1 10

A row is a number of nodes N around sqrt(N) centres, a width, a similarity, a scale and
a method. A draw is the sum of messages of 32 channels without gradients, with bounds
already found; its time is the median processor time of the repeats on one core. Methods
whose cost, in proposals, exceeds the limit are not measured. For each setting, steps
(with the backward pass) show whether `'auto'` selects a method within 30 % of the
fastest.
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
from record import environment, line, number, positive, write_json
from sharp import METHODS, SIMILARITIES, Problem
from torch import Tensor
from torch.nn.functional import normalize

HERE = Path(__file__).resolve().parent
HEADER = ('nodes', 'channels', 'similarity', 'scale', 'method', 'seconds', 'step')
AS_FAST = 1.3


def rows_of(nodes: int, channels: int) -> Tensor:
    """Draw unit rows around centres."""
    generator = torch.Generator().manual_seed(0)
    count = round(nodes**0.5)
    centres = normalize(torch.randn(count, channels, generator=generator))
    number = torch.randint(count, (nodes,), generator=generator)
    noise = 0.5 / channels**0.5 * torch.randn(nodes, channels, generator=generator)
    return normalize(centres[number] + noise)


@torch.no_grad()
def measure(
    problem: Problem, method: str, limit: float, repeats: int
) -> dict[str, Any] | None:
    """Return the seconds of a draw and a step whose cost is within the limit."""
    plan = problem.plan(method)
    if plan.cost > limit:
        return None
    found: dict[str, Any] = {'method': plan.method, 'cost': plan.cost}
    for name, task in (('seconds', 'forward'), ('step', 'step')):
        run, taken = problem.step(method, task), []
        for turn in range(repeats + 1):
            begin = time.process_time()
            with torch.set_grad_enabled(task == 'step'):
                run()
            if turn > 0:  # The first run compiles.
                taken.append(time.process_time() - begin)
        found[name] = statistics.median(taken)
    return found


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of all settings."""
    for nodes, channels in product(args.nodes, args.channels):
        x = rows_of(nodes, channels)
        for similarity, scale in product(SIMILARITIES, args.scales):
            problem = Problem(x, False, similarity, scale)
            chosen = problem.plan('auto').method
            key = {'nodes': nodes, 'channels': channels, 'similarity': similarity}
            for method in METHODS:
                found = measure(problem, method, args.limit, args.repeats)
                if found is not None:
                    is_auto = method == chosen
                    yield (
                        key
                        | {'scale': scale, 'asked': method, 'is_auto': is_auto}
                        | found
                    )


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the settings where 'auto' is as fast as the fastest method."""
    settings: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(row[k] for k in ('nodes', 'channels', 'similarity', 'scale'))
        settings.setdefault(key, []).append(row)
    chosen = [
        row['step'] <= AS_FAST * min(other['step'] for other in group)
        for group in settings.values()
        for row in group
        if row['is_auto']
    ]
    return {
        'rows': len(rows),
        'settings': len(chosen),
        'auto_as_fast': sum(chosen),
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
                [str(row[k]) for k in HEADER[:5]] + [number(row[k]) for k in HEADER[5:]]
            )
        )
        write_json(args.out, about | {'summary': summarize(rows), 'rows': rows})
    print(f'\n{summarize(rows)}\nWritten: {args.out}')


if __name__ == '__main__':
    main()
