"""Learn hidden relations: which similarity finds the edges that a task needs?

    python paper/run.py hidden
    python paper/run.py hidden --seeds 2 --deltas 40 80 --jobs 2

Each node of a circle has a noisy value, and predicts the mean of a function at an angle
of delta to both sides. Every method has four trainings, which differ in the initial
centre or the learning rate; the validation graphs select one of them, and only this one
is tested. Finished runs are stored in `<results>/hidden.json`; a restarted run
continues with the missing ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from reproduction.relations import (
    METHODS,
    SETTING,
    Graphs,
    LearnedGraph,
    relative_error,
    trainings,
    true_graph,
)
from reproduction.studies import (
    LEVEL,
    Results,
    compare_ours,
    correct,
    parse_args,
    read_cells,
)
from reproduction.summary import Cell
from reproduction.tables import Entry, Grid

#: Results of :mod:`reproduction.hidden`.
HIDDEN = 'hidden.json'
#: The rows that all others are tested against.
OURS, CEILING = 'tanh', 'true'


#: Cells by angle and method.
Cells = dict[tuple[int, str], Cell]


def read_errors(root: Path, measure: str = 'test') -> Cells:
    """Return test errors, or another measure, of each method at each angle."""
    cells = read_cells(root / HIDDEN, METHODS, measure, scale=1.0)
    return {(int(delta), name): cell for (delta, name), cell in cells.items()}


def _deltas(cells: Cells) -> list[int]:
    return sorted({delta for delta, _ in cells})


def hidden_grid(root: Path) -> Grid:
    """Compare errors of all methods at all angles."""
    errors, precision = read_errors(root), read_errors(root, 'precision')
    deltas = _deltas(errors)
    rows = [
        (
            method.title,
            [_entry(errors.get((d, m)), precision.get((d, m))) for d in deltas],
        )
        for m, method in METHODS.items()
    ]
    counts = {len(cell.test) for cell in errors.values()} or {0}
    seeds = ' to '.join(str(n) for n in sorted({min(counts), max(counts)}))
    note = (
        'Mean squared error on test graphs over the variance of their targets: mean ± '
        f'sample standard deviation of {seeds} runs. Below it: the share of true edges '
        'among the 5 nearest sources of each target, without noise.'
    )
    return Grid(['', *(f'{delta}°' for delta in deltas)], rows, [note])


def _entry(error: Cell | None, precision: Cell | None) -> Entry:
    if error is None:
        return Entry('')
    spread = '' if math.isnan(error.std) else f' ± {error.std:.3f}'
    below = '' if precision is None else f'{precision.mean:.0%} true'
    return Entry(f'{error.mean:.3f}{spread}', below)


def hidden_paired(root: Path) -> Grid:
    """Test all methods against the bell with a free centre, on the same graphs."""
    errors = read_errors(root)
    logarithms = {
        key: Cell({seed: math.log(error) for seed, error in cell.test.items()})
        for key, cell in errors.items()
    }
    # No two seeds share a graph.
    pairs = compare_ours(logarithms, OURS, overlap=0.0)
    p_values = correct(pairs)

    def entry(key: tuple[int, str]) -> Entry:
        if key not in pairs:
            return Entry('')
        star = '*' if p_values.get(key, 1.0) < LEVEL else ''
        return Entry(f'{math.exp(-pairs[key].difference):.2f}{star}')

    deltas = _deltas(errors)
    rows = [
        (method.title, [entry((delta, name)) for delta in deltas])
        for name, method in METHODS.items()
        if name != OURS
    ]
    note = (
        f'Errors divided by those of {METHODS[OURS].title}, geometric mean over the '
        f'same graphs. A star: p < {LEVEL} in two-sided paired t-tests of the '
        f'logarithms, corrected for all {len(p_values)} tests of the table '
        "(Holm's method)."
    )
    return Grid(['', *(f'{delta}°' for delta in deltas)], rows, [note])


def hidden_figure(root: Path) -> Figure | None:
    """Plot the errors of all methods over the angle."""
    errors = read_errors(root)
    deltas = _deltas(errors)
    if not deltas:
        return None
    figure = Figure(figsize=(6.4, 4.0), layout='constrained')
    ax = figure.subplots()
    for name, method in METHODS.items():
        points = [(d, errors[d, name].mean) for d in deltas if (d, name) in errors]
        style = {OURS: '-', CEILING: '--'}.get(name, ':')
        ax.plot(
            [delta for delta, _ in points],
            [mean for _, mean in points],
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


DELTAS = (20, 40, 60, 80, 100, 120, 140, 160)
SEEDS = 10


class Run(NamedTuple):
    """A method at an angle, with a seed of the graphs, the weights and all noise."""

    delta: int
    method: str
    seed: int

    def __str__(self) -> str:
        return f'{self.delta}/{self.method}/{self.seed}'


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Execute a run; return the result of the training that validation selects."""
    torch.set_num_threads(1)
    graphs = Graphs.draw(run.delta, run.seed, setting)
    if run.method == 'true':
        return str(run), true_graph(run.delta, graphs, setting)
    result: dict[str, Any] = {'val': math.inf}
    best = None
    for model, choice in trainings(run.method, run.seed, graphs, setting):
        with torch.no_grad():
            val = relative_error(model(graphs.val), graphs.val.y)
        if val < result['val']:
            result = {'val': val, 'choice': choice}
            best = model
    if best is None:  # All of them diverged.
        return str(run), {'val': None, 'test': None}
    with torch.no_grad():
        result['test'] = relative_error(best(graphs.test), graphs.test.y)
    if isinstance(best, LearnedGraph):
        result |= best.recovery(graphs.test)
    return str(run), result


def main(arguments: list[str] | None = None, setting: dict[str, Any] = SETTING) -> None:
    lists = {'deltas': DELTAS, 'methods': list(METHODS)}
    args = parse_args(arguments, 'hidden', __doc__, lists, SEEDS)
    runs = [
        Run(delta, method, seed)
        for seed in range(args.seeds)
        for delta in args.deltas
        for method in args.methods
    ]
    results = Results(args.results / HIDDEN, setting, METHODS)
    results.complete('hidden', runs, execute, args.jobs)
