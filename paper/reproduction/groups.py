"""Predict the rows of new groups, and later rows, beside boosting.

    python paper/run.py groups
    python paper/run.py groups --cases places later --methods lightgbm blend blend_told

Each fold holds out whole groups (places of California, days of rented bikes, made-up
patients with repeated measures), or the last fifth of the rows. At most 4,000 of the
other rows are for training and validation. A method that is told the groups, or the
order, chooses its validation rows by them, else at random. The number of the group is
no column, but columns may tell it, such as those of the date. Finished runs are stored
in `<results>/groups.json`; a restarted run continues with the missing ones.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, ShuffleSplit

from reproduction import studies
from reproduction.tables import Entry, Grid
from reproduction.tables_data import SOURCES, Array, Problem, score
from reproduction.tables_methods import METHODS as TABLE_METHODS
from reproduction.tables_methods import SETTING, fit
from reproduction.tables_neighbours import Options
from torch_geometric_gsl.sklearn import GSLRegressor

GROUPS = 'groups.json'
GROUPS_SETTING: dict[str, Any] = SETTING | {'most_rows': 4000, 'held': 0.2}


class Case(NamedTuple):
    """A table with a group of each row, or with their order.

    Args:
        title: The title of its column.
        folds: The number of folds.
        is_later: If `True`, the last rows are held out, else whole groups.
        source: The table, if it is not made up.
    """

    title: str
    folds: int
    is_later: bool = False
    source: str = ''


CASES = {
    'places': Case('California, new places', 10, source='california'),
    'days': Case('bike, new days', 5, source='bike'),
    'patients': Case('repeated measures, new patients', 5),
    'later': Case('sml, last fifth', 1, True, 'sml'),
    'bike_later': Case('bike, last fifth', 1, True, 'bike'),
}


class Method(NamedTuple):
    """A row of the table.

    Args:
        title: Its title.
        name: Boosting of another library, or empty.
        graph: The parameter of the estimator.
        is_told: If `True`, the groups or the order are passed to `fit`.
    """

    title: str
    name: str = ''
    graph: str = ''
    is_told: bool = False


TOLD = 'groups or order'
METHODS = {
    'lightgbm': Method('LightGBM', 'lightgbm'),
    'catboost': Method('CatBoost', 'catboost'),
    'blend': Method('blend', graph='auto'),
    'lightgbm_told': Method(f'LightGBM, {TOLD}', 'lightgbm', is_told=True),
    'catboost_told': Method(f'CatBoost, {TOLD}', 'catboost', is_told=True),
    'blend_told': Method(f'blend, {TOLD}', graph='auto', is_told=True),
    'learned_told': Method(f'learned graph, {TOLD}', graph='learned', is_told=True),
}


class Run(NamedTuple):
    """A method on a fold of a case."""

    case: str
    method: str
    fold: int

    def __str__(self) -> str:
        return f'{self.case}/{self.method}/{self.fold}'


def patients(num_groups: int = 200, num_visits: int = 20) -> tuple[Array, ...]:
    """Make up measures of patients, whose level no column explains entirely."""
    random = np.random.RandomState(0)
    group = np.repeat(np.arange(num_groups), num_visits)
    traits = random.normal(size=(num_groups, 5))
    level = traits[:, 0] - np.abs(traits[:, 1]) + random.normal(size=num_groups)
    visit = random.normal(size=(len(group), 3))
    noise = 0.3 * random.normal(size=len(group))
    y = level[group] + np.sin(2 * visit[:, 0]) + visit[:, 1] * visit[:, 2] + noise
    return np.concatenate([traits[group], visit], axis=1), y, group


def load(case: Case) -> tuple[Array, Array, Array]:
    """Return columns, targets, and the group or the order of each row."""
    if not case.source:
        x, y, group = patients()
        return x, y, group
    source = SOURCES[case.source]
    table = source.read()
    x = table.x
    if source.coordinates:
        clusters = KMeans(10, n_init=10, random_state=0)
        return x, table.y, clusters.fit_predict(x[:, list(source.coordinates)])
    columns = source.time if case.is_later else source.time[:-1]
    _, group = np.unique(x[:, list(columns)], axis=0, return_inverse=True)
    return x, table.y, np.ravel(group)


def rows_of(case: Case, group: Array, fold: int, count: int) -> tuple[Array, Array]:
    """Return the rows for training and validation, and those of the test."""
    if case.is_later:
        order = np.argsort(group, kind='stable')
        num_train = len(order) * 4 // 5
        train, test = order[:num_train], order[num_train:]
    else:
        folds = GroupKFold(case.folds, shuffle=True, random_state=0)
        train, test = [*folds.split(group, groups=group)][fold]
    return np.random.RandomState(fold).permutation(train)[:count], test


def held_out(case: Case, group: Array, is_told: bool, share: float, seed: int) -> Array:
    """Return which rows are held back for the validation of boosting."""
    if is_told and case.is_later:
        return np.asarray(group >= np.quantile(group, 1 - share))
    splitter = GroupShuffleSplit if is_told else ShuffleSplit
    splits = splitter(1, test_size=share, random_state=seed)
    _, val = next(splits.split(group, groups=group if is_told else None))
    return np.isin(np.arange(len(group)), val)


def execute(run: Run, setting: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Execute a run; return its error."""
    torch.set_num_threads(1)
    warnings.filterwarnings('ignore', 'column .* may identify groups')
    case, method = CASES[run.case], METHODS[run.method]
    x, y, group = load(case)
    rows, test = rows_of(case, group, run.fold, setting['most_rows'])
    start = time.perf_counter()
    details: dict[str, Any] = {}
    if method.name:
        is_val = held_out(case, group[rows], method.is_told, setting['held'], run.fold)
        train, val = rows[~is_val], rows[is_val]
        data = Problem((x[train], x[val], x[test]), (y[train], y[val]))
        boosting = TABLE_METHODS[method.name]
        options = Options(run.fold, 1, setting)
        prediction = fit(data, boosting, {}, options).predict(x[test])
    else:
        model = GSLRegressor(method.graph, random_state=run.fold)
        told = {'order' if case.is_later else 'groups': group[rows]}
        model.fit(x[rows], y[rows], **(told if method.is_told else {}))
        prediction = model.predict(x[test])
        details['weights'] = model.report_.weight.dropna().to_dict()
        details['far'] = float(model.is_far(x[test]).mean())
    seconds = round(time.perf_counter() - start, 1)
    error = score(y[test], prediction, 0)['rmse']
    return str(run), {'test': error, 'seconds': seconds, **details}


def groups_grid(root: Path) -> Grid:
    """Compare the errors of all methods in all cases."""
    tests: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for run, result in studies.read_runs(root / GROUPS, METHODS).items():
        case, method, fold = run.split('/')
        tests[case, method][fold] = result['test']
    # The folds that all methods with a run have.
    shared: dict[str, set[str]] = {}
    for (case, _), folds in tests.items():
        shared[case] = shared.get(case, {*folds}) & {*folds}
    rows = []
    for name in dict.fromkeys(name for name in METHODS for c, n in tests if n == name):
        errors = [tests.get((case, name), {}) for case in CASES]
        means = [
            np.mean([folds[fold] for fold in shared[case]]) if folds else math.nan
            for case, folds in zip(CASES, errors, strict=True)
        ]
        texts = ['' if math.isnan(mean) else f'{mean:.3f}' for mean in means]
        rows.append((METHODS[name].title, [Entry(text) for text in texts]))
    counts = [
        f'{case.title}: {len(shared.get(name, []))}' for name, case in CASES.items()
    ]
    note = (
        'Mean root mean square errors of test rows, over the folds that all methods '
        f'have ({"; ".join(counts)}).'
    )
    return Grid(['', *(case.title for case in CASES.values())], rows, [note])


def main(
    arguments: list[str] | None = None, setting: dict[str, Any] = GROUPS_SETTING
) -> None:
    lists = {'cases': [*CASES], 'methods': [*METHODS]}
    folds = max(case.folds for case in CASES.values())
    args = studies.parse_args(arguments, 'groups', __doc__, lists, folds)
    runs = [
        Run(case, method, fold)
        for case in args.cases
        for fold in range(min(args.seeds, CASES[case].folds))
        for method in args.methods
    ]
    results = studies.Results(args.results / GROUPS, setting, METHODS)
    results.complete('groups', runs, execute, args.jobs)
