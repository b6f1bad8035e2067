"""Print the paper's tables from finished runs, with the paper's numbers and ours.

python paper/tables.py table1
python paper/tables.py table3 --format latex
python paper/tables.py --write  # all, into paper/docs
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reproduction import command
from reproduction.adaptive import ADAPTIVE_RESULTS, adaptive_grid
from reproduction.attacked_tables import (
    ATTACKED,
    ATTACKED_DATASETS,
    ATTACKED_RESULTS,
    RANDOM,
    attacked_grid,
)
from reproduction.datasets import OBSERVED
from reproduction.experiments import EXPERIMENTS, MAX_SEEDS, Choice
from reproduction.files import write_text
from reproduction.formats import FORMATS, rst_table, text_of
from reproduction.groups import GROUPS, groups_grid
from reproduction.half import HALF, half_grid
from reproduction.hidden import HIDDEN, hidden_grid, hidden_paired
from reproduction.labels import DATASETS as LABELLED
from reproduction.labels import LABELS_FILE, labels_grid, labels_paired
from reproduction.noisy import NOISE, noise_grid
from reproduction.pays import first_grid, pays_grid
from reproduction.sensors import FORECAST, NEW, SENSORS, sensors_grid
from reproduction.settings import METHODS, PRESETS, RESULTS
from reproduction.store import ARCHIVE, Store
from reproduction.tables import COST, TABLES, Grid, cost_grid
from reproduction.tables_grids import grids

ROOT = Path(__file__).resolve().parents[2]
#: Words of the marks before and after a table.
WORDS = ('begin', 'end')
#: The pages of studies, and their folder with the rows of tables.
DOCS = ROOT / 'paper' / 'docs'
NAMES = 'attacked', 'results', 'sensors', 'pays', 'tables'
DOCUMENTS = tuple(DOCS / f'{name}.rst' for name in NAMES)
FOLDER = '_tables'
#: Files of the units of tables.
UNITS = 'tables/*.json'
#: Tables with their own results file, and functions of its folder that make them.
STUDIES: dict[str, tuple[str, Callable[[Path], Grid]]] = {
    'table4': (COST, cost_grid),
    'hidden': (HIDDEN, hidden_grid),
    'hidden_paired': (HIDDEN, hidden_paired),
    **{
        f'noise_{name}': (NOISE, functools.partial(noise_grid, name))
        for name in OBSERVED
    },
    'half': (HALF, half_grid),
    'groups': (GROUPS, groups_grid),
    **{
        f'{split}_{name}'.replace('-', '_'): (
            ATTACKED_RESULTS,
            functools.partial(attacked_grid, name, split),
        )
        for name in ATTACKED_DATASETS
        for split in (ATTACKED, RANDOM)
    },
    'adaptive': (ADAPTIVE_RESULTS, adaptive_grid),
    **{
        f'sensors_{task}': (SENSORS, functools.partial(sensors_grid, task))
        for task in (FORECAST, NEW)
    },
    'pays_first': (HIDDEN, first_grid),
    'pays': (HIDDEN, pays_grid),
    'labels_paired': (LABELS_FILE, labels_paired),
    **{
        f'labels_{name}': (LABELS_FILE, functools.partial(labels_grid, name))
        for name in LABELLED
    },
    **{name: (UNITS, make) for name, make in grids().items()},
}
#: Seeds that a table reads; missing ones do not count.
SEEDS = range(MAX_SEEDS)
#: Options, and what is fixed in a table that does not support the option.
CHOICES = {
    'methods': 'rows',
    'preset': 'settings',
    'datasets': 'data',
    'label': 'labels',
}
FIXED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(('controls', 'table2', 'table3'), ('methods',)),
    'tuned': ('methods', 'preset'),
    **dict.fromkeys(STUDIES, tuple(CHOICES)),
}
#: Defaults of options that were not given.
DEFAULTS = {'format': 'markdown', 'datasets': (), 'methods': (), 'preset': PRESETS[0]}


class Filled(NamedTuple):
    """A document with its tables, and the rows of the tables by file name."""

    text: str
    files: dict[str, str]


def make_grid(name: str, store: Store, choice: Choice) -> Grid:
    """Make a table; if it has no runs, it names the presets that have some."""
    if name in STUDIES:
        return STUDIES[name][1](store.root)
    experiment, make = TABLES[name]
    datasets, methods, _ = EXPERIMENTS[experiment]
    filled = choice._replace(
        datasets=choice.datasets or datasets, methods=choice.methods or methods
    )
    grid = make(store, filled)
    if grid.is_empty and 'preset' not in FIXED.get(name, ()):
        grids = {p: make(store, filled._replace(preset=p)) for p in PRESETS[:3]}
        if presets := [preset for preset, table in grids.items() if not table.is_empty]:
            words = ' and '.join(f'--preset {preset}' for preset in presets)
            grid = grid._replace(empty=f'{grid.empty}, but some of {words}')
    return grid


def fill(text: str, store: Store) -> Filled:
    """Update all tables of a document, each between two marks.

    Their rows are in files, and each note appears once.
    """
    files: dict[str, str] = {}
    written: set[str] = set()
    choice = Choice((), (), SEEDS, results=store.root)
    pattern = re.compile(r'(^\.\. begin (\w+)\n).*?(^\.\. end \2$)', re.M | re.S)
    marks = [re.findall(rf'^\.\. {word} (\w+)$', text, re.M) for word in WORDS]
    if marks[0] != marks[1]:
        raise ValueError(f"'begin' and 'end' of tables do not match: {marks}")

    def renew(match: re.Match[str]) -> str:
        grid = make_grid(match[2], store, choice)
        if grid.is_empty:
            empty = text_of(grid, 'rst')
            return f'{match[1]}\n{empty.rstrip()}\n\n{match[3]}'
        file = f'{FOLDER}/{match[2]}.csv'
        files[file] = text_of(grid, 'csv')
        new = [note for note in grid.notes if note not in written]
        written.update(new)
        table = rst_table(grid._replace(notes=new), f'/{file}').rstrip()
        end = '\n\n' if new else '\n'  # A mark may follow a table, not text.
        return f'{match[1]}{table}{end}{match[3]}'

    return Filled(pattern.sub(renew, text), files)


def write_documents(store: Store) -> None:
    for path in DOCUMENTS:
        filled = fill(path.read_text(encoding='utf-8'), store)
        files = {DOCS / name: rows for name, rows in filled.files.items()}
        for file, text in {path: filled.text, **files}.items():
            if not file.exists() or file.read_text(encoding='utf-8') != text:
                write_text(file, text)
                print('wrote', file)


def table_parser() -> argparse.ArgumentParser:
    parser = command.make_parser(__doc__)
    add = parser.add_argument
    names = f'some of {", ".join(METHODS)}'
    add('table', nargs='?', choices=[*TABLES, *STUDIES])
    add('--format', choices=FORMATS, help='(markdown)')
    add('--datasets', nargs='+', metavar='DATASET', help='names or files')
    add('--methods', nargs='+', choices=METHODS, metavar='M', help=names)
    add('--write', action='store_true', help='update paper/docs')
    command.add_choice(parser)
    parser.set_defaults(preset=None)
    return parser


def refusal(args: argparse.Namespace) -> str | None:
    """Return the reason why options conflict, if they do."""
    options = [name for name in ('format', *CHOICES) if getattr(args, name) is not None]
    if args.write:
        conflicts = [args.table] if args.table else [f'--{name}' for name in options]
        if args.results.resolve() != RESULTS.resolve():
            conflicts.append(f'--results {args.results}')
        why = '--write renews all tables, from the results of this program'
        return f'{why}: leave out {conflicts[0]}' if conflicts else None
    if args.table is None:
        return 'name a table, or --write'
    for name in FIXED.get(args.table, ()):
        if name in options:
            return f'{args.table} has {CHOICES[name]} of its own: leave out --{name}'
    return None


def check_results(root: Path, table: str | None) -> str | None:
    """Return the reason why no table can be made from a folder, if any."""
    needed = STUDIES[table][0] if table in STUDIES else f'*{ARCHIVE}'
    if root.is_dir() and any(root.glob(needed)):
        return None
    obstacle = 'which holds none' if root.is_dir() else 'which is no folder'
    return f"--results must be a folder with {needed} (got '{root}', {obstacle})"


@command.told_plainly()
def main() -> None:
    parser = table_parser()
    args = parser.parse_args()
    if reason := refusal(args):
        parser.error(reason)
    for name, default in DEFAULTS.items():
        setattr(args, name, getattr(args, name) or default)
    command.check_files(args.datasets, args.label)
    if reason := check_results(args.results, args.table):
        parser.error(reason)
    # Only archives: other runs of this folder are not in a clone.
    store = Store(args.results, archives_only=True)
    if args.write:
        write_documents(store)
        return
    grid = make_grid(args.table, store, command.choice_of(args, SEEDS))
    print(text_of(grid, args.format))
