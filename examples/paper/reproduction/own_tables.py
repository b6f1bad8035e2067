"""Make rows of accuracies, with the differences of ours, for our own experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reproduction.summary import LEAST_RUNS, Cell
from reproduction.tables import Entry

#: Level of the tests.
LEVEL = 0.05

#: What a column is of, and a method.
Key = tuple[str | int, ...]


def accuracy_rows(
    found: Mapping[Any, Cell],
    columns: Iterable[Key],
    titles: Mapping[str, str],
    differences: Mapping[Any, float],
    p_values: Mapping[Any, float],
) -> list[tuple[str, list[Entry]]]:
    """Make a row for each method that has run: accuracies, and how much ours is better.

    Args:
        found: The accuracies by column and method.
        columns: What comes before the method in the keys of each column.
        titles: The titles of the methods.
        differences: Mean differences of ours from the other methods, by the same keys.
        p_values: Corrected p-values of those that were tested.
    """
    rows: list[tuple[str, list[Entry]]] = [(title, []) for title in titles.values()]
    for column in columns:
        cells = {name: found.get((*column, name)) for name in titles}
        best = _best({name: c for name, c in cells.items() if c is not None})
        for (name, cell), (_, row) in zip(cells.items(), rows, strict=True):
            key, below = (*column, name), ''
            if key in differences:
                star = '*' if p_values.get(key, 1.0) < LEVEL else ''
                below = f'ours {differences[key]:+.1f}{star}'
            row.append(Entry('' if cell is None else str(cell), below, name in best))
    return [(title, row) for title, row in rows if any(entry.ours for entry in row)]


def _best(cells: Mapping[str, Cell]) -> set[str]:
    """Return the methods of the highest mean, as printed, of those of most runs."""
    most = max(LEAST_RUNS, *(len(cell.test) for cell in cells.values()), 0)
    means = {n: round(c.mean, 1) for n, c in cells.items() if len(c.test) == most}
    return {name for name, mean in means.items() if mean == max(means.values())}
