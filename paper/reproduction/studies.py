"""Store the runs of a study in one file, execute missing ones, and compare them."""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from tqdm import tqdm

from reproduction.command import make_parser
from reproduction.files import read_results, write_json
from reproduction.record import environment, positive
from reproduction.settings import RESULTS
from reproduction.summary import (
    LEAST_RUNS,
    TEST_TO_TRAIN,
    Cell,
    Comparison,
    compare,
    holm,
)
from reproduction.tables import COUNTED, Entry, Grid

Result = dict[str, Any]
Run = TypeVar('Run')


def parse_args(
    arguments: list[str] | None,
    name: str,
    description: str | None,
    lists: Mapping[str, Sequence[Any]],
    seeds: int,
) -> argparse.Namespace:
    """Parse the arguments of an experiment; lists have all values by default."""
    parser = make_parser(description)
    parser.prog = f'run.py {name}'
    add = parser.add_argument
    for option, values in lists.items():
        selection: dict[str, Any] = {'choices': values, 'default': values}
        selection |= {'type': type(values[0]), 'metavar': option[0].upper()}
        add(f'--{option}', nargs='+', **selection)
    add('--seeds', type=positive, default=seeds)
    add('--jobs', type=positive, default=1, help='number of processes')
    add('--results', type=Path, default=RESULTS)
    return parser.parse_args(arguments)


class Results:
    """The finished runs of a setting, in a file that is replaced atomically.

    Results of another setting, or of an earlier version of a method, are left out.
    Results of methods that this program does not know stay in the file. Commands that
    run at the same time can add to one file.
    """

    def __init__(
        self, path: Path, setting: dict[str, Any], methods: Mapping[str, Any]
    ) -> None:
        self.path = path
        self.setting = setting
        self.digests = {name: _digest(setting, m) for name, m in methods.items()}
        self.runs: dict[str, Result] = {}
        self._read()

    def _read(self) -> dict[str, Any]:
        """Add the runs of the file to those in memory; return runs of other methods."""
        content = read_results(self.path) or {}
        self._note(content)
        digests, runs = content.get('digests', {}), content.get('runs', {})
        unknown = {}
        if content.get('setting') == json.loads(json.dumps(self.setting)):
            unknown = {m: d for m, d in digests.items() if m not in self.digests}
        current = {m for m, digest in digests.items() if self.digests.get(m) == digest}
        self.runs = _of_methods(runs, current) | self.runs
        return {'digests': unknown, 'runs': _of_methods(runs, unknown)}

    def add(self, name: str, result: Result) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(f'.{self.path.name}.lock')):
            unknown = self._read()  # Another command may have added some since.
            self.runs[name] = result
            runs = dict(sorted((unknown['runs'] | self.runs).items()))
            content = {
                'setting': self.setting,
                'digests': unknown['digests'] | self.digests,
                'runs': runs,
            }
            write_json(self.path, content | self._environments(runs))

    def _note(self, content: dict[str, Any]) -> None:
        """Read other entries of the file."""

    def _environments(self, runs: Mapping[str, Result]) -> dict[str, Any]:
        """Return the environment of the runs."""
        return {'environment': environment(device='cpu')}

    def complete(
        self,
        title: str,
        runs: Sequence[Run],
        execute: Callable[..., tuple[str, Result]],
        jobs: int,
    ) -> None:
        """Execute the missing runs, and store each result immediately."""
        task = functools.partial(execute, setting=self.setting)
        missing = [run for run in runs if str(run) not in self.runs]
        print(f'{title}: {len(runs)} runs, {len(runs) - len(missing)} finished')
        with _results_of(missing, task, jobs) as results:
            for name, result in tqdm(results, total=len(missing), disable=None):
                self.add(name, result)


def read_runs(path: Path, methods: Mapping[str, Any]) -> dict[str, Result]:
    """Return the runs of a file whose methods have not changed."""
    content = read_results(path) or {}
    setting, digests = content.get('setting', {}), content.get('digests', {})
    current = {name: _digest(setting, method) for name, method in methods.items()}
    unchanged = {
        name for name, digest in current.items() if digests.get(name, digest) == digest
    }
    return _of_methods(content.get('runs', {}), unchanged)


def read_cells(
    path: Path, methods: Mapping[str, Any], measure: str = 'test', scale: float = 100.0
) -> dict[tuple[str, ...], Cell]:
    """Return test accuracies in %, or other scores, by the name without the seed."""
    tests: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for name, result in read_runs(path, methods).items():
        *key, seed = name.split('/')
        if result.get(measure) is not None:
            tests[tuple(key)][int(seed)] = scale * result[measure]
    return {key: Cell(test) for key, test in tests.items()}


def _of_methods(runs: dict[str, Result], methods: Container[str]) -> dict[str, Result]:
    """Return the runs of some methods."""
    return {name: run for name, run in runs.items() if name.split('/')[-2] in methods}


def _digest(setting: dict[str, Any], method: Any) -> str:
    text = json.dumps([setting, method._asdict()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@contextlib.contextmanager
def _results_of(
    runs: list[Run], task: Callable[[Run], tuple[str, Result]], jobs: int
) -> Iterator[Iterator[tuple[str, Result]]]:
    """Yield the results of runs, in any order, from other processes or this one."""
    if jobs == 1:
        yield map(task, runs)
        return
    with multiprocessing.get_context('spawn').Pool(jobs) as pool:
        yield pool.imap_unordered(task, runs)


#: Significance level of the tests.
LEVEL = 0.05
#: Description of tests on splits that share nodes.
OVERLAPPING = 'with a correction for splits that overlap'

#: Key of a column; full keys end with a method.
Key = tuple[Any, ...]


def compare_ours(
    cells: Mapping[Any, Cell], ours: str, overlap: float = TEST_TO_TRAIN
) -> dict[Any, Comparison]:
    """Compare ours with each other method of its column, on the same splits."""
    pairs = {}
    for key, cell in cells.items():
        our_cell = cells.get((*key[:-1], ours))
        if key[-1] != ours and our_cell is not None:
            pairs[key] = compare(our_cell, cell, overlap)
    return {key: pair for key, pair in pairs.items() if pair is not None}


def correct(pairs: Mapping[Any, Comparison]) -> dict[Any, float]:
    """Return the p-values of comparisons, corrected for their number."""
    return holm({key: pair.p_value for key, pair in pairs.items()})


def compared_grid(
    accuracies: Mapping[Any, Cell],
    columns: Mapping[Key, str],
    titles: Mapping[str, str],
    pairs: Mapping[Any, Comparison],
    note: Callable[[int], str],
    *,
    corner: str = '',
    untested: Container[str] = (),
) -> Grid:
    """Make a table of the methods that have run, with their differences to ours.

    Args:
        accuracies: The accuracies by column and method.
        columns: The key of each column, without the method, and its title.
        titles: The titles of the methods.
        pairs: The comparisons of ours with the other methods, by the same keys.
        note: Function from the number of tests to the note below the table.
        corner: The title above those of the methods.
        untested: Methods that are compared, but not tested.
    """
    tested = {key: pair for key, pair in pairs.items() if key[-1] not in untested}
    p_values = correct(tested)
    rows: list[tuple[str, list[Entry]]] = [(title, []) for title in titles.values()]
    for column in columns:
        cells = {name: accuracies.get((*column, name)) for name in titles}
        best = _best({name: c for name, c in cells.items() if c is not None})
        for (name, cell), (_, row) in zip(cells.items(), rows, strict=True):
            key = (*column, name)
            below = ''
            if key in pairs:
                star = '*' if p_values.get(key, 1.0) < LEVEL else ''
                below = f'ours {signed(pairs[key].difference)}{star}'
            row.append(Entry('' if cell is None else str(cell), below, name in best))
    run = [(title, row) for title, row in rows if any(entry.ours for entry in row)]
    empty = f'no finished runs of {corner} yet' if corner else 'no finished runs yet'
    return Grid([corner, *columns.values()], run, [note(len(p_values))], empty)


def compared_note(ours: str, how: str, tests: int) -> str:
    """Return a note on the content of a table and the tests of its differences."""
    return (
        f'{COUNTED}. Below it: {ours} (ours) minus this row, the mean over the same '
        f'splits. A star: p < {LEVEL} in two-sided paired t-tests {how}, corrected for '
        f"all {tests} tests of the experiment (Holm's method)"
    )


def signed(value: float, digits: int = 1) -> str:
    """Format a difference with its sign; zero has no minus."""
    return f'{round(value, digits) + 0.0:+.{digits}f}'


def _best(cells: Mapping[str, Cell]) -> set[str]:
    """Return the methods with the highest printed mean, among those with most runs."""
    num_runs = max([LEAST_RUNS, *(len(cell.test) for cell in cells.values())])
    means = {n: round(c.mean, 1) for n, c in cells.items() if len(c.test) == num_runs}
    return {name for name, mean in means.items() if mean == max(means.values())}
