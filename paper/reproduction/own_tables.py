"""Make tables of accuracies, with the differences of ours, for our own experiments."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from reproduction.summary import (
    LEAST_RUNS,
    TEST_TO_TRAIN,
    Cell,
    Comparison,
    compare,
    holm,
)
from reproduction.tables import COUNTED, Entry, Grid

#: Significance level of the tests.
LEVEL = 0.05
#: Description of tests on splits that share nodes.
OVERLAPPING = 'with a correction for splits that overlap'

#: Key of a column; full keys end with a method.
Key = tuple[Any, ...]


def compare_ours(
    found: Mapping[Any, Cell], ours: str, overlap: float = TEST_TO_TRAIN
) -> dict[Any, Comparison]:
    """Compare ours with each other method of its column, on the same splits."""
    pairs = {}
    for key, cell in found.items():
        own = found.get((*key[:-1], ours))
        if key[-1] != ours and own is not None:
            pairs[key] = compare(own, cell, overlap)
    return {key: pair for key, pair in pairs.items() if pair is not None}


def correct(pairs: Mapping[Any, Comparison]) -> dict[Any, float]:
    """Return the p-values of comparisons, corrected for their number."""
    return holm({key: pair.p_value for key, pair in pairs.items()})


def compared_grid(
    found: Mapping[Any, Cell],
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
        found: The accuracies by column and method.
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
        cells = {name: found.get((*column, name)) for name in titles}
        best = _best({name: c for name, c in cells.items() if c is not None})
        for (name, cell), (_, row) in zip(cells.items(), rows, strict=True):
            key, below = (*column, name), ''
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
    most = max([LEAST_RUNS, *(len(cell.test) for cell in cells.values())])
    means = {n: round(c.mean, 1) for n, c in cells.items() if len(c.test) == most}
    return {name for name, mean in means.items() if mean == max(means.values())}
