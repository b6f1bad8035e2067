"""Make tables and a figure of hidden relations from finished runs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from scipy import stats

from reproduction.own_runs import read_runs
from reproduction.own_tables import LEVEL
from reproduction.relations import METHODS
from reproduction.summary import LEAST_RUNS, holm
from reproduction.tables import Entry, Grid

#: What :mod:`reproduction.hidden` found.
HIDDEN = 'hidden.json'
#: The rows that all others are tested against.
OURS, CEILING = 'tanh', 'true'


class Errors(NamedTuple):
    """The test errors of a method at an angle, by seed, and its graph's precision."""

    error: Mapping[int, float]
    precision: Mapping[int, float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.error.values()) if self.error else math.nan

    @property
    def std(self) -> float:
        enough = len(self.error) > 1
        return statistics.stdev(self.error.values()) if enough else math.nan


Found = dict[str, dict[int, Errors]]


def read_errors(root: Path) -> Found:
    """Return the errors of each method at each angle; none of what has not run."""
    found: Found = {name: defaultdict(lambda: Errors({}, {})) for name in METHODS}
    for name, result in read_runs(root / HIDDEN, METHODS).items():
        delta, method, seed = name.split('/')
        if result['test'] is None:
            continue
        errors = found[method][int(delta)]
        found[method][int(delta)] = Errors(
            {**errors.error, int(seed): result['test']},
            {**errors.precision, int(seed): result.get('precision', math.nan)},
        )
    return found


def _deltas(found: Found) -> list[int]:
    return sorted({delta for row in found.values() for delta in row})


def hidden_grid(root: Path) -> Grid:
    """Compare errors of all methods at all angles."""
    found = read_errors(root)
    deltas = _deltas(found)
    rows = []
    for name, method in METHODS.items():
        entries = [_entry(found[name][delta]) for delta in deltas]
        rows.append((method.title, entries))
    counts = {len(e.error) for row in found.values() for e in row.values()} or {0}
    seeds = ' to '.join(str(n) for n in sorted({min(counts), max(counts)}))
    note = (
        'Mean squared error on test graphs over the variance of their targets: mean ± '
        f'sample standard deviation of {seeds} runs; below it the share of true edges '
        'among the 5 nearest sources of each target, without noise.'
    )
    head = ['', *(f'{delta}°' for delta in deltas)]
    return Grid(head, rows, [note])


def _entry(errors: Errors) -> Entry:
    if not errors.error:
        return Entry('')
    spread = '' if math.isnan(errors.std) else f' ± {errors.std:.3f}'
    right = statistics.mean(errors.precision.values())
    below = '' if math.isnan(right) else f'{right:.0%} true'
    return Entry(f'{errors.mean:.3f}{spread}', below)


def hidden_paired(root: Path) -> Grid:
    """Test all methods against the bell that can move, over the same graphs."""
    found = read_errors(root)
    deltas = _deltas(found)
    others = [name for name in METHODS if name != OURS]
    ratios = {
        (name, delta): _log_ratios(found[name][delta], found[OURS][delta])
        for name in others
        for delta in deltas
    }
    p_values = holm({key: _p_value(values) for key, values in ratios.items()})
    rows = []
    for name in others:
        entries = []
        for delta in deltas:
            values, p = ratios[name, delta], p_values.get((name, delta), math.nan)
            text = f'{math.exp(statistics.mean(values)):.2f}' if values else ''
            entries.append(Entry(text + ('*' if p < LEVEL else '')))
        rows.append((METHODS[name].title, entries))
    note = (
        f'Errors over those of {METHODS[OURS].title}, on the same graphs: the '
        f'geometric mean. A star: not equal at a level of {LEVEL}, by two-sided paired '
        f't-tests of the logarithms, corrected for all {len(p_values)} of the table '
        "(Holm's method)."
    )
    head = ['', *(f'{delta}°' for delta in deltas)]
    return Grid(head, rows, [note])


def _log_ratios(first: Errors, second: Errors) -> list[float]:
    seeds = sorted(first.error.keys() & second.error.keys())
    return [math.log(first.error[s] / second.error[s]) for s in seeds]


def _p_value(values: list[float]) -> float:
    """Return that of a t-test; no two seeds share a graph."""
    if len(values) < LEAST_RUNS or statistics.stdev(values) == 0:
        return math.nan
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def hidden_figure(root: Path) -> Figure | None:
    """Draw the errors of all methods over the angle."""
    found = read_errors(root)
    deltas = _deltas(found)
    if not deltas:
        return None
    figure = Figure(figsize=(6.4, 4.0), layout='constrained')
    ax = figure.subplots()
    for name, method in METHODS.items():
        known = [(d, found[name][d]) for d in deltas if found[name][d].error]
        style = {OURS: '-', CEILING: '--'}.get(name, ':')
        ax.plot(
            [delta for delta, _ in known],
            [errors.mean for _, errors in known],
            style,
            marker='o' if name == OURS else '.',
            color='black' if name == CEILING else None,
            linewidth=2.5 if name == OURS else 1.5,
            label=method.title,
        )
    ax.set(
        xlabel='angle of the relation, degrees',
        ylabel='error / variance of the targets',
        yscale='log',
        xticks=deltas,
        yticks=[0.03, 0.1, 0.3, 1.0],
        yticklabels=['0.03', '0.1', '0.3', '1'],
    )
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    figure.legend(loc='outside right center')
    return figure
