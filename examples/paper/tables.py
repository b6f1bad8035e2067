"""Prints the paper's tables from finished runs, the paper's figures beside ours.

python examples/paper/tables.py table1
python examples/paper/tables.py table3 --format latex
python examples/paper/tables.py --write  # all, into README and documentation
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from cells import COUNTED, best_means, cells, entries, head, marks_of
from command import check_files, told_plainly
from comparisons import controls, paired, tuned, verdicts
from cost import NAME as COST
from cost import cost_grid
from experiments import EXPERIMENTS, FULL, KS, MAX_SEEDS, TRANSITION, Choice
from files import write_text
from grid import FORMATS, Grid
from methods import METHODS
from published import accuracies
from settings import PRESETS
from store import Store
from tuned import RESULTS, data_key

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: What stands in the marks before and after a table.
WORDS = ('begin', 'end')
DOCUMENTS = (ROOT / 'README.md', ROOT / 'docs' / 'results.rst')
#: Seeds that a table looks for; those that are missing are not counted.
SEEDS = range(MAX_SEEDS)


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
    return Grid(head(choice.datasets), rows, notes)


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
        return Grid(head(choice.datasets), rows, notes)

    return table


TABLES: dict[str, tuple[str, Callable[[Store, Choice], Grid]]] = {
    'table1': ('table1', table1),
    'controls': ('table1', controls),
    'paired': ('table1', paired),
    'verdicts': ('table1', verdicts),
    'tuned': ('table1', tuned),
    'table2': ('table2', by_k('table2', FULL)),
    'table3': ('table3', by_k('table3', TRANSITION)),
}

#: What can be chosen, and what a table then has of its own where it cannot.
CHOICES = {
    'methods': 'rows',
    'preset': 'settings',
    'datasets': 'data',
    'label': 'labels',
}
FIXED: dict[str, tuple[str, ...]] = {
    'controls': ('methods',),
    'table2': ('methods',),
    'table3': ('methods',),
    'tuned': ('methods', 'preset'),
    'table4': tuple(CHOICES),
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
    grid = make(store, filled)
    if grid.is_empty and 'preset' not in FIXED.get(name, ()):
        grids = {p: make(store, filled._replace(preset=p)) for p in PRESETS[:3]}
        if known := [preset for preset, other in grids.items() if not other.is_empty]:
            words = ' and '.join(f'--preset {preset}' for preset in known)
            grid = grid._replace(empty=f'{grid.empty}, but some of {words}')
    return grid.render(kind)


def fill(text: str, kind: str, store: Store) -> str:
    """Renews all tables of a document, which stand between two marks."""
    choice = Choice((), (), SEEDS, results=store.root)
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


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('table', nargs='?', choices=[*TABLES, 'table4'])
    add('--format', choices=FORMATS, help=f'({FORMATS[0]})')
    add('--datasets', nargs='+', metavar='DATASET', help='names or files')
    add('--label', help='column of the labels, for files')
    add(
        '--methods',
        nargs='+',
        choices=METHODS,
        metavar='METHOD',
        help=f'some of {", ".join(METHODS)}',
    )
    add('--preset', choices=PRESETS[:3], help=f'({PRESETS[0]})')
    add('--results', type=Path, default=RESULTS, help='folder (that of this program)')
    add('--write', action='store_true', help='renew README and documentation')
    return parser


def refusal(args: argparse.Namespace) -> str | None:
    """Why words do not go together, if they do not."""
    given = [name for name in ('format', *CHOICES) if getattr(args, name) is not None]
    if args.write:
        more = [args.table] if args.table else [f'--{name}' for name in given]
        if args.results.resolve() != RESULTS.resolve():
            more.append(f'--results {args.results}')
        why = '--write renews all tables, from the results of this program'
        return f'{why}: leave out {more[0]}' if more else None
    if args.table is None:
        return 'name a table, or --write'
    for name in FIXED.get(args.table, ()):
        if name in given:
            return f'{args.table} has {CHOICES[name]} of its own: leave out --{name}'
    return None


def check_results(root: Path, table: str | None) -> str | None:
    """Why no table can be made of a folder, if none can."""
    needed = f'{COST}.json' if table == 'table4' else '*.runs.json'
    if root.is_dir() and any(root.glob(needed)):
        return None
    what = 'which holds none' if root.is_dir() else 'which is no folder'
    return f"--results must be a folder with {needed} (got '{root}', {what})"


@told_plainly
def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    if reason := refusal(args):
        parser.error(reason)
    check_files(args.datasets or (), args.label)
    if reason := check_results(args.results, args.table):
        parser.error(reason)
    # Runs of this folder that no archive has yet are in no clone.
    store = Store(args.results, archives_only=True)
    if args.write:
        write_documents(store)
        return
    datasets = {data_key(name, args.label): name for name in args.datasets or ()}
    choice = Choice(
        tuple(datasets.values()),
        tuple(dict.fromkeys(args.methods or ())),
        SEEDS,
        args.preset or PRESETS[0],
        args.label,
        args.results,
    )
    print(render(args.table, args.format or FORMATS[0], store, choice))


if __name__ == '__main__':
    main()
