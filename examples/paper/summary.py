"""From runs to the numbers of a table: means, deviations, paired tests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from archive import Record
from config import GIVEN, RunConfig
from published import Accuracy
from scipy import stats
from store import Store

#: How a run that does not end by itself is marked.
MARKS = {'timeout': '†', 'diverged': '‡', 'epochs': '§'}
#: Fewer runs are neither the best of a table, nor tested, nor compared with the paper.
LEAST_RUNS = 3
#: In %: no differences of accuracies, but of how they were rounded.
ROUNDING = 1e-9
#: Of the paper's split, 25 and 50 %.
TEST_TO_TRAIN = 0.5


class Cell(NamedTuple):
    """One method on one data set.

    Args:
        test: Test accuracy in % of each seed.
        note: Why there is none, such as `OOM at 24 GB`.
        marks: Of runs that were ended early.
        is_one_split: Whether all seeds share the split that a file brings.
    """

    test: Mapping[int, float]
    note: str = ''
    marks: str = ''
    is_one_split: bool = False

    @property
    def mean(self) -> float:
        return statistics.mean(self.test.values()) if self.test else math.nan

    @property
    def std(self) -> float:
        """The sample standard deviation; none of a single run."""
        enough = len(self.test) > 1
        return statistics.stdev(self.test.values()) if enough else math.nan

    def __str__(self) -> str:
        if not self.test:
            return ' '.join(part for part in (self.note, self.marks) if part)
        std = '' if math.isnan(self.std) else f' ± {self.std:.1f}'
        note = f', {self.note}' if self.note else ''
        return f'{self.mean:.1f}{std}{self.marks} ({len(self.test)}{note})'


class Comparison(NamedTuple):
    """Paired differences of two methods on the same splits, in points of accuracy."""

    difference: float
    std: float
    p_value: float
    count: int

    def __str__(self) -> str:
        if math.isnan(self.p_value):
            return f'{self.difference:+.1f} ({self.count})'
        p = 'p < 0.001' if self.p_value < 0.001 else f'p = {self.p_value:.3f}'
        return f'{self.difference:+.1f} ± {self.std:.1f}, {p} ({self.count})'


def make_cell(store: Store, configs: Iterable[RunConfig]) -> Cell:
    """Summarizes the finished among runs that differ in nothing but the seed."""
    records = [record for c in configs if (record := store.record(c)) is not None]
    test = {
        record['config']['seed']: 100 * record['outcome']['test']
        for record in records
        if record['outcome'].get('test') is not None
    }
    ends = {_end(record) for record in records}
    marks = ''.join(mark for status, mark in MARKS.items() if status in ends)
    is_one_split = any(record['outcome'].get('split') == GIVEN for record in records)
    return Cell(test, _note(records), marks, is_one_split)


def _end(record: Record) -> str:
    """How a run ended; `epochs` if its patience did not end it before."""
    outcome, config = record['outcome'], record['config']
    is_last = outcome.get('epochs') == config['epochs']
    is_done = outcome['status'] == 'done'
    return 'epochs' if is_done and is_last else str(outcome['status'])


def _note(records: list[Record]) -> str:
    for record in records:
        if record['outcome']['status'] == 'oom':
            return str(record['outcome']['detail'])
    return ''


def compare(first: Cell, second: Cell) -> Comparison | None:
    """A two-sided paired test over the seeds that both have.

    The t-test of Nadeau and Bengio (2003) for random splits: they overlap, so that the
    variance of the mean is larger than that of independent differences by the ratio of
    test to training nodes.
    """
    seeds = sorted(first.test.keys() & second.test.keys())
    if not seeds:
        return None
    differences = [first.test[seed] - second.test[seed] for seed in seeds]
    mean = statistics.mean(differences)
    if len(seeds) < 2:
        return Comparison(mean, math.nan, math.nan, 1)
    std = statistics.stdev(differences)
    # Without any spread the test has no answer; of two splits it says too little, and
    # of one nothing about others.
    is_one_split = first.is_one_split or second.is_one_split
    if std < ROUNDING or len(seeds) < LEAST_RUNS or is_one_split:
        return Comparison(mean, std, math.nan, len(seeds))
    error = std * math.sqrt(1 / len(seeds) + TEST_TO_TRAIN)
    p = 2 * float(stats.t.sf(abs(mean) / error, len(seeds) - 1))
    return Comparison(mean, std, p, len(seeds))


def verdict(cell: Cell, paper: Accuracy | None) -> str:
    """Where a mean lies: by the paper's standard deviation, of one run of its five."""
    if len(cell.test) < LEAST_RUNS:
        return ''
    if paper is None:
        return 'paper: OOM'
    if abs(cell.mean - paper.mean) <= paper.std:
        return 'within'
    return 'above' if cell.mean > paper.mean else 'below'
