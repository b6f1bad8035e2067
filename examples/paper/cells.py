"""What the tables have in common: their cells, the best of them, and marks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from experiments import Choice
from grid import Entry
from published import Accuracy
from store import Store
from summary import LEAST_RUNS, MARKS, Cell, make_cell

from torch_geometric_gsl.datasets import DATASETS

COUNTED = (
    'Test accuracy in %: mean ± sample standard deviation (number of runs); bold: the '
    'best of those with the most runs, if three or more'
)


class Best(NamedTuple):
    runs: int
    mean: float


def head(datasets: tuple[str, ...]) -> list[str]:
    """The titles of a table's columns: a file has its name, unless two share it."""
    names = [d if d in DATASETS else Path(d).name for d in datasets]
    pairs = zip(datasets, names, strict=True)
    return ['', *(name if names.count(name) == 1 else d for d, name in pairs)]


def cells(
    store: Store, choice: Choice, **changes: object
) -> dict[tuple[str, str], Cell]:
    """The cell of each method and data set."""
    return {
        (method, dataset): make_cell(
            store,
            [choice.config(dataset, method, seed, **changes) for seed in choice.seeds],
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
        'timeout': 'stopped at its time limit, in at least one run',
        'diverged': 'loss not finite',
        'epochs': 'ended at the last epoch, before its patience, in at least one run',
    }
    used = ''.join(cell.marks for cell in found.values())
    lines = [f'{mark} {meanings[end]}.' for end, mark in MARKS.items() if mark in used]
    return [' '.join(lines)] if lines else []
