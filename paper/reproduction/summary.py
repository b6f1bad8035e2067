"""Summarize runs for a table, and read the numbers of the paper."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scipy import stats

from reproduction.experiments import RunConfig
from reproduction.store import Record, Store
from reproduction.training import GIVEN

#: The numbers of the paper.
PUBLISHED = Path(__file__).with_name('published.csv')

#: Marks of runs that early stopping did not end.
MARKS = {'timeout': '†', 'diverged': '‡', 'epochs': '§'}
#: With fewer runs a cell is not bold, not tested, and not compared with the paper.
LEAST_RUNS = 3
#: In %; smaller differences of accuracies are due to rounding.
ROUNDING = 1e-9
#: Ratio of test to training nodes in the paper's split, 25 and 50 %.
TEST_TO_TRAIN = 0.5
#: Table 4: seconds and MB of one epoch on CiteSeer, on an RTX 3090.
COSTS = {
    'idgl': (0.7967, 4358),
    'idgl_anchor': (0.1249, 2986),
    'nodeformer': (0.0463, 1248),
    'lin_sim': (0.1145, 4486),
    'lin_sim_t': (0.0367, 1796),
    'gau_sim': (0.1193, 4618),
    'gau_sim_t': (0.0382, 1816),
    'neural_gau_sim': (0.1238, 4664),
    'neural_gau_sim_t': (0.0393, 1821),
}


class Accuracy(NamedTuple):
    """Mean and standard deviation of 5 runs in %; :obj:`None` for out of memory."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f'{self.mean:.2f} ± {self.std:.2f}'


class Cell(NamedTuple):
    """One method on one data set.

    Args:
        test: Test accuracy in % of each seed.
        note: Why there is no accuracy, such as `OOM at 24 GB`.
        marks: Marks of runs that early stopping did not end.
        is_one_split: If `True`, all seeds share the split of a file.
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
        """Return the sample standard deviation; NaN for a single run."""
        enough = len(self.test) > 1
        return statistics.stdev(self.test.values()) if enough else math.nan

    def __str__(self) -> str:
        if not self.test:
            return ' '.join(text for text in (self.note, self.marks) if text)
        std = '' if math.isnan(self.std) else f' ± {self.std:.1f}'
        note = f', {self.note}' if self.note else ''
        return f'{self.mean:.1f}{std}{self.marks} ({len(self.test)}{note})'


class Comparison(NamedTuple):
    """Paired differences of two methods on the same splits, in points of accuracy."""

    difference: float
    std: float
    p_value: float
    num_splits: int

    def __str__(self) -> str:
        if math.isnan(self.p_value):
            return f'{self.difference:+.1f} ({self.num_splits})'
        p = 'p < 0.001' if self.p_value < 0.001 else f'p = {self.p_value:.3f}'
        return f'{self.difference:+.1f} ± {self.std:.1f}, {p} ({self.num_splits})'


def make_cell(store: Store, configs: Iterable[RunConfig]) -> Cell:
    """Summarize the finished ones of runs that differ only in the seed."""
    records = [record for c in configs if (record := store.record(c)) is not None]
    outcomes = [record['outcome'] for record in records]
    test = {
        record['config']['seed']: 100 * record['outcome']['test']
        for record in records
        if record['outcome'].get('test') is not None
    }
    note = next((o['detail'] for o in outcomes if o['status'] == 'oom'), '')
    ends = {_end(record) for record in records}
    marks = ''.join(mark for status, mark in MARKS.items() if status in ends)
    return Cell(test, note, marks, any(o.get('split') == GIVEN for o in outcomes))


def _end(record: Record) -> str:
    """Return how a run ended; `epochs` if early stopping did not end it."""
    outcome = record['outcome']
    is_last = outcome.get('epochs') == record['config']['epochs']
    is_done = outcome['status'] == 'done'
    return 'epochs' if is_done and is_last else str(outcome['status'])


def compare(
    ours: Cell, control: Cell, overlap: float = TEST_TO_TRAIN
) -> Comparison | None:
    """Test the paired differences, two-sided, over the seeds that both have.

    This is the t-test of Nadeau and Bengio (2003): random splits overlap, so the
    variance of the mean is 1 / n plus the ratio of test to training nodes, times the
    variance of a difference. Without overlap it is the paired t-test.
    """
    seeds = sorted(ours.test.keys() & control.test.keys())
    if not seeds:
        return None
    differences = [ours.test[seed] - control.test[seed] for seed in seeds]
    mean = statistics.mean(differences)
    if len(seeds) < 2:
        return Comparison(mean, math.nan, math.nan, 1)
    std = statistics.stdev(differences)
    # There is no test without any spread, for fewer than three splits, or if all seeds
    # share one split.
    is_one_split = ours.is_one_split or control.is_one_split
    if std < ROUNDING or len(seeds) < LEAST_RUNS or is_one_split:
        return Comparison(mean, std, math.nan, len(seeds))
    error = std * math.sqrt(1 / len(seeds) + overlap)
    p = 2 * float(stats.t.sf(abs(mean) / error, len(seeds) - 1))
    return Comparison(mean, std, p, len(seeds))


def holm(p_values: Mapping[Any, float]) -> dict[Any, float]:
    """Correct p-values for multiple tests (Holm, 1979), without NaN."""
    numbers = {key: p for key, p in p_values.items() if not math.isnan(p)}
    corrected = {}
    last = 0.0
    for rank, key in enumerate(sorted(numbers, key=numbers.__getitem__)):
        last = max(last, min(1.0, (len(numbers) - rank) * numbers[key]))
        corrected[key] = last
    return corrected


def verdict(cell: Cell, paper: Accuracy | None) -> str:
    """Compare a mean with the paper's, by its standard deviation over five runs."""
    if len(cell.test) < LEAST_RUNS:
        return ''
    if paper is None:
        return 'paper: OOM'
    if abs(cell.mean - paper.mean) <= paper.std:
        return 'within'
    return 'above' if cell.mean > paper.mean else 'below'


def accuracies(table: str) -> dict[tuple[int, str, str], Accuracy | None]:
    """Read a published table by K, method and data set; :obj:`None`: OOM at 24 GB."""
    printed_cells: dict[tuple[int, str, str], Accuracy | None] = {}
    with open(PUBLISHED, encoding='utf-8', newline='') as file:
        for row in csv.DictReader(file):
            if row.pop('table') != table:
                continue
            k, method = int(row.pop('k')), row.pop('method')
            for dataset, text in row.items():
                if text:
                    mean, _, std = text.partition(' ± ')
                    printed = Accuracy(float(mean), float(std)) if std else None
                    printed_cells[k, method, dataset] = printed
    return printed_cells
