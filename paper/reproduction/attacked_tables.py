"""Make tables and a figure of attacked graphs from finished runs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from reproduction import studies
from reproduction.studies import signed
from reproduction.summary import LEAST_RUNS, Cell
from reproduction.tables import COUNTED, Entry, Grid

#: Results of :mod:`reproduction.attacked`.
ATTACKED_RESULTS = 'attacked.json'
#: Replaces the method of other experiments: a run trains all methods.
ALL = 'all'
#: Data sets, and the percentages of edges that the attacker may change.
ATTACKED_DATASETS = ('CiteSeer', 'Cora-ML', 'Polblogs', 'PubMed')
RATES = (0, 5, 10, 15, 20, 25)
#: The split whose labels the attacker knew, and random ones.
ATTACKED, RANDOM = 'attacked', 'random'


class Version(NamedTuple):
    """Version of runs, for the digest of their results."""

    revision: int = 1


VERSIONS = {ALL: Version()}
#: The row that all others are compared with.
OURS = 'refined'
#: Rows: titles, and names of their networks, of which validation selects one.
ROWS: dict[str, tuple[str, str]] = {
    'mlp': ('MLP', 'mlp'),
    'knn': ('10 nearest rows, mean, root weight', 'knn'),
    'gcn': ('GCN', 'gcn'),
    'gat': ('GATv2', 'gat'),
    'mean': ('mean, root weight', 'mean'),
    'gcn_cosine': ('GCN, cosine filter', 'gcn, cosine'),
    'gcn_jaccard': ('GCN, Jaccard filter', 'gcn, Jaccard'),
    'gcn_rank': ('GCN, low rank', 'gcn, rank'),
    'mean_cosine': ('mean, root weight, cosine filter', 'mean, cosine'),
    'both': ('mean of given and nearest', 'both'),
    'both_cosine': ('mean of given and nearest, cosine filter', 'both, cosine'),
    'mixture': ('mixture of nine networks', 'mixture'),
    'mlp_taught': ('MLP, taught', 'mlp, taught'),
    'gcn_taught': ('GCN, cosine above 0.05, taught', 'gcn, filtered, taught'),
    'both_taught': ('mean of given and nearest, taught', 'both, taught'),
    'untaught': ('refined graph, mean, root weight', 'refined, not taught'),
    'gslnet': ('refined graph, GSLNet, taught', 'gslnet'),
    'refined': ('refined graph, mean, root weight, taught', 'refined'),
}
#: Pro-GNN's Table 2, on the split that was attacked: mean of ten runs.
PUBLISHED = {
    'CiteSeer': (73.28, 73.09, 72.51, 72.03, 70.02, 68.95),
    'PubMed': (87.33, 87.25, 87.25, 87.20, 87.15, None),
}

Cells = dict[tuple[str, int, str, str], Cell]


def read_cells(root: Path) -> Cells:
    """Return test accuracies by data set, rate, split and row."""
    tests: dict[Any, dict[int, float]] = defaultdict(dict)
    runs = studies.read_runs(root / ATTACKED_RESULTS, VERSIONS)
    for name, result in runs.items():
        dataset, rate, split, _, seed = name.split('/')
        for row, (_, network) in ROWS.items():
            networks = _networks(network, result['rows'])
            if networks:
                best = max(networks, key=lambda n: (n['val'], -(n['loss'] or 0.0)))
                tests[dataset, int(rate), split, row][int(seed)] = 100 * best['test']
    return {key: Cell(test) for key, test in tests.items()}


def _networks(name: str, rows: dict[str, Any]) -> list[dict[str, float]]:
    """Return a network, or those of all thresholds or ranks and the one without."""
    if name in rows:
        return [rows[name]]
    filtered = [
        scores for network, scores in rows.items() if network.startswith(f'{name} ')
    ]
    return [rows[name.partition(',')[0]], *filtered] if filtered else []


def attacked_grid(dataset: str, split: str, root: Path) -> Grid:
    """Compare accuracies of all rows over the rates of a data set."""
    all_cells = read_cells(root)
    rates = [rate for rate in RATES if (dataset, rate, split, OURS) in all_cells]
    rows: list[tuple[str, list[Entry]]] = []
    for row, (title, _) in ROWS.items():
        cells = [all_cells.get((dataset, rate, split, row)) for rate in rates]
        if any(cells):
            entries = [
                _entry(cell, row, all_cells, (dataset, rate, split))
                for rate, cell in zip(rates, cells, strict=True)
            ]
            rows.append((title, entries))
    if split == ATTACKED and dataset in PUBLISHED and rows:
        published = [PUBLISHED[dataset][RATES.index(rate)] for rate in rates]
        texts = ['' if value is None else f'{value:.1f}' for value in published]
        rows.insert(-1, ('Pro-GNN, as published', [*map(Entry, texts)]))
    note = (
        f'{COUNTED}. Below it: the last row minus this one, the mean over the same '
        'splits or seeds, and on how many of them the last row is higher.'
    )
    head = [dataset, *(f'{rate} %' if rate else 'clean' for rate in rates)]
    return Grid(head, rows, [note], f'no finished runs of {dataset} yet')


def _entry(cell: Cell | None, row: str, cells: Cells, key: Any) -> Entry:
    if cell is None:
        return Entry('')
    of_ours: Any = (*key, OURS)
    ours = cells[of_ours]
    column = [c for (*k, _), c in cells.items() if tuple(k) == key]
    num_runs = max(len(c.test) for c in column)
    means = [c.mean for c in column if len(c.test) == num_runs]
    is_best = len(cell.test) == num_runs >= LEAST_RUNS and cell.mean >= max(means)
    if row == OURS:
        return Entry(str(cell), '', is_best)
    seeds = cell.test.keys() & ours.test.keys()
    differences = [ours.test[seed] - cell.test[seed] for seed in seeds]
    mean = signed(sum(differences) / len(differences))
    ahead = sum(value > 0 for value in differences)
    return Entry(str(cell), f'{mean}, {ahead} of {len(differences)}', is_best)


#: The rows of the figure, and their styles.
DRAWN = {
    'gcn': ('C1', ':'),
    'mlp': ('C7', '--'),
    'mean': ('C5', ':'),
    'gcn_cosine': ('C2', ':'),
    'both': ('C4', ':'),
    'mixture': ('C3', ':'),
    OURS: ('C0', '-'),
}


def attacked_figure(root: Path) -> Figure | None:
    """Plot accuracies over the rates, on the split that was attacked."""
    all_cells = read_cells(root)
    datasets = [d for d in ATTACKED_DATASETS if (d, 25, ATTACKED, OURS) in all_cells]
    if not datasets:
        return None
    # Two per row are legible on a phone.
    num_rows = (len(datasets) + 1) // 2
    figure = Figure(figsize=(7.2, 3 * num_rows + 1), layout='constrained')
    axes = figure.subplots(num_rows, 2, squeeze=False).flatten()
    for ax in axes[len(datasets) :]:
        ax.remove()
    for ax, dataset in zip(axes, datasets, strict=False):
        for row, (colour, line) in DRAWN.items():
            keys = {rate: (dataset, rate, ATTACKED, row) for rate in RATES}
            cells = {
                rate: all_cells[key] for rate, key in keys.items() if key in all_cells
            }
            means = {rate: cell.mean for rate, cell in cells.items()}
            style: dict[str, Any] = {'color': colour, 'linestyle': line}
            style |= {'linewidth': 2.5 if row == OURS else 1.5, 'marker': '.'}
            ax.plot([*means], [*means.values()], label=ROWS[row][0], **style)
        ax.set(title=dataset, xlabel='edges changed by Metattack, %', xticks=RATES)
        ax.grid(alpha=0.3)
        ax.set_ylabel('test accuracy, %')
    labels = axes[0].get_legend_handles_labels()
    figure.legend(*labels, loc='outside lower center', ncols=2)
    return figure
