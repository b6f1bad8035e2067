"""Tables that compare: with the controls, with the paper, after a search."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from cells import COUNTED, best_means, cells, entries, head, marks_of
from experiments import COMPARED, CONTROLS, Choice
from grid import Entry, Grid
from methods import METHODS
from published import Accuracy, accuracies
from store import Store
from summary import LEAST_RUNS, Cell, compare, verdict
from tuned import found_settings

#: What the graph of nearest neighbours adds, with and without a root weight.
NEIGHBOURS = ('knn_gcn_root', 'gcn_knn')
PAIRED = (
    'differences: mean ± sample standard deviation over the same splits, two-sided '
    'paired t-test, corrected for splits that overlap (number of splits)'
)


def differences(
    found: Mapping[tuple[str, str], Cell],
    pairs: Iterable[tuple[str, str]],
    datasets: tuple[str, ...],
) -> list[tuple[str, list[Entry]]]:
    """A row for each pair of methods: the first one less the second."""
    rows = []
    for first, second in pairs:
        row = [compare(found[first, d], found[second, d]) for d in datasets]
        title = f'{METHODS[first].title} - {METHODS[second].title}'
        rows.append((title, [Entry('' if c is None else str(c)) for c in row]))
    return rows


def paired(store: Store, choice: Choice) -> Grid:
    """Our rows against the controls on the same splits, and nearest neighbours."""
    ours = tuple(name for name in choice.methods if METHODS[name].group == 'ours')
    shown = dict.fromkeys((*ours, *CONTROLS, 'uniform', *NEIGHBOURS))
    found = cells(store, choice._replace(methods=tuple(shown)))
    pairs = [*itertools.product(ours, (*CONTROLS, 'uniform'))]
    pairs += [(method, 'mlp') for method in NEIGHBOURS]
    note = (
        f'Points of test accuracy; {PAIRED}. No p-value is corrected for their number.'
    )
    rows = differences(found, pairs, choice.datasets)
    empty = 'no finished runs to compare on the same splits yet'
    return Grid(head(choice.datasets), rows, [note], empty)


def verdicts(store: Store, choice: Choice) -> Grid:
    """Rows beside the paper's: within its standard deviation, above or below."""
    printed = tuple(m for m in choice.methods if METHODS[m].group != 'control')
    found = cells(store, choice._replace(methods=printed))
    paper = accuracies('table1')
    known = {dataset for _, _, dataset in paper}
    datasets = tuple(d for d in choice.datasets if d in known)
    others = tuple(d for d in choice.datasets if d not in known)
    rows = [
        (
            METHODS[method].title,
            [_verdict(found[method, d], paper[5, method, d]) for d in datasets],
        )
        for method in printed
    ]
    note = (
        "'within': within one standard deviation of the paper's mean. From "
        f'{LEAST_RUNS} runs on.'
    )
    absent = f'paper has no figures of {", ".join(head(others)[1:]) or "controls"}'
    marked = {
        (method, d): cell
        for (method, d), cell in found.items()
        if d in known and _is_marked(cell, paper[5, method, d])
    }
    notes = [note, *marks_of(marked), *([f'The {absent}.'] if others else [])]
    few = f'no method has {LEAST_RUNS} finished runs of this choice yet'
    is_printed = datasets and printed
    return Grid(head(datasets), rows, notes, few if is_printed else f'the {absent}')


def _verdict(cell: Cell, printed: Accuracy | None) -> Entry:
    """With the marks of runs that were ended early: the method might do better."""
    marks = cell.marks if _is_marked(cell, printed) else ''
    return Entry(verdict(cell, printed) + marks)


def _is_marked(cell: Cell, printed: Accuracy | None) -> bool:
    """Where the figure is judged, or there is none."""
    is_judged = printed is not None and len(cell.test) >= LEAST_RUNS
    return is_judged or not cell.test


def controls(store: Store, choice: Choice) -> Grid:
    """The paper's best method beside what it has to beat: without the paper's."""
    shown = ('neural_gau_sim', 'neural_gau_sim_t', 'uniform', *CONTROLS)
    found = cells(store, choice._replace(methods=shown))
    best = best_means(found, choice.datasets)
    blank = [''] * len(choice.datasets)
    rows = [
        (
            METHODS[method].title,
            entries([found[method, d] for d in choice.datasets], blank, best),
        )
        for method in shown
    ]
    return Grid(head(choice.datasets), rows, [f'{COUNTED}.', *marks_of(found)])


def tuned(store: Store, choice: Choice) -> Grid:
    """The settings that a search found, on splits that did not select them."""
    methods = ('neural_gau_sim', *CONTROLS)
    known = {d: found_settings(store.root, d, choice.label) for d in choice.datasets}
    datasets = tuple(d for d in choice.datasets if known[d].keys() >= {*methods})
    found: dict[tuple[str, str], Cell] = {}
    notes, titles = [], head(datasets)
    for dataset, title in zip(datasets, titles[1:], strict=True):
        for method in methods:
            best = known[dataset][method]
            one = choice._replace(
                datasets=(dataset,),
                methods=(method,),
                seeds=COMPARED,
                preset=best['preset'],
            )
            found |= cells(store, one, **best['setting'])
            notes.append(f'{METHODS[method].title} on {title}: {_setting(best)}.')
    blank, top = [''] * len(datasets), best_means(found, datasets)
    rows = [
        (METHODS[m].title, entries([found[m, d] for d in datasets], blank, top))
        for m in methods
    ]
    rows += differences(found, [(methods[0], name) for name in CONTROLS], datasets)
    first = f'{COUNTED}; {PAIRED}.'
    empty = 'no finished runs of settings that a search has found yet'
    return Grid(titles, rows, [first, *marks_of(found), *notes], empty)


def _setting(found: Mapping[str, Any]) -> str:
    setting = found['setting']
    if setting.get('candidates', '') is None:
        setting = setting | {'candidates': 'all'}
    shown = [
        f'{name} {value:.2g}' if isinstance(value, float) else f'{name} {value}'
        for name, value in setting.items()
    ]
    return f'{", ".join(shown)} (the best of {found["trials"]} trials)'
