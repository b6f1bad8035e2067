"""Make rows of accuracies, with the differences of ours, for our own experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reproduction.summary import (
    LEAST_RUNS,
    TEST_TO_TRAIN,
    Cell,
    Comparison,
    compare,
)
from reproduction.tables import COUNTED, Entry

#: Level of the tests.
LEVEL = 0.05

#: What a column is of; at the end of full keys, a method.
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


def compared_note(ours: str, tests: int, how: str) -> str:
    """Say what the rows hold, and how the differences were tested."""
    return (
        f'{COUNTED}. Below it the mean difference of {ours} (ours) on the same splits. '
        f'A star: not equal at a level of {LEVEL}, by two-sided paired t-tests {how}, '
        f"corrected for all {tests} tests of the experiment (Holm's method)"
    )


def accuracy_rows(
    found: Mapping[Any, Cell],
    columns: Iterable[Key],
    titles: Mapping[str, str],
    pairs: Mapping[Any, Comparison],
    p_values: Mapping[Any, float],
) -> list[tuple[str, list[Entry]]]:
    """Make a row for each method that has run: accuracies, and how much ours is better.

    Args:
        found: The accuracies by column and method.
        columns: What comes before the method in the keys of each column.
        titles: The titles of the methods.
        pairs: The comparisons of ours with the other methods, by the same keys.
        p_values: Corrected p-values of those that were tested.
    """
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
    return [(title, row) for title, row in rows if any(entry.ours for entry in row)]


def signed(value: float, digits: int = 1) -> str:
    """Write a difference; zero has no minus."""
    return f'{round(value, digits) + 0.0:+.{digits}f}'


def _best(cells: Mapping[str, Cell]) -> set[str]:
    """Return the methods of the highest mean, as printed, of those of most runs."""
    most = max(LEAST_RUNS, *(len(cell.test) for cell in cells.values()), 0)
    means = {n: round(c.mean, 1) for n, c in cells.items() if len(c.test) == most}
    return {name for name, mean in means.items() if mean == max(means.values())}
