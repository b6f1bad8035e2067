"""Measure the estimators and boosted trees on tables of many rows.

    python benchmark/tables.py
    python benchmark/tables.py --rows 1000000 --epochs 1

A table has two columns for a place, uniform in a square, six more columns, and a target

    y = f(place) + tanh(2 x1) + x2 x3 / 2 + (x4 > 0) / 2 + noise / 5

of normal columns x1 to x6, of which x5 and x6 have no effect, and normal noise. The
field f is a sum of 200 waves with random directions and phases, normal frequencies and
variance 1: values at a distance of 0.05 of the side correlate by about 0.6. So near
places predict the target: with 1,000 rows hardly, with 1,000,000 well.

For each number of rows, `GSLRegressor('learned', n_members=1)`, the default blend, and
LightGBM with its defaults (HistGradientBoosting if LightGBM is
missing) are fitted, each in its own process. The memory is the largest resident size of
the process, with libraries and table. The time of an epoch of the learned graph is the
time of the fit, with preparation and validation, over the number of epochs. Predictions
are tested on 1,000 other rows.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure import ask, interleave, seconds_of
from record import environment, format_number, line, positive, write_json
from tqdm import tqdm
from workloads import make_table

HERE = Path(__file__).resolve().parent
ROWS = (1_000, 16_000, 43_000)
NUM_TEST = 1_000
#: The graphs of our methods; the last method is the control.
GRAPHS = {'learned graph': 'learned', 'blend': 'auto'}
METHODS = (*GRAPHS, 'boosting')
#: Predictions are timed for at most this many seconds.
LIMIT = 30.0
HEADER: tuple[str, ...] = (
    'rows',
    'method',
    'epochs',
    'epoch [s]',
    'fit [s]',
    '1,000 rows [s]',
)
HEADER += ('one row [ms]', 'memory [MB]', 'RMSE')


def make_model(method: str, request: dict[str, Any]) -> tuple[Any, str]:
    """Return an estimator and its name."""
    seed, threads = request['seed'], request['threads']
    if method in GRAPHS:
        from torch_geometric_gsl.sklearn import GSLRegressor

        options = {} if request['epochs'] is None else {'max_iter': request['epochs']}
        options['random_state'] = seed
        if method == 'learned graph':
            options['n_members'] = 1
        return GSLRegressor(GRAPHS[method], **options), method
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(random_state=seed), 'HistGradientBoosting'
    return LGBMRegressor(random_state=seed, n_jobs=threads, verbose=-1), 'LightGBM'


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Fit one table by one method; return times, memory and error."""
    x, y = make_table(request['num_rows'], request['seed'])
    x_new, y_new = make_table(NUM_TEST, request['seed'] + 1)
    model, name = make_model(request['method'], request)
    # Few epochs are intended.
    warnings.filterwarnings('ignore', '.* still improved after')
    seconds = seconds_of(lambda: model.fit(x, y))
    steps = {
        'many': lambda: model.predict(x_new),
        'one': lambda: model.predict(x_new[:1]),
    }
    taken = interleave(steps, request['repeats'], LIMIT)
    # A blend trains several networks.
    epochs = model.n_iter_ if request['method'] == 'learned graph' else None
    error = model.predict(x_new) - y_new
    # Linux reports kilobytes, macOS bytes.
    unit = 1 if sys.platform == 'darwin' else 1024
    return {
        'num_rows': request['num_rows'],
        'method': name,
        'epochs': epochs,
        'epoch_seconds': None if epochs is None else seconds / epochs,
        'fit_seconds': seconds,
        'predict_seconds': taken['many'],
        'one_row_seconds': taken['one'],
        'megabytes': unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        'rmse': float(np.sqrt(np.mean(error**2))),
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table: one line per table and method, medians of repeated times."""
    lines = [line(HEADER), line(['---'] * len(HEADER))]
    for row in rows:
        many_rows, one_row = (
            statistics.median(row[key])
            for key in ('predict_seconds', 'one_row_seconds')
        )
        numbers = (row['epoch_seconds'], row['fit_seconds'], many_rows, 1000 * one_row)
        lines.append(
            line(
                [
                    f'{row["num_rows"]:,}',
                    row['method'],
                    '-' if row['epochs'] is None else str(row['epochs']),
                    *map(format_number, numbers),
                    format_number(row['megabytes']),
                    f'{row["rmse"]:.3f}',
                ]
            )
        )
    return '\n'.join(lines)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--rows', nargs='+', type=positive, default=list(ROWS))
    parser.add_argument('--methods', nargs='+', choices=METHODS, default=list(METHODS))
    parser.add_argument('--epochs', type=positive, help='largest number of epochs')
    parser.add_argument('--repeats', type=positive, default=5)
    parser.add_argument('--threads', type=positive, default=1)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--out', type=Path, default=HERE / 'results' / 'tables.json')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    about = environment(**{k: v for k, v in vars(args).items() if k != 'out'})
    rows: list[dict[str, Any]] = []
    requests = [
        vars(args) | {'num_rows': size, 'method': method}
        for size in args.rows
        for method in args.methods
    ]
    for request in tqdm(requests):
        measured_row, status = ask(measure, request)
        if measured_row is None:
            name = f'{request["method"]} of {request["num_rows"]} rows'
            sys.exit(f'{name} ended with status {status}')
        rows.append(measured_row)
        write_json(args.out, about | {'rows': rows})
    print(f'{markdown(rows)}\n\nWritten: {args.out}')


if __name__ == '__main__':
    main()
