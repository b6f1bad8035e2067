"""Prints the paper's tables from finished runs, the paper's figures beside ours.

python examples/paper/tables.py table1
python examples/paper/tables.py table3 --format latex
python examples/paper/tables.py --write  # all, into README and documentation
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cost import cost_grid
from experiments import COMPARED, EXPERIMENTS, FULL, KS, MAX_SEEDS, TRANSITION, Choice
from files import read_json, write_text
from grid import FORMATS, Entry, Grid
from methods import METHODS
from published import Accuracy, accuracies
from settings import PAPER, PRESETS, TUNED, make_config
from store import Store
from summary import LEAST_RUNS, MARKS, Cell, compare, make_cell, verdict

HERE = Path(__file__).resolve().parent
RESULTS = HERE / 'results'
ROOT = HERE.parents[1]
#: What stands in the marks before and after a table.
WORDS = ('begin', 'end')
DOCUMENTS = (ROOT / 'README.md', ROOT / 'docs' / 'results.rst')
#: Seeds that a table looks for; those that are missing are not counted.
SEEDS = range(MAX_SEEDS)
CONTROLS = ('mlp', 'knn_gcn_root')
PAIRED = (
    'differences: mean ± sample standard deviation over the same splits, two-sided '
    'paired t-test, corrected for splits that overlap (number of splits)'
)
COUNTED = (
    'Test accuracy in %: mean ± sample standard deviation (number of runs); bold: the '
    'best of those with the most runs, if three or more'
)


class Best(NamedTuple):
    runs: int
    mean: float


def cells(
    store: Store, choice: Choice, **changes: object
) -> dict[tuple[str, str], Cell]:
    """The cell of each method and data set."""
    return {
        (method, dataset): make_cell(
            store,
            [
                make_config(dataset, method, s, choice.preset, choice.label, **changes)
                for s in choice.seeds
            ],
        )
        for dataset in choice.datasets
        for method in choice.methods
    }


def entries(
    row: list[Cell], papers: list[Accuracy | str | None], best: list[Best]
) -> list[Entry]:
    return [
        Entry(
            str(cell),
            f'paper: {"OOM" if paper is None else paper}' if paper != '' else '',
            len(cell.test) == top.runs and cell.mean >= top.mean,
        )
        for cell, paper, top in zip(row, papers, best, strict=True)
    ]


def best_means(
    found: dict[tuple[str, str], Cell], datasets: tuple[str, ...]
) -> list[Best]:
    """The best of each data set among the methods that have the most splits."""
    best = []
    for name in datasets:
        column = [cell for (_, dataset), cell in found.items() if dataset == name]
        runs = max(LEAST_RUNS, *(len(cell.test) for cell in column))
        means = [cell.mean for cell in column if len(cell.test) == runs]
        best.append(Best(runs, max(means, default=math.inf)))
    return best


def marks_of(found: dict[tuple[str, str], Cell]) -> list[str]:
    meanings = {
        'timeout': 'stopped at its time limit',
        'diverged': 'loss not finite',
        'epochs': 'had not stopped improving at the last epoch, in at least one run',
    }
    used = ''.join(cell.marks for cell in found.values())
    lines = [f'{mark} {meanings[end]}.' for end, mark in MARKS.items() if mark in used]
    return [' '.join(lines)] if lines else []


def table1(store: Store, choice: Choice) -> Grid:
    """All methods on all data sets."""
    found = cells(store, choice)
    paper = accuracies('table1')
    best = best_means(found, choice.datasets)
    rows = []
    for method in choice.methods:
        row = [found[method, dataset] for dataset in choice.datasets]
        beside = [paper.get((5, method, dataset), '') for dataset in choice.datasets]
        rows.append((METHODS[method].title, entries(row, beside, best)))
    notes = [f'{COUNTED}; below it what the paper prints.', *marks_of(found)]
    return Grid(['', *choice.datasets], rows, notes)


def by_k(name: str, methods: tuple[str, ...]) -> Callable[[Store, Choice], Grid]:
    """Methods by the number K of draws."""

    def table(store: Store, choice: Choice) -> Grid:
        paper = accuracies(name)
        chosen = choice._replace(methods=methods)
        rows, notes = [], []
        for k in KS:
            found = cells(store, chosen, k=k)
            best = best_means(found, choice.datasets)
            notes += marks_of(found)
            for method in methods:
                row = [found[method, dataset] for dataset in choice.datasets]
                beside = [paper.get((k, method, d), '') for d in choice.datasets]
                title = f'K = {k}, {METHODS[method].title}'
                rows.append((title, entries(row, beside, best)))
        notes = [f'{COUNTED}; below it what the paper prints.', *sorted(set(notes))]
        return Grid(['', *choice.datasets], rows, notes)

    return table


def paired(store: Store, choice: Choice) -> Grid:
    """Our rows against the controls on the same splits."""
    ours = tuple(name for name in choice.methods if METHODS[name].group == 'ours')
    found = cells(store, choice._replace(methods=(*ours, *CONTROLS, 'uniform')))
    rows = []
    for method in ours:
        for control in (*CONTROLS, 'uniform'):
            row = [
                compare(found[method, d], found[control, d]) for d in choice.datasets
            ]
            title = f'{METHODS[method].title} - {METHODS[control].title}'
            rows.append((title, [Entry('' if c is None else str(c)) for c in row]))
    note = (
        f'Points of test accuracy; {PAIRED}. No p-value is corrected for their number.'
    )
    return Grid(['', *choice.datasets], rows, [note])


def verdicts(store: Store, choice: Choice) -> Grid:
    """Our rows beside the paper's: within its standard deviation, above or below."""
    ours = tuple(name for name in choice.methods if METHODS[name].group == 'ours')
    found = cells(store, choice._replace(methods=ours))
    paper = accuracies('table1')
    datasets = [d for d in choice.datasets if any(d in key for key in paper)]
    rows = [
        (
            METHODS[method].title,
            [Entry(verdict(found[method, d], paper[5, method, d])) for d in datasets],
        )
        for method in ours
    ]
    note = (
        "'within': within one standard deviation of the paper's mean. From "
        f'{LEAST_RUNS} runs on.'
    )
    return Grid(['', *datasets], rows, [note])


def controls(store: Store, choice: Choice) -> Grid:
    """The paper's best method beside what it has to beat: without the paper's."""
    shown = ('neural_gau_sim', 'neural_gau_sim_t', 'uniform', *CONTROLS)
    found = cells(store, choice._replace(methods=shown))
    best = best_means(found, choice.datasets)
    blank = [''] * len(choice.datasets)
    rows = [
        (
            METHODS[method].title,
            entries([found[method, d] for d in choice.datasets], blank, best),
        )
        for method in shown
    ]
    return Grid(['', *choice.datasets], rows, [f'{COUNTED}.', *marks_of(found)])


def tuned(store: Store, choice: Choice) -> Grid:
    """The settings that a search found, on splits that did not select them."""
    methods = ('neural_gau_sim', *CONTROLS)
    known = read_json(store.root / TUNED.name) or {}
    datasets = tuple(d for d in PAPER if known.get(d, {}).keys() >= {*methods})
    found = {}
    for dataset, method in itertools.product(datasets, methods):
        best = known[dataset][method]
        one = Choice((dataset,), (method,), COMPARED, best['preset'], choice.label)
        found |= cells(store, one, **best['setting'])
    blank, top = [''] * len(datasets), best_means(found, datasets)
    rows = []
    for method in methods:
        row = [found[method, dataset] for dataset in datasets]
        rows.append((METHODS[method].title, entries(row, blank, top)))
    for control in CONTROLS:
        pairs = [compare(found[methods[0], d], found[control, d]) for d in datasets]
        title = f'{METHODS[methods[0]].title} - {METHODS[control].title}'
        rows.append((title, [Entry('' if c is None else str(c)) for c in pairs]))
    trials = {known[d][method]['trials'] for d in datasets for method in methods}
    notes = [f'{COUNTED}; {PAIRED}.', *marks_of(found)]
    if trials:
        notes.append(f'Trials of each search: {", ".join(map(str, sorted(trials)))}.')
    return Grid(['', *datasets], rows, notes)


TABLES: dict[str, tuple[str, Callable[[Store, Choice], Grid]]] = {
    'table1': ('table1', table1),
    'controls': ('table1', controls),
    'paired': ('table1', paired),
    'verdicts': ('table1', verdicts),
    'tuned': ('table1', tuned),
    'table2': ('table2', by_k('table2', FULL)),
    'table3': ('table3', by_k('table3', TRANSITION)),
}


def render(name: str, kind: str, store: Store, choice: Choice) -> str:
    """The text of a table."""
    if name == 'table4':
        return cost_grid(store.root).render(kind)
    experiment, make = TABLES[name]
    default = EXPERIMENTS[experiment]
    filled = choice._replace(
        datasets=choice.datasets or default.datasets,
        methods=choice.methods or default.methods,
    )
    return make(store, filled).render(kind)


def fill(text: str, kind: str, store: Store) -> str:
    """Renews all tables of a document, which stand between two marks."""
    choice = Choice((), (), SEEDS)
    left, right = ('<!-- ', ' -->') if kind == 'markdown' else ('.. ', '')
    pattern = re.compile(
        rf'(^{left}begin (\w+){right}\n).*?(^{left}end \2{right}$)', re.M | re.S
    )

    marks = [re.findall(rf'^{left}{word} (\w+){right}$', text, re.M) for word in WORDS]
    if marks[0] != marks[1]:
        raise ValueError(f"'begin' and 'end' of tables do not match: {marks}")

    def renew(found: re.Match[str]) -> str:
        table = render(found[2], kind, store, choice).rstrip()
        return f'{found[1]}\n{table}\n\n{found[3]}'

    return pattern.sub(renew, text)


def write_documents(store: Store, paths: tuple[Path, ...] = DOCUMENTS) -> None:
    for path in paths:
        kind = 'markdown' if path.suffix == '.md' else 'rst'
        text = path.read_text(encoding='utf-8')
        write_text(path, fill(text, kind, store))
        print('wrote', path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('table', nargs='?', choices=[*TABLES, 'table4'])
    parser.add_argument('--format', choices=FORMATS, default='markdown')
    parser.add_argument('--datasets', nargs='+', default=[])
    parser.add_argument('--label', help='column of the labels, for files')
    parser.add_argument('--methods', nargs='+', default=[], choices=METHODS)
    parser.add_argument('--preset', choices=PRESETS, default='standard')
    parser.add_argument('--results', type=Path, default=RESULTS)
    parser.add_argument('--write', action='store_true')
    args = parser.parse_args()
    # Runs of this folder that no archive has yet are in no clone.
    store = Store(args.results, archives_only=True)
    if args.write:
        write_documents(store)
    elif args.table is None:
        parser.error('name a table, or --write')
    else:
        choice = Choice(
            tuple(args.datasets), tuple(args.methods), SEEDS, args.preset, args.label
        )
        print(render(args.table, args.format, store, choice))


if __name__ == '__main__':
    main()
