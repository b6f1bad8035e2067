"""Make the paper's tables from finished runs, with the paper's numbers and ours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reproduction.datasets import DATASETS
from reproduction.experiments import (
    COMPARED,
    CONTROLS,
    FULL,
    KS,
    TRANSITION,
    Choice,
    tuned_settings,
)
from reproduction.files import read_results
from reproduction.settings import METHODS
from reproduction.store import Store
from reproduction.summary import (
    COSTS,
    LEAST_RUNS,
    MARKS,
    Accuracy,
    Cell,
    accuracies,
    compare,
    make_cell,
    verdict,
)

COUNTED = (
    'Test accuracy in %: mean ± sample standard deviation (number of runs); bold: the '
    'best of those with the most runs, if three or more'
)
PAIRED = (
    'differences: mean ± sample standard deviation over the same splits, two-sided '
    'paired t-test, corrected for splits that overlap (number of splits)'
)
#: Nearest-neighbour graphs, with and without a root weight.
NEIGHBOURS = ('knn_gcn_root', 'gcn_knn')
#: Results of :mod:`reproduction.cost`.
COST = 'cost.json'


class Entry(NamedTuple):
    """Cell with our number, the paper's below it, and whether ours is the best."""

    ours: str
    paper: str = ''
    is_best: bool = False


class Grid(NamedTuple):
    """Table of column titles, and rows of a title and entries.

    Args:
        head: The titles; the first is above the titles of the rows.
        rows: Title and entries of each row.
        notes: Lines below the table.
        empty: The reason if there is nothing to show.
    """

    head: list[str]
    rows: list[tuple[str, list[Entry]]]
    notes: list[str]
    empty: str = 'no finished runs of this choice yet'

    @property
    def is_empty(self) -> bool:
        return not any(entry.ours for _, entries in self.rows for entry in entries)


Make = Callable[[Store, Choice], Grid]


def head(datasets: tuple[str, ...]) -> list[str]:
    """Return column titles; a file has its name, unless two files share it."""
    names = [d if d in DATASETS else Path(d).name for d in datasets]
    pairs = zip(datasets, names, strict=True)
    return ['', *(name if names.count(name) == 1 else d for d, name in pairs)]


def cell_of(
    store: Store, choice: Choice, dataset: str, method: str, **changes: Any
) -> Cell:
    configs = [choice.config(dataset, method, s, **changes) for s in choice.seeds]
    return make_cell(store, configs)


def cells_of(
    store: Store, choice: Choice, **changes: Any
) -> dict[tuple[str, str], Cell]:
    """Return the cell of each method and data set."""
    return {
        (method, dataset): cell_of(store, choice, dataset, method, **changes)
        for dataset in choice.datasets
        for method in choice.methods
    }


def rows_of(
    cells: Mapping[tuple[str, str], Cell],
    choice: Choice,
    paper: Mapping[tuple[int, str, str], Accuracy | None],
    k: int = 5,
) -> list[tuple[str, list[Entry]]]:
    """Make a row for each method; the best is one of those with the most splits."""
    rows: list[tuple[str, list[Entry]]] = [
        (METHODS[method].title, []) for method in choice.methods
    ]
    for dataset in choice.datasets:
        column = [cells[method, dataset] for method in choice.methods]
        num_runs = max(LEAST_RUNS, *(len(cell.test) for cell in column))
        means = [cell.mean for cell in column if len(cell.test) == num_runs]
        best = max(means, default=math.inf)
        for method, cell, (_, row) in zip(choice.methods, column, rows, strict=True):
            is_best = len(cell.test) == num_runs and cell.mean >= best
            printed = paper.get((k, method, dataset), '')
            beside = '' if printed == '' else f'paper: {printed or "OOM"}'
            row.append(Entry(str(cell), beside, is_best))
    return rows


def marks_of(cells: dict[tuple[str, str], Cell]) -> list[str]:
    meanings = {
        'timeout': 'stopped at its time limit, in at least one run',
        'diverged': 'loss not finite in at least one run, which has no score',
        'epochs': 'ended at the last epoch, before its patience, in at least one run',
    }
    marks = ''.join(cell.marks for cell in cells.values())
    lines = [f'{mark} {meanings[end]}.' for end, mark in MARKS.items() if mark in marks]
    return [' '.join(lines)] if lines else []


def of_accuracies(
    name: str, methods: tuple[str, ...] = (), ks: tuple[int, ...] = ()
) -> Make:
    """Compare the given or all selected methods with a table of the paper."""

    def table(store: Store, choice: Choice) -> Grid:
        paper = accuracies(name)
        selection = choice._replace(methods=methods or choice.methods)
        rows = []
        marks = set()
        for k in ks or (None,):
            cells = cells_of(store, selection, **({'k': k} if k else {}))
            marks |= {*marks_of(cells)}
            start = f'K = {k}, ' if k else ''
            of_k = rows_of(cells, selection, paper, k or 5)
            rows += [(f'{start}{title}', row) for title, row in of_k]
        end = '; below it the value in the paper.' if paper else '.'
        return Grid(head(choice.datasets), rows, [f'{COUNTED}{end}', *sorted(marks)])

    return table


def differences(
    cells: Mapping[tuple[str, str], Cell],
    pairs: Iterable[tuple[str, str]],
    datasets: tuple[str, ...],
) -> list[tuple[str, list[Entry]]]:
    """Make a row for each pair of methods: the method minus the control."""
    rows = []
    for method, control in pairs:
        row = [compare(cells[method, d], cells[control, d]) for d in datasets]
        title = f'{METHODS[method].title} - {METHODS[control].title}'
        rows.append((title, [Entry('' if c is None else str(c)) for c in row]))
    return rows


def paired(store: Store, choice: Choice) -> Grid:
    """Compare our methods with controls, and kNN with an MLP, on the same splits."""
    ours = tuple(name for name in choice.methods if METHODS[name].group == 'ours')
    shown = dict.fromkeys((*ours, *CONTROLS, 'uniform', *NEIGHBOURS))
    cells = cells_of(store, choice._replace(methods=tuple(shown)))
    pairs = [*itertools.product(ours, (*CONTROLS, 'uniform'))]
    pairs += [(method, 'mlp') for method in NEIGHBOURS]
    note = (
        f'Points of test accuracy; {PAIRED}. No p-value is corrected for their number.'
    )
    rows = differences(cells, pairs, choice.datasets)
    empty = 'no finished runs to compare on the same splits yet'
    return Grid(head(choice.datasets), rows, [note], empty)


def verdicts(store: Store, choice: Choice) -> Grid:
    """Compare rows with the paper: within its standard deviation, above or below."""
    printed = tuple(m for m in choice.methods if METHODS[m].group != 'control')
    paper = accuracies('table1')
    published = {dataset for _, _, dataset in paper}
    datasets = tuple(d for d in choice.datasets if d in published)
    unpublished = tuple(d for d in choice.datasets if d not in published)
    cells = cells_of(store, choice._replace(methods=printed, datasets=datasets))
    judged, texts = {}, {}
    for (method, d), cell in cells.items():
        beside = paper[5, method, d]
        judged[method, d] = _judged(cell, beside)
        texts[method, d] = verdict(cell, beside) + judged[method, d].marks
    rows = [(METHODS[m].title, [Entry(texts[m, d]) for d in datasets]) for m in printed]
    note = (
        "'within': within one standard deviation of the paper's mean. From "
        f'{LEAST_RUNS} runs on.'
    )
    absent = f'paper has no figures of {", ".join(head(unpublished)[1:]) or "controls"}'
    notes = [note, *marks_of(judged), *([f'The {absent}.'] if unpublished else [])]
    few = f'no method has {LEAST_RUNS} finished runs of this choice yet'
    is_printed = datasets and printed
    return Grid(head(datasets), rows, notes, few if is_printed else f'the {absent}')


def _judged(cell: Cell, printed: Accuracy | None) -> Cell:
    """Drop the marks of a cell without a verdict."""
    is_judged = printed is not None and len(cell.test) >= LEAST_RUNS
    return cell if is_judged or not cell.test else cell._replace(marks='')


def tuned(store: Store, choice: Choice) -> Grid:
    """Compare settings that a search found, on splits that did not select them."""
    methods = ('neural_gau_sim', *CONTROLS)
    searched = {d: tuned_settings(store.root, d, choice.label) for d in choice.datasets}
    datasets = tuple(d for d in choice.datasets if searched[d].keys() >= {*methods})
    titles = dict(zip(datasets, head(datasets)[1:], strict=True))
    notes = [
        f'On {titles[d]}: '
        + '; '.join(
            f'{METHODS[m].title} with {_setting(searched[d][m])}' for m in methods
        )
        + '.'
        for d in datasets
    ]
    selection = Choice(datasets, methods, COMPARED, 'tuned', choice.label, store.root)
    cells = cells_of(store, selection)
    rows = rows_of(cells, selection, {})
    rows += differences(cells, [(methods[0], name) for name in CONTROLS], datasets)
    note = f'{COUNTED}; {PAIRED}.'
    empty = 'no finished runs of settings that a search has found yet'
    return Grid(head(datasets), rows, [note, *marks_of(cells), *notes], empty)


def _setting(tuned_setting: Mapping[str, Any]) -> str:
    setting = tuned_setting['setting']
    if setting.get('candidates', '') is None:
        setting = setting | {'candidates': 'all'}
    shown = [
        f'{name} {value:.2g}' if isinstance(value, float) else f'{name} {value}'
        for name, value in setting.items()
    ]
    return f'{", ".join(shown)} (the best of {tuned_setting["trials"]} trials)'


def cost_grid(root: Path) -> Grid:
    """Make Table 4 from the last measurements."""
    costs = read_results(root / COST) or {'rows': {}}
    rows = []
    for method, row in costs['rows'].items():
        printed = [f'paper: {value}' for value in COSTS.get(method, ())] or ['', '']
        memory = '' if row['megabytes'] is None else f'{row["megabytes"]:.0f}'
        low, high = row['quartiles']
        ours = (f'{row["seconds"]:.3f} ({low:.3f} to {high:.3f})', memory)
        entries = [Entry(*pair) for pair in zip(ours, printed, strict=True)]
        rows.append((METHODS[method].title, entries))
    threads = costs.get('environment', {}).get('threads')
    note = (
        'One epoch of training on CiteSeer, median (quartiles), CPU threads: '
        f'{threads}, peak MB of tensors, the data left out; below it the '
        'value in the paper for an RTX 3090. The epochs are the first ones: without '
        'evaluation, and without the search of nearest neighbours, which all later '
        'ones share. IDGL iterates more or less often as training goes on.'
    )
    return Grid(['', 'seconds', 'MB'], rows, [note])


SHOWN = ('neural_gau_sim', 'neural_gau_sim_t', 'uniform', *CONTROLS)
TABLES: dict[str, tuple[str, Make]] = {
    'table1': ('table1', of_accuracies('table1')),
    # The paper's best method, and the controls that it has to beat.
    'controls': ('table1', of_accuracies('controls', SHOWN)),
    'paired': ('table1', paired),
    'verdicts': ('table1', verdicts),
    'tuned': ('table1', tuned),
    'table2': ('table2', of_accuracies('table2', FULL, KS)),
    'table3': ('table3', of_accuracies('table3', TRANSITION, KS)),
}
