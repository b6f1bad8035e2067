"""Measure an epoch of a net for tables against the bound of its matrix products.

    python benchmark/table_epoch.py
    python benchmark/table_epoch.py --tables diamonds --warm 50 --steps 20

A `GSLRegressor('learned', n_members=1)` is trained for some steps, in which its weights
become sharp; the next steps are timed in processor seconds. The operations of their
matrix products are divided by the operations per second of a product of two matrices of
1,024 rows and columns. Tables are those of the experiments, or a number of rows for the
table of `tables.py`. An epoch is the time of a step times the number of steps; its
validation is the time of the longest step beyond the median, if it included one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from made_table import make_table
from record import environment, positive, write_json
from report import line, number
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.flop_counter import FlopCounterMode

from reproduction import tables_data
from torch_geometric_gsl.sklearn import GSLRegressor

HERE = Path(__file__).resolve().parent
TABLES = ('california', 'diamonds', '1000000')
SIZE, ROUNDS = 1024, 5
# The default fraction of validation rows, and the batch size of large tables.
VALIDATED, BATCH = 0.2, 512
HEADER = (
    *('table', 'steps of an epoch', 'step [ms]', 'epoch [s]', 'validation [s]'),
    'of products',
)
# A step with a validation takes more than this many times the median.
LONG = 4


class Done(Exception):
    """All steps have been timed."""


def read(name: str) -> tuple[Any, Any]:
    if name.isdigit():
        return make_table(int(name), 0)
    table = getattr(tables_data, name)()
    return table.x, np.asarray(table.y, dtype=float)


def product_rate() -> float:
    """Measure the operations per second of matrix products."""
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
    seen, operations, begin = 0, 0, 0.0
    counter = FlopCounterMode(display=False)

    def after_step(*args: Any) -> None:
        nonlocal seen, operations, begin
        seen += 1
        now = time.process_time()
        if warm < seen <= warm + steps:
            seconds.append(now - begin)
        if seen == warm + steps + 1:  # One more, whose products are counted.
            counter.__enter__()
        if seen == warm + steps + 2:
            counter.__exit__(None, None, None)
            operations = counter.get_total_flops()
            raise Done
        begin = time.process_time()

    options: dict[str, Any] = {'n_members': 1, 'random_state': 0, 'max_iter': 10**6}
    hook = register_optimizer_step_post_hook(after_step)
    try:
        with suppress(Done):
            GSLRegressor('learned', **options).fit(x, y)
    finally:
        hook.remove()
    step, rate = statistics.median(seconds), product_rate()
    most, per_epoch = max(seconds), math.ceil(len(y) * (1 - VALIDATED) / BATCH)
    return {
        'table': name,
        'steps': per_epoch,
        'step_seconds': seconds,
        'epoch_seconds': step * per_epoch,
        'validation_seconds': most - step if most > LONG * step else None,
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
        times = step, row['epoch_seconds'], row['validation_seconds']
        cells = [name, str(row['steps']), *map(number, times), share]
        print(line(cells), flush=True)


if __name__ == '__main__':
    main()
