"""Measure an epoch of a net for tables against the bound of its matrix products.

    python benchmark/table_epoch.py
    python benchmark/table_epoch.py --tables diamonds --warm 50 --steps 20

A `GSLRegressor('learned', n_members=1)` is trained for some steps, in which its weights
become sharp, and the next are timed, in processor seconds. The operations of their
matrix products are counted, and divided by those of a product of two matrices of 1,024
rows and columns in a second. Tables are those of the experiments, or a number of rows
that `tables.py` makes. An epoch is the time of a step times the number of steps,
without validation.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from made_table import make_table
from record import environment, positive, write_json
from report import line, number
from torch.utils.flop_counter import FlopCounterMode

from reproduction import tables_data
from torch_geometric_gsl.sklearn import GSLRegressor, _training

HERE = Path(__file__).resolve().parent
TABLES = ('california', 'diamonds', '1000000')
SIZE, ROUNDS = 1024, 5
HEADER = ('table', 'steps of an epoch', 'step [ms]', 'epoch [s]', 'of products')


class Done(Exception):
    """All steps have been timed."""


def read(name: str) -> tuple[Any, Any]:
    if name.isdigit():
        return make_table(int(name), 0)
    table = getattr(tables_data, name)()
    return table.x, np.asarray(table.y, dtype=float)


def product_rate() -> float:
    """Return the operations of matrix products in a second."""
    a, taken = torch.randn(SIZE, SIZE), []
    for _ in range(ROUNDS):
        begin = time.process_time()
        a @ a
        taken.append(time.process_time() - begin)
    return 2 * SIZE**3 / min(taken)


def measure(name: str, warm: int, steps: int) -> dict[str, Any]:
    """Train on a table, time the last steps, and count their products."""
    x, y = read(name)
    seconds: list[float] = []
    seen, per_epoch, operations = 0, 0, 0
    plain = _training._steps

    def timed(*args: Any) -> Iterator[float]:
        nonlocal seen, per_epoch, operations
        parts, options = args[2:4]
        per_epoch = math.ceil(len(parts.train) / options.batch_size)
        every = plain(*args)
        while True:
            counter = FlopCounterMode(display=False)
            begin = time.process_time()
            try:
                if seen == warm + steps:  # One more, whose products are counted.
                    with counter:
                        next(every)
                    operations = counter.get_total_flops()
                    raise Done
                loss = next(every)
            except StopIteration:
                return
            if seen >= warm:
                seconds.append(time.process_time() - begin)
            seen += 1
            yield loss

    model = GSLRegressor('learned', n_members=1, random_state=0, max_iter=10**6)
    with mock.patch.object(_training, '_steps', timed), suppress(Done):
        model.fit(x, y)
    step, rate = statistics.median(seconds), product_rate()
    return {
        'table': name,
        'steps': per_epoch,
        'step_seconds': seconds,
        'epoch_seconds': step * per_epoch,
        'operations': operations,
        'product_rate': rate,
        'share_of_products': operations / rate / step,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--tables', nargs='+', default=list(TABLES))
    parser.add_argument('--warm', type=positive, default=400)
    parser.add_argument('--steps', type=positive, default=100)
    parser.add_argument('--out', type=Path, default=HERE / 'results/table_epoch.json')
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter('ignore')
    about = environment(**{k: v for k, v in vars(args).items() if k != 'out'})
    rows = []
    print(line(HEADER))
    for name in args.tables:
        row = measure(name, args.warm, args.steps)
        rows.append(row)
        write_json(args.out, about | {'rows': rows})
        step = 1000 * statistics.median(row['step_seconds'])
        share = f'{row["share_of_products"]:.0%}'
        cells = [str(row['steps']), number(step), number(row['epoch_seconds']), share]
        print(line([name, *cells]), flush=True)


if __name__ == '__main__':
    main()
